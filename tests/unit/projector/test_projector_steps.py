"""Counts of messages' steps come out the same however the log is cut and however often it is read."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.outcome import Done, Refused
from starling_projector.projection.steps import ArmKey, DayKey, Step, StepKey, StepTally, count_steps, keys_of_step, step_of

RECORD = {
    "workspace": "w", "campaign": "c", "version": 2, "variant": "a", "step": "REQUESTED", "reason": None, "decided_at": 0,
    "value": None, "day": 20_454, "held_out": False, "is_first": True,
}  # fmt: skip


def made(offset: int = 0, **changed: Any) -> Step:
    found = step_of({**RECORD, **changed}, 3, offset)
    assert isinstance(found, Done)
    return found.value


def counted(*steps: Step) -> dict[StepKey, StepTally]:
    known = {key: StepTally() for step in steps for key in keys_of_step(step)}
    return count_steps(known, steps)


drawn = st.fixed_dictionaries(
    {
        "campaign": st.sampled_from("ab"),
        "variant": st.sampled_from(["x", None]),
        "day": st.integers(0, 1),
        "step": st.sampled_from(["REQUESTED", "HELD_OUT", "DROPPED", "SENT", "CONVERTED"]),
        "reason": st.sampled_from([None, "capped"]),
        "value": st.sampled_from([None, 1.5]),
        "is_first": st.booleans(),
    }
)


@given(st.lists(drawn, max_size=12), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5))
def test_reading_again_from_anywhere_before_adds_nothing(rows: list[dict[str, Any]], turns: list[tuple[int, int]]) -> None:
    """Oracle: a plain count of the whole log. Each turn starts at or before what has been read, as a restart does."""
    log = [made(offset, **row) for offset, row in enumerate(rows)]
    stored: dict[StepKey, StepTally] = {}

    def project(batch: list[Step]) -> None:
        known = {key: stored.get(key, StepTally()) for step in batch for key in keys_of_step(step)}
        stored.update(count_steps(known, batch))

    read = 0
    for back, forward in turns:
        start = min(read, back)
        project(log[start : start + forward])
        read = max(read, min(start + forward, len(log)))
    project(log[read:])
    days = Counter((row["campaign"], row["day"], row["variant"] or "") for row in rows)
    assert {key[1:3] + key[4:5]: sum(tally.counts.values()) for key, tally in stored.items() if isinstance(key, DayKey)} == days
    assert stored == counted(*log)


def test_a_step_counts_on_the_day_of_its_message_and_a_first_one_in_its_arm() -> None:
    day, arm = DayKey("w", "c", 20_454, 2, "a", 3), ArmKey("w", "c", "a", False, 3)
    found = counted(made(1), made(2, is_first=False), made(3, step="CONVERTED", value=2.5), made(4, step="SENT"))
    assert found == {
        day: StepTally({"REQUESTED": 2, "CONVERTED": 1, "SENT": 1}, 2.5, 4),
        arm: StepTally({"PEOPLE": 1, "CONVERTED": 1}, 2.5, 3),
    }


def test_held_out_people_have_an_arm_of_their_own_and_no_value_of_the_day() -> None:
    found = counted(made(1, step="HELD_OUT", held_out=True), made(2, step="CONVERTED", value=2.5, held_out=True))
    assert found == {
        DayKey("w", "c", 20_454, 2, "a", 3): StepTally({"HELD_OUT": 1, "HELD_OUT_CONVERTED": 1}, 0.0, 2),
        ArmKey("w", "c", "a", True, 3): StepTally({"PEOPLE": 1, "CONVERTED": 1}, 2.5, 2),
    }


@pytest.mark.parametrize(("reason", "name"), [("capped", "capped"), (None, "other"), ("Bad: 7", "other"), ("x" * 41, "other")])
@pytest.mark.parametrize("step", ["DROPPED", "SUPPRESSED"])
def test_what_was_not_sent_counts_by_its_reason(step: str, reason: str | None, name: str) -> None:
    found = counted(made(step=step, reason=reason, variant=None, is_first=False))
    assert found == {DayKey("w", "c", 20_454, 2, "", 3): StepTally({f"SUPPRESSED:{name}": 1}, 0.0, 0)}


def test_a_record_of_an_earlier_version_counts_on_the_day_of_its_decision() -> None:
    assert made(day=None, decided_at=86_400_000 * 2 - 1).day == 1


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_value_that_is_no_number_adds_nothing(value: float) -> None:
    assert made(value=value).value == 0
    huge = counted(made(1, step="CONVERTED", value=1.7e308), made(2, step="CONVERTED", value=1.7e308))
    assert {tally.value for tally in huge.values()} == {1.7e308}


@pytest.mark.parametrize(
    ("changed", "code"), [({"step": ""}, "unknown_step"), ({"step": "sent"}, "unknown_step"), ({"day": 2**31 - 1}, "bad_time")]
)
def test_a_record_that_cannot_be_counted_is_refused(changed: dict[str, Any], code: str) -> None:
    found = step_of({**RECORD, **changed}, 0, 0)
    assert isinstance(found, Refused)
    assert found.code == code
