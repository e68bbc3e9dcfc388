"""Properties of all predicates: a result for every value, exact negation, and no change of truth before the stated instant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from starling_segments import Known, parse_condition
from starling_segments.aggregates.lifetime import Total
from starling_segments.aggregates.values import amount, distinct_key
from starling_segments.language.operators import OPERATORS
from starling_segments.language.tree import Predicate, Trait
from tests.property.segments.oracle import GRID_MS
from tests.property.segments.predicates import evaluate
from tests.property.segments.stories import WORLDS, World, placed
from tests.property.segments.wide import (
    BIRTHDAY_TESTS,
    DAY_TESTS,
    DURATIONS,
    ITEM_TESTS,
    MOVING,
    SCALAR_TESTS,
    WIDE_VALUES,
    At,
    located,
)  # fmt: skip

OPERANDS: dict[str, dict[str, Any]] = {
    **{op: {"value": value} for op in ("eq", "neq") for value in ["a"]},
    **{op: {"value": ["a", 1, True]} for op in ("in", "not_in", "has_any", "has_none", "has_all")},
    **{op: {"value": 1} for op in ("gt", "gte", "lt", "lte", "size_eq", "size_gt", "size_lt", "day_is", "month_is")},
    **{op: {"value": [0, 1]} for op in ("between", "not_between")},
    **{op: {} for op in ("exists", "missing", "empty", "not_empty")},
    **{
        op: {"value": ["a", ""]}
        for op in ("contains", "not_contains", "starts_with", "not_starts_with", "ends_with", "not_ends_with")
    },
    **{op: {"value": "[a-z]+"} for op in ("matches", "not_matches")},
    **{op: {"value": "1.0.0-rc.1"} for op in ("semver_eq", "semver_gt", "semver_gte", "semver_lt", "semver_lte")},
    **{op: {"value": "2026-03-01"} for op in ("before", "after", "on", "not_on")},
    **{op: {"value": "2s"} for op in ("within_last", "older_than", "within_next", "later_than", "anniversary_within_next")},
    **{
        op: {"where": {"any": [{"item": "a", "op": "gt", "value": 0}, {"op": "eq", "value": 1}]}}
        for op in ("any_item", "all_items")
    },
    "is_type": {"value": "number"},
    "mod": {"value": [2, 1]},
    "between_dates": {"value": ["2026-03-01", "2026-03-02"]},
    "weekday_is": {"value": "monday"},
    "within_km": {"value": {"lat": 0, "lon": 0, "km": 100}},
    "in_box": {"value": {"north": 1, "south": -1, "east": 1, "west": -1}},
}
HORIZON_MS = 60 * GRID_MS
NEGATIONS = {
    "neq": "eq", "not_in": "in", "not_between": "between", "missing": "exists", "not_empty": "empty", "not_contains": "contains",
    "not_starts_with": "starts_with", "not_ends_with": "ends_with", "not_matches": "matches", "not_on": "on", "has_none": "has_any",
}  # fmt: skip
texts = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["a", "1.0.0", "1.0.0-rc.1", "2026-03-01", "2026-03-01T10:00:00Z", "0001-01-01", "9999-12-31T23:59:59Z"]),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-2, 2), st.floats(allow_nan=False, allow_infinity=False), texts
)
places = st.fixed_dictionaries({"lat": scalars, "lon": scalars})
values = st.recursive(
    st.one_of(scalars, places),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["a", "b", "lat"]), inner, max_size=3)),
    max_leaves=6,
)


def predicate(op: str, timezone: str = "Europe/Berlin", **operand: Any) -> Predicate:
    leaf = parse_condition({"trait": "v", "op": op, **(operand or OPERANDS[op])}, timezone, Known())
    assert isinstance(leaf, Trait)
    return leaf.predicate


ALL = {op: predicate(op) for op in OPERATORS}


@given(values, st.integers(-(10**14), 10**14))
@example("9999-12-31", 0)
@example(0, -62_135_596_800_001)  # before the first supported day
@example(-62135596800000, 0)
@example(10**400, 0)
def test_every_predicate_has_an_answer_for_every_value(value: Any, now: int) -> None:
    for op, asked in ALL.items():
        assert type(asked.holds(value, now)) is bool, op
        turn = asked.next_change(value, now) if asked.next_change else None
        assert turn is None or turn > now, op


@given(values, st.integers(0, 10**13))
def test_a_negative_operator_is_the_exact_negation(value: Any, now: int) -> None:
    for negative, positive in NEGATIONS.items():
        assert ALL[negative].holds(value, now) is not ALL[positive].holds(value, now), negative


@pytest.mark.parametrize("op", [op for op, asked in ALL.items() if asked.next_change])
@given(st.integers(0, 24), st.integers(0, 24))
def test_a_moving_date_does_not_change_before_the_stated_instant(op: str, t: int, n: int) -> None:
    asked = ALL[op]  # for an anniversary, t is early on 1 January 1970, and so is now
    assert asked.next_change is not None
    now = n * GRID_MS
    turn = asked.next_change(t * GRID_MS, now)
    until = now + HORIZON_MS if turn is None else min(turn, now + HORIZON_MS)
    for instant in range(now, until, GRID_MS):
        assert asked.holds(t * GRID_MS, instant) is asked.holds(t * GRID_MS, now)


@given(st.lists(st.integers(0, 24), max_size=3), st.integers(0, 24))
def test_nor_does_any_item_of_a_list(times: list[int], n: int) -> None:
    asked = predicate(
        "any_item", where={"all": [{"op": "within_next", "value": "2s"}, {"not": {"op": "within_last", "value": "1s"}}]}
    )
    assert asked.next_change is not None
    items, now = [t * GRID_MS for t in times], n * GRID_MS
    turn = asked.next_change(items, now)
    until = now + HORIZON_MS if turn is None else min(turn, now + HORIZON_MS)
    for instant in range(now, until, GRID_MS):
        assert asked.holds(items, instant) is asked.holds(items, now)


@given(st.lists(st.floats(-1e12, 1e12), max_size=20), st.randoms())
def test_a_lifetime_sum_does_not_depend_on_the_order_of_arrival(amounts: list[float], random: Any) -> None:
    one, other = Total(), Total()
    for value in amounts:
        one.add(0, value, 0)
    random.shuffle(amounts)
    for value in amounts:
        other.add(0, value, 0)
    assert one.value() == other.value()


@given(values)
def test_anything_can_be_measured(value: Any) -> None:
    assert amount(value) is None or isinstance(amount(value), float)
    assert (distinct_key(value) is None) is (value is None)


@given(scalars, scalars)
def test_distinct_keys_are_equal_for_equal_values_only(left: Any, right: Any) -> None:
    equal = left == right and isinstance(left, bool) == isinstance(right, bool)
    assert (distinct_key(left) == distinct_key(right)) is equal


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.zone}-{world.base_ms}")
def test_a_predicate_equals_the_reference_implementation(world: World) -> None:
    """Each predicate with each value, at instants before and after each change."""
    dates = [At(ms, form) for form in ("number", "utc", "local", "day") for ms in (0, 9_500, 10_000, 12_000)]
    born = [At(ms, "born") for ms in (0, 9_500, 10_000, 12_000)]
    moving = [{"op": op, "value": length} for op in MOVING for length in DURATIONS]
    asked = [
        (WIDE_VALUES, [*SCALAR_TESTS, *ITEM_TESTS, *moving]),
        ([*dates, *born, "x", True, None], [*DAY_TESTS, *BIRTHDAY_TESTS, *moving]),
    ]
    for values, tests in asked:
        placed_values = [located(value, world.zone, world.base_ms) for value in values]
        for test in (placed(test, world) for test in tests):
            leaf = parse_condition({"trait": "v", **test}, world.zone, Known())
            assert isinstance(leaf, Trait)
            moves = leaf.predicate.next_change is not None
            for now in (world.base_ms + ms for ms in ((0, 7_000, 9_500, 10_000, 12_000, 15_000) if moves else (0,))):
                for value in placed_values:
                    expected = evaluate(test, value, now, world.zone)
                    assert leaf.predicate.holds(value, now) is expected, (test, value, now)


members = st.lists(st.one_of(st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 0.5, -1.0, 2.0**53]), texts), max_size=6)


@given(wanted=members.filter(bool), found=st.lists(values, max_size=6) | members)
def test_sets_of_values_equal_one_comparison_after_another(wanted: list[Any], found: list[Any]) -> None:
    equal = [predicate("eq", value=item).holds for item in wanted]
    assert predicate("has_all", value=wanted).holds(found, 0) is all(any(test(item, 0) for item in found) for test in equal)
    assert predicate("has_any", value=wanted).holds(found, 0) is any(test(item, 0) for test in equal for item in found)
    for item in found:
        assert predicate("in", value=wanted).holds(item, 0) is any(test(item, 0) for test in equal)


@given(wanted=st.lists(st.text(max_size=3), min_size=1, max_size=4), found=values | st.text(max_size=8))
def test_sets_of_texts_equal_one_comparison_after_another_in_any_case(wanted: list[str], found: Any) -> None:
    folded = found.casefold() if isinstance(found, str) else found
    holds = predicate("in", value=wanted, ignore_case=True).holds
    assert holds(found, 0) is any(item.casefold() == folded for item in wanted)
