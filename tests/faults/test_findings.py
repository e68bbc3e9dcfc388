"""The comparison itself: what is missing, there twice or different is found, and nothing else."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from starling_segments import Change, UserState, encode_state
from tests.faults.findings import Findings, check_feed, check_letters, check_states, due_of
from tests.faults.log import Logged
from tests.faults.oracle import Event, Truth, evaluator_of, record_of
from tests.faults.segments import WHERES

KEY = b"faults/u1"
EVENT = {"message_id": "m1", "correlation_id": "request-1"}

Feed = list[dict[str, Any]]


class Given:
    """A codec whose bytes are numbers of records that it was given."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

    def decode(self, value: bytes) -> dict[str, Any]:
        return self._records[int(value)]

    def logged(self) -> list[Logged]:
        return [Logged("topic", 0, n, 0, record.get("key", KEY), b"%d" % n) for n, record in enumerate(self._records)]


def _expected() -> Feed:
    changes = [Change("odd", 1, "ENTERED" if n % 2 else "EXITED", n, 1000 * n, "EVENT") for n in range(1, 5)]
    return [record_of(KEY, change, EVENT, []) for change in changes]


def _as_read(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"cause": {"kind": record["cause"], "message_id": record["message_id"]}}


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda feed: feed, None),
        (lambda feed: feed[:2] + feed[3:], "lost"),
        (lambda feed: feed[:-1], "lost"),
        (lambda feed: feed[:2] + feed[1:], "doubled"),
        (lambda feed: [feed[1], feed[0], *feed[2:]], "wrong"),
        (lambda feed: [*feed[:3], feed[3] | {"effective_at": 1}], "wrong"),
        (lambda feed: [*feed, feed[3] | {"event_id": "another", "sequence": 5}], "wrong"),
    ],
    ids=["right", "gap", "end-missing", "twice", "other-order", "other-instant", "one-more"],
)
def test_a_feed_is_compared(spoil: Callable[[Feed], Feed], kind: str | None) -> None:
    truth, findings = Truth(evaluator_of(WHERES), feed={KEY: _expected()}), Findings()
    codec = Given([_as_read(record) for record in spoil(_expected())])
    check_feed(truth, {0: codec.logged()}, codec, findings)  # type: ignore[arg-type]
    assert findings.good is (kind is None)
    assert kind is None or getattr(findings, kind) > 0


@pytest.mark.parametrize(
    ("versions", "kind"), [([1, 2, 3], None), ([1, 3], "lost"), ([1, 2, 2, 3], "doubled"), ([1, 2, 1], "doubled")]
)
def test_versions_in_the_changelog_are_compared(versions: list[int], kind: str | None) -> None:
    truth, findings = Truth(evaluator_of(WHERES)), Findings()

    state = UserState(known=True)
    truth.states[KEY] = state
    codec = Given([{"version": version, "state": b"\xff" * 8 + encode_state(state)} for version in versions])
    check_states(truth, {0: codec.logged()}, codec, findings)  # type: ignore[arg-type]
    assert (findings.lost, findings.doubled, findings.wrong) == (int(kind == "lost"), int(kind == "doubled"), 0)


def test_a_state_that_differs_is_compared() -> None:

    truth, findings = Truth(evaluator_of(WHERES), states={KEY: UserState(known=True, clock=5)}), Findings()
    codec = Given([{"version": 1, "state": b"\xff" * 8 + encode_state(UserState(known=True, clock=6))}])
    check_states(truth, {0: codec.logged()}, codec, findings)  # type: ignore[arg-type]
    assert findings.wrong == 1
    assert "'clock': (5, 6)" in findings.examples[0]


SWITCH_MS = 12 * 60_000
"""The window of ten minutes has ended, the others have not."""


def _folded(orders_at: Sequence[int], switch_at: int | None = None) -> UserState:
    """Return the state of a user with orders, after a switch of definitions at that instant."""
    evaluator, state = evaluator_of(WHERES), UserState(user_id="u1")
    for number, at in enumerate(orders_at):
        evaluator.on_event(state, Event("Order Completed", at, {"revenue": 10, "sku": f"s{number}"}, {}), at)
    if switch_at is not None:
        evaluator.on_definition(state, switch_at, evaluator)
    return state


@pytest.mark.parametrize(
    ("found", "switches", "is_same"),
    [
        (_folded([0, 1]), 0, True),
        (_folded([0, 1], SWITCH_MS), 1, True),
        (_folded([0, 1], SWITCH_MS), 0, False),
        (_folded([1], SWITCH_MS), 1, False),
        (_folded([0, 2], SWITCH_MS), 1, False),
        (_folded([0], SWITCH_MS), 1, False),
    ],
    ids=["equal", "switched", "no-switch-in-the-run", "lacks-an-order", "another-instant-in-a-window", "lacks-one-in-a-window"],
)
def test_a_state_may_differ_by_what_a_switch_drops_and_by_nothing_else(found: UserState, switches: int, is_same: bool) -> None:
    evaluator = evaluator_of(WHERES)
    truth, findings = Truth(evaluator, states={KEY: _folded([0, 1])}, switches=switches), Findings()
    due = evaluator.next_due(found)
    codec = Given([{"version": 1, "state": due_of(due) + encode_state(found)}])
    check_states(truth, {0: codec.logged()}, codec, findings)  # type: ignore[arg-type]
    wrong = [example for example in findings.examples if "waits" not in example]
    assert (not wrong) is is_same, findings.examples


def test_dead_letters_are_compared() -> None:
    places = [("t", 0, 1), ("t", 0, 2), ("t", 0, 3)]
    truth, findings = Truth(evaluator_of(WHERES), letters=places[:2]), Findings()
    reported = [places[0], places[0], places[2]]
    codec = Given([{"origin_topic": topic, "origin_partition": n, "origin_offset": at} for topic, n, at in reported])
    check_letters(truth, codec.logged(), codec, findings)  # type: ignore[arg-type]
    assert (findings.lost, findings.doubled, findings.wrong) == (1, 1, 1)
