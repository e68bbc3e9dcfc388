"""The size of accumulators is limited for any input, and results stay within the stated errors.

Counted in links, combinations, panes and bytes, never in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from starling_segments import Evaluator, Known, UserState, compile_plan, decode_state, encode_state, parse_segment
from starling_segments.aggregates.accumulators import Chain, Delayed
from starling_segments.aggregates.distributions import Frequencies, Quantiles
from starling_segments.aggregates.lifetime import EXACT, Values
from starling_segments.aggregates.measure_table import MEASURES, kind_of
from starling_segments.aggregates.panes import MAX_BYTES, MAX_PANES, encoded_size
from starling_segments.aggregates.sketches import with_amounts, with_values
from starling_segments.aggregates.sliding import SlidingDistinct
from starling_segments.aggregates.sliding_distributions import SlidingFrequencies, SlidingQuantiles
from starling_segments.engine.sequences import bounds
from starling_segments.engine.sequences.bounds import MAX_CAPTURED_BYTES, MAX_COMBINATION_BYTES
from starling_segments.language.bounds import MAX_COMBINATIONS
from starling_segments.language.tree import EventSelector, Measure, MeasureName

Doc = dict[str, Any]
LARGEST = 640 << 10
"""Maximum size of one accumulator, far below the limit of a whole state."""


def evaluator_of(where: Doc) -> Evaluator:
    return Evaluator(compile_plan([parse_segment({"key": "s", "name": "s", "where": where}, Known())]))


def event(name: str, time_ms: int, **properties: Any) -> Any:
    return SimpleNamespace(name=name, time_ms=time_ms, properties=properties, context={})


def compared(op: str, *steps: int) -> Doc:
    return {"all": [{"property": "k", "op": op, "value": {"step": step, "property": "k"}} for step in steps]}


def chain_of(evaluator: Evaluator, state: UserState) -> Chain:
    chain = state.accumulators.get(evaluator.plan.leaves[0])
    assert isinstance(chain, Chain)
    return chain


def combinations(chain: Chain) -> int:
    return sum(len(link.reached) for link in chain.links)


A: Doc = {"event": "A"}
PAUSES = [{"not": {"event": "B", "where": compared("eq", 0)}, "for": f"{seconds}s"} for seconds in (1, 2)]
EXPLODING: dict[str, list[Doc]] = {
    "four steps": [A, A, A, A, {"event": "B", "where": compared("neq", 0, 1, 2, 3)}],
    "fifteen steps": [*[A] * 15, {"event": "B", "where": compared("neq", *range(15))}],
    "each with those before it": [
        A, *({"event": "A", "where": compared("neq", *range(max(0, i - 3), i))} for i in range(1, 20)), {"event": "B"}
    ],
    "then a pause": [A, A, A, {"not": {"event": "B", "where": compared("eq", 0, 1, 2)}, "for": "1h"}, {"event": "C"}],
    "between pauses": [A, *PAUSES, A, *PAUSES, A, {"event": "B", "where": compared("neq", 0, 3, 6)}],
}  # fmt: skip


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", EXPLODING)
def test_a_step_that_compares_with_many_does_not_keep_every_combination(name: str, late: bool) -> None:
    """256 events have 170 million combinations of four."""
    evaluator, state, now = evaluator_of({"sequence": EXPLODING[name]}), UserState(), 10**7
    for i in range(40 if late else 300):
        now += 1_000
        evaluator.on_event(state, event("A", 10**7 - i * 1_000 if late else now, k=f"v{i}"), now)
        assert combinations(chain_of(evaluator, state)) <= MAX_COMBINATIONS + 4 * EXACT
    assert combinations(chain_of(evaluator, state)) > MAX_COMBINATIONS // 2  # the limit was reached
    assert len(chain_of(evaluator, state).links) <= EXACT
    assert len(encode_state(state)) < MAX_COMBINATION_BYTES


def answers(evaluator: Evaluator, state: UserState, last: Any) -> bool:
    """Return whether the event completes the sequence, for a stored state."""
    again = decode_state(encode_state(state))
    return [change.status for change in evaluator.on_event(again, last, last.time_ms)] == ["ENTERED"]


def test_as_many_combinations_as_there_is_room_for_are_followed_exactly() -> None:
    last = [{"property": name, "op": "eq", "value": {"step": i, "property": "k"}} for i, name in enumerate(("one", "two"))]
    evaluator, state = evaluator_of({"sequence": [A, {"event": "B"}, {"event": "C", "where": {"all": last}}]}), UserState()
    for i in range(30):
        evaluator.on_event(state, event("A", i, k=f"a{i}"), i)
    for i in range(30):
        evaluator.on_event(state, event("B", 100 + i, k=f"b{i}"), 100 + i)
    assert combinations(chain_of(evaluator, state)) == 30 + 30 * 30
    for i in range(0, 30, 3):
        for j in range(1, 30, 4):
            assert answers(evaluator, state, event("C", 200, one=f"a{i}", two=f"b{j}"))
            assert not answers(evaluator, state, event("C", 200, one=f"b{j}", two=f"a{i}"))


def test_what_a_later_event_left_too_goes_first() -> None:
    """40 products, then 60 visits, each of which can follow any product: 2400 combinations, 80 of which matter."""
    evaluator = evaluator_of({"sequence": [A, {"event": "B"}, {"event": "C", "where": compared("eq", 0), "within": "1s"}]})
    state = UserState()
    for i in range(100):
        evaluator.on_event(state, event("A" if i < 40 else "B", i, k=f"a{i}"), i)
    assert combinations(chain_of(evaluator, state)) <= MAX_COMBINATIONS + 4 * EXACT
    assert all(answers(evaluator, state, event("C", 200, k=f"a{i}")) is (i < 40) for i in range(60))
    evaluator.on_event(state, event("B", 10_000, k="b"), 10_000)
    assert all(answers(evaluator, state, event("C", 10_001, k=f"a{i}")) is (i < 40) for i in range(60))


STEPS = [
    [A, A, {"event": "C", "where": compared("eq", 0, 1)}],
    [A, {"event": "B"}, {"not": {"event": "D", "where": compared("eq", 0)}}, {"event": "C", "where": compared("eq", 1)}],
    [A, {"not": {"event": "B", "where": compared("eq", 0)}, "for": "5s"}, {"event": "C", "where": compared("neq", 0)}],
    [A, A, {"not": {"event": "B", "where": compared("eq", 0, 1)}, "for": "9s"}],
]


@pytest.mark.parametrize("steps", STEPS)
def test_what_was_forgotten_is_missed_and_nothing_is_made_up(steps: list[Doc], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CHECK_EVERY", 2)
    evaluator, missed = evaluator_of({"sequence": steps}), 0
    for seed in range(60):
        entered: list[int | None] = []
        for most in (10**6, 6):
            monkeypatch.setattr(bounds, "MAX_COMBINATIONS", most)
            entered.append(first_entry(evaluator, random.Random(seed)))
        exact, bounded = entered
        assert bounded is None or (exact is not None and exact <= bounded)
        missed += exact != bounded
    assert missed < 60


def first_entry(evaluator: Evaluator, dice: random.Random) -> int | None:
    state, now = UserState(), 10**6
    for _ in range(40):
        now += 500 * dice.randrange(4)
        at = now - 500 * dice.choice((0, 0, 0, 4, 12))
        changes = evaluator.on_event(state, event(dice.choice("AAABCD"), at, k=dice.randrange(12)), now)
        if changes:
            return changes[0].effective_at
        state = decode_state(encode_state(state))
    return next((change.effective_at for change in evaluator.on_timer(state, now + 10**6)), None)


def test_a_sequence_keeps_fewer_events_when_what_they_are_compared_by_is_large() -> None:
    evaluator, state = evaluator_of({"sequence": [A, {"event": "B", "where": compared("eq", 0)}]}), UserState()
    for i in range(200):
        evaluator.on_event(state, event("A", i, k=f"{i}" + "x" * 3_000), i)
    assert MAX_CAPTURED_BYTES // 2 < len(encode_state(state)) < MAX_CAPTURED_BYTES + MAX_COMBINATION_BYTES
    assert answers(evaluator, state, event("B", 300, k="199" + "x" * 3_000))


def test_a_very_large_value_leads_no_sequence_on() -> None:
    evaluator = evaluator_of({"sequence": [A, {"event": "B", "where": compared("eq", 0)}]})
    for n, leads_on in ((4_000, True), (5_000, False)):
        state = UserState()
        evaluator.on_event(state, event("A", 1, k="x" * n), 1)
        assert answers(evaluator, state, event("B", 2, k="x" * n)) is leads_on


OLDER, NEWER = 128_000, 64_000
PANE = (OLDER - NEWER) // EXACT


def kept_for(name: MeasureName) -> tuple[Delayed, Any]:
    kind = kind_of(Measure(EventSelector("A"), name, "v", q="0.5" if name == "percentile" else None))
    return Delayed(kind.windowed()), kind


PAYLOADS: dict[MeasureName, Callable[[int, int], Any]] = {
    **dict.fromkeys(("sum", "avg", "min", "max", "percentile"), lambda i, _t: float(i * 7_919 % 1_000)),
    **dict.fromkeys(("first", "last"), lambda i, _t: f"v{i}"),
    **dict.fromkeys(("count", "first_time", "last_time"), lambda _i, _t: None),
    "distinct": lambda i, _t: f"t{i % 300}",
    "most_frequent": lambda i, _t: "often" if i % 3 else f"rare {i}",
    "days": lambda _i, t: t // 40_000,
}


def exact(name: MeasureName, payloads: list[tuple[int, Any]]) -> Any:
    """Return the value of a lifetime accumulator."""
    _, kind = kept_for(name)
    found = kind.lifetime()
    for at, payload in payloads:
        found.add(at, payload, 0)
    return found.value()


@pytest.mark.parametrize("every_ms", [251, 97])
@pytest.mark.parametrize("name", MEASURES)
def test_what_waits_for_a_window_in_the_past_is_exact_up_to_256_and_late_by_a_pane_above(name: MeasureName, every_ms: int) -> None:
    kept, kind = kept_for(name)
    happened = [(i * every_ms, PAYLOADS[name](i, i * every_ms)) for i in range(150_000 // every_ms)]
    allowed = 0 if every_ms > PANE else PANE
    for at, payload in happened:
        kept.admit(at - NEWER, PANE)
        kept.inner.forget(at - OLDER)
        kept.put(at, payload, PANE, kind.lifetime)
        assert len(kept.times) <= EXACT
    assert bool(kept.panes) is (allowed > 0)
    late = range(0, allowed + 1, every_ms)
    for now in range(happened[-1][0], happened[-1][0] + OLDER, 17_011):
        kept.admit(now - NEWER, PANE)
        kept.inner.forget(now - OLDER)
        spans = [(now - OLDER - leaving, now - NEWER - coming) for leaving in late for coming in late]
        check(
            name,
            kept.inner.value(),
            [exact(name, [one for one in happened if low < one[0] <= high]) for low, high in spans],
            allowed,
        )


def check(name: MeasureName, value: Any, possible: list[Any], allowed: int) -> None:
    known = [one for one in possible if one is not None]
    if value is None or not known:
        assert None in possible or value == exact(name, [])
    elif name in ("first", "last", "most_frequent") or not allowed:
        assert value in possible
    else:
        slack = {"distinct": 12, "percentile": 30, "first_time": allowed, "last_time": allowed}.get(name, 1e-6)
        assert min(known) - slack <= value <= max(known) + slack


def test_what_waits_very_long_for_a_short_window_waits_in_few_panes() -> None:
    """A day three years ago: 280,000 panes of a 256th of that day would have to wait."""
    day = 86_400_000
    newer, older, pane = 1_094 * day, 1_095 * day, day // EXACT
    kept, kind = kept_for("count")
    every = day // 20
    for i in range(1_094 * 20):
        kept.put(i * every, None, pane, kind.lifetime)
    assert len(kept.panes) <= MAX_PANES + 8
    assert encoded_size(kept) < MAX_BYTES
    for now in range(newer + 10 * day, newer + 1_000 * day, 97 * day + 1):
        kept.admit(now - newer, pane)
        kept.inner.forget(now - older)
        value: Any = kept.inner.value()
        assert 0 <= value <= 20 + 1_094 * 20 * 2 * 8 // (MAX_PANES * 7)  # one pane more or less


def full(measure: str, i: int) -> Any:
    """A pane with two thousand different values."""
    if measure == "distinct":
        return Values(sketch=with_values(b"", (f"{i}-{j}" for j in range(2_000))))
    if measure == "percentile":
        return Quantiles("0.5", sketch=with_amounts(b"", (float(i * j % 9_973) for j in range(2_000))))
    found = Frequencies()
    for j in range(EXACT):
        found.add(i, f"{i}-{j}".ljust(60), 0)
    return found


@pytest.mark.parametrize(
    ("measure", "kept"),
    [("distinct", SlidingDistinct()), ("percentile", SlidingQuantiles("0.5")), ("most_frequent", SlidingFrequencies())],
)
def test_a_window_full_of_full_panes_is_small_and_late_by_a_sixteenth_at_most(measure: str, kept: Any) -> None:
    for i in range(EXACT):
        kept.add_pane(i * 1_000, full(measure, i), 1_000)
    assert MAX_BYTES // 4 < encoded_size(kept) < MAX_BYTES + (20 << 10)
    ends = [-1_000, *(last for last, _ in kept.panes)]
    assert max(younger - older for older, younger in pairwise(ends)) <= EXACT * 1_000 // 16
    assert len(kept.panes) < EXACT // 4


def test_wider_panes_estimate_as_well_as_narrow_ones() -> None:
    values, amounts = SlidingDistinct(), SlidingQuantiles("0.5")
    for i in range(EXACT):
        values.add_pane(i * 1_000, full("distinct", i), 1_000)
        amounts.add_pane(i * 1_000, full("percentile", i), 1_000)
    assert abs(values.value() - 2_000 * EXACT) < 2_000 * EXACT * 0.04
    values.forget(128_000)
    kept = sum(2_000 * 1_000 // 1_000 for i in range(EXACT) if i * 1_000 > 128_000)
    assert kept * 0.96 < values.value() < (kept + 2_000 * 16) * 1.04
    assert 4_987 * 0.95 < (amounts.value() or 0) < 4_987 * 1.05


HEAVY: list[Any] = ["x" * 20_000, "ж" * 10_000, ["y" * 9_000] * 2, {"z": "y" * 18_000}]


@pytest.mark.parametrize("filler", ["", "x", "😀"])
@pytest.mark.parametrize("measure", ["first", "last", "most_frequent"])
@pytest.mark.parametrize("window", [{}, {"within": "10m"}, {"calendar": "this_month"}, {"between_ago": ["10m", "5m"]}])
def test_large_values_take_no_more_room_than_a_leaf_has(measure: str, window: Doc, filler: str) -> None:
    """As many values as fit are stored one by one, always including the newest."""
    evaluator, state = evaluator_of({"event": "A", "measure": {measure: "v"}, "op": "exists", **window}), UserState()
    for i in range(400):
        value = f"{i}".ljust(500, filler) if filler else f"{i}{HEAVY[0]}" if i % 2 else [i, HEAVY[i // 2 % 4]]
        evaluator.on_event(state, event("A", i * 1_000, v=value), i * 1_000)
        if i % 50 == 49:
            state = decode_state(encode_state(state))
            assert len(encode_state(state)) < LARGEST
    evaluator.on_timer(state, 600_000)
    assert len(encode_state(state)) < LARGEST


def test_a_number_too_large_to_be_stored_is_compared_as_a_float() -> None:
    evaluator, state = evaluator_of({"sequence": [A, {"event": "B", "where": compared("eq", 0)}]}), UserState()
    evaluator.on_event(state, event("A", 1, k=2**70), 1)
    assert answers(evaluator, state, event("B", 2, k=2**70))
