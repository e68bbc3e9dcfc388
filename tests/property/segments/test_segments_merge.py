"""The merge of two states has the values of one fold of all events, for every measure in every window."""

from __future__ import annotations

import random
from collections import Counter
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from starling_segments import (
    Evaluator,
    Known,
    MeasurePlan,
    Unmergeable,
    UserState,
    compile_measures,
    compile_plan,
    decode_state,
    encode_state,
    parse_measure,
    parse_segment,
    plain,
)  # fmt: skip
from starling_segments.aggregates.distributions import Frequencies
from starling_segments.aggregates.measure_table import MEASURES
from starling_segments.aggregates.panes import MAX_BYTES
from starling_segments.language.tree import Ratio
from tests.property.segments import measured
from tests.property.segments.folded import CASES
from tests.property.segments.measured import ALIGNED, WINDOWS, Arrived, few, folded, many, plan_of
from tests.property.segments.oracle import MeasuredEvent
from tests.property.segments.stories import WORLDS, World, placed

LATER_MS = (0, 500, 500, 1_500, 4_000, 86_400_000, 86_400_000, 40 * 86_400_000)
"""Advances of time after the last event, at which values are compared."""
PARTS = 4
"""Parts of an accumulator that can be large: matches and panes of a window, and those that are too young for it."""
SEEDED = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: a smaller seed gives no smaller story."""
Reading = tuple[str, Any, int | None]


def test_every_measure_is_tried() -> None:
    names = {name if isinstance(name, str) else next(iter(name)) for name in measured.MEASURES}
    assert names == {*MEASURES}


def readings(plan: MeasurePlan, state: UserState, now: int) -> list[list[Reading]]:
    """Return each value, with its type, and when time alone changes it: now and at later instants."""
    state = decode_state(encode_state(state))
    found: list[list[Reading]] = []
    for instant in accumulate(LATER_MS, initial=now):
        plan.settle(state, instant)
        read = [one.read(state, instant) for one in plan.compiled]
        found.append([(type(value).__name__, value, change_at) for value, change_at in read])
    return found


def last_now(events: list[Arrived], world: World) -> int:
    return events[-1].now if events else world.base_ms


@pytest.mark.parametrize("window", range(len(WINDOWS)), ids=[str(window) for window in WINDOWS])
@settings(max_examples=max(10, CASES // 5), deadline=None)
@given(st.data(), st.sampled_from(WORLDS))
def test_few_matches_merge_exactly_however_they_are_cut(window: int, data: st.DataObject, world: World) -> None:
    events = data.draw(few(world))
    cuts = sorted(data.draw(st.tuples(*[st.integers(0, len(events))] * 2)))
    plan, now = plan_of(window, world), last_now(events, world)
    first, second, third = events[: cuts[0]], events[cuts[0] : cuts[1]], events[cuts[1] :]
    parts = [folded(plan, part) for part in (first, second, third)]
    before = [encode_state(part) for part in parts]

    left = plan.merge(plan.merge(parts[0], parts[1], last_now([*first, *second], world)), parts[2], now)
    right = plan.merge(parts[0], plan.merge(parts[1], parts[2], now), now)

    expected = readings(plan, folded(plan, events), now)
    assert readings(plan, left, now) == expected
    assert readings(plan, right, now) == expected
    assert [encode_state(part) for part in parts] == before


@pytest.mark.parametrize("window", range(len(WINDOWS)), ids=[str(window) for window in WINDOWS])
@pytest.mark.parametrize("late_ms", [0, 500])
def test_at_one_instant_the_earlier_side_is_first(window: int, late_ms: int) -> None:
    """Every cut between events of one instant, which may be reached already or by a later event."""
    world = WORLDS[0]
    plan, at = plan_of(window, world), world.base_ms + 4_000
    events = [
        Arrived(MeasuredEvent("A", at, {"v": number % 4, "k": f"k{number % 3}"}), at + late_ms * (number // 3))
        for number in range(6)
    ]
    expected = readings(plan, folded(plan, events), events[-1].now)
    for cut in range(len(events) + 1):
        merged = plan.merge(folded(plan, events[:cut]), folded(plan, events[cut:]), events[-1].now)
        assert readings(plan, merged, events[-1].now) == expected


@pytest.mark.parametrize("window", range(len(WINDOWS)), ids=[str(window) for window in WINDOWS])
@settings(max_examples=10, deadline=None)
@given(st.data(), st.sampled_from(WORLDS))
def test_an_empty_side_changes_nothing(window: int, data: st.DataObject, world: World) -> None:
    events = data.draw(few(world))
    plan, now = plan_of(window, world), last_now(events, world)
    state = folded(plan, events)
    plan.settle(state, now)
    kept = plain(state)
    assert plain(plan.merge(state, UserState(user_id="u"), now)) == kept
    assert plain(plan.merge(UserState(user_id="u"), state, now)) == kept


@pytest.mark.parametrize("window", range(len(ALIGNED)), ids=[str(window) for window in ALIGNED])
@settings(max_examples=max(2, CASES // 75), deadline=None, phases=SEEDED)
@given(st.integers(0, 10**6), st.integers(280, 700), st.floats(0, 1), st.sampled_from(WORLDS))
def test_many_matches_merge_within_the_errors_of_panes_and_sketches(
    window: int, seed: int, length: int, share: float, world: World
) -> None:
    events = many(world, seed, length)
    cut, now = round(length * share), last_now(events, world)
    plan, truth = plan_of(window, world, aligned=True), readings_of_all(window, world, events, now)
    merged = plan.merge(folded(plan, events[:cut]), folded(plan, events[cut:]), now)
    for found, expected, values in zip(readings(plan, merged, now), readings(plan, folded(plan, events), now), truth, strict=True):
        for (document, some), one, other in zip(values, found, expected, strict=True):
            assert is_close(document, some, one[1], other[1]), (document, one, other)


Amounts = list[Any] | None


def readings_of_all(window: int, world: World, events: list[Arrived], now: int) -> list[list[tuple[Any, Amounts]]]:
    """Return each measure with the amounts inside its window, at each instant of `readings`; None where they are not needed."""
    documents = list(measured.documents(placed(ALIGNED[window], world)))
    plan = compile_measures([parse_measure(document, world.zone) for document in documents])
    found = []
    for instant in accumulate(LATER_MS, initial=now):
        at: list[tuple[Any, Amounts]] = []
        for document, one in zip(documents, plan.compiled, strict=True):
            sketched = isinstance(document.get("measure"), dict) and {"distinct", "percentile"} & document["measure"].keys()
            at.append((document["measure"], inside(document, world, plan, one.leaves[0], events, instant) if sketched else None))
        found.append(at)
    return found


def inside(document: Any, world: World, plan: MeasurePlan, leaf: int, events: list[Arrived], instant: int) -> list[Any]:
    """Return the payloads of the matches inside the window."""
    measure = parse_measure(document, world.zone)
    assert not isinstance(measure, Ratio)
    holds = measured.holds_in(measure.window)
    return [
        payload
        for one in events
        for number, payload in plan.matches(one.event)
        if number == leaf and payload is not None and holds(one.event.time_ms, instant)
    ]


def is_close(measure: Any, amounts: Amounts, value: Any, expected: Any) -> bool:
    """Return whether a merged value is as good as the folded one."""
    if isinstance(measure, dict) and "ratio" in measure:
        return (value is None) is (expected is None) and (value is None or abs(value - expected) <= 0.06 * abs(expected) + 1e-9)
    if amounts is None:
        return bool(value == expected)
    if "distinct" in measure:
        exact = len(set(amounts))
        return bool(abs(value - exact) <= max(4, 0.06 * exact))
    if not amounts:
        return value is None
    ranked, wanted = sorted(amounts), measure["q"] * len(amounts)
    lowest, highest = ranked.index(value) + 1, len(ranked) - ranked[::-1].index(value)
    slack = 1 + 0.02 * len(ranked)
    return bool(lowest - slack <= wanted <= highest + slack)


def test_a_frequent_value_is_never_lost_by_a_merge() -> None:
    """A value of more than one match in 256 is among the counts, in whichever of the parts it occurs."""
    dice = random.Random(5)
    for _ in range(20):
        rare = [f"r{dice.randrange(4_000)}" for _ in range(3_000)]
        hot = ["hot"] * (len(rare) // 200)
        values = [*rare, *hot]
        dice.shuffle(values)
        cuts = sorted(dice.sample(range(len(values)), 3))
        parts = [values[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
        whole = Frequencies()
        for number, part in enumerate(parts):
            counts = Frequencies()
            for value in part:
                counts.add(number, value, 0)
            whole.merge(counts)
        seen = {found.value: found.n for found in whole.seen.values()}
        assert len(seen) == 256
        for value, n in Counter(values).items():
            assert n * 256 <= len(values) or seen[value] >= n


def test_large_values_stay_within_the_size_of_an_accumulator() -> None:
    documents: list[Any] = [
        {"event": "A", "measure": {name: "v"}, **window}
        for name in ("first", "most_frequent")
        for window in ({}, {"within": "256s"}, {"between_ago": ["512s", "256s"]})
    ]
    plan = compile_measures([parse_measure(document) for document in documents])
    events = [Arrived(MeasuredEvent("A", at * 1_000, {"v": f"{at:04}" * 800}), at * 1_000) for at in range(500)]
    for end in (200, 500):
        merged = plan.merge(folded(plan, events[: end // 2]), folded(plan, events[end // 2 : end]), end * 1_000)
        for leaf in plan.leaves:
            assert len(merged.accumulators.encoded(leaf.id) or b"") <= PARTS * MAX_BYTES
    assert plan.compiled[0].read(merged, end * 1_000)[0] == events[0].event.properties["v"]


def test_a_sequence_is_refused() -> None:
    funnel = {"sequence": [{"event": "A"}, {"event": "B"}], "within": "7d"}
    evaluator = Evaluator(compile_plan([parse_segment({"key": "s", "name": "s", "where": funnel}, Known())]))
    earlier, later = UserState(user_id="u1"), UserState(user_id="u1")
    for state in (earlier, later):
        evaluator.on_event(state, MeasuredEvent("A", 1_000), 1_000)
    with pytest.raises(Unmergeable, match=r"\(Chain\) of the user 'u1' is no measure of this plan: states of sequences"):
        compile_measures([]).merge(earlier, later, 2_000)
