"""Limits: exact up to 256 matches, then panes and sketches within their stated errors; definitions that are too large."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from starling_segments import (
    DefinitionRefused,
    Evaluator,
    Known,
    Membership,
    UserState,
    compile_plan,
    decode_state,
    encode_state,
    parse_segment,
)
from starling_segments.aggregates.accumulators import Beats, Chain
from starling_segments.aggregates.distributions import Frequencies, Quantiles
from starling_segments.aggregates.lifetime import EXACT, Values
from starling_segments.aggregates.sliding import SlidingDistinct
from starling_segments.aggregates.sliding_distributions import SlidingQuantiles
from starling_segments.aggregates.sliding_measures import SlidingFirst, SlidingMaximum, SlidingMean, SlidingMeasure, SlidingMinimum
from starling_segments.engine.trait_conditions import murmur3_32, share_of

Doc = dict[str, Any]
BUY = {"event": "Buy"}
HOUR = 3_600_000


def evaluator_of(where: Doc) -> Evaluator:
    return Evaluator(compile_plan([parse_segment({"key": "s", "name": "s", "where": where}, Known())]))


def event(name: str, time_ms: int, **properties: Any) -> Any:
    return SimpleNamespace(name=name, time_ms=time_ms, properties=properties, context={})


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"abc", 0xB3DD93FA),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)  # fmt: skip
def test_the_hash_is_murmur3(data: bytes, digest: int) -> None:
    assert murmur3_32(data) == digest


def test_buckets_are_uniform_and_independent_between_salts() -> None:
    users = [f"user-{i}" for i in range(20_000)]
    first = {user for user in users if share_of("one", user) < 25}
    second = {user for user in users if share_of("two", user) < 25}
    assert 0.24 < len(first) / len(users) < 0.26
    assert 0.24 < len(first & second) / len(first) < 0.26


@pytest.mark.parametrize("n", [EXACT, 1_000, 20_000])
def test_different_values_are_exact_up_to_256_and_estimated_above(n: int) -> None:
    ever, lately = Values(), SlidingDistinct()
    for i in range(n):
        for kept in (ever, lately):
            kept.add(i, f"t{i % n}", 100)
    allowed = 0 if n <= EXACT else 0.04 * n  # 0.02 is at least the standard error
    assert abs(ever.value() - n) <= allowed
    assert abs(lately.value() - n) <= allowed


def test_different_values_leave_their_window_pane_by_pane() -> None:
    kept = SlidingDistinct()
    for i in range(2_000):
        kept.add(i * 100, f"t{i}", 1_000)
    assert abs(kept.value() - 2_000) < 80
    kept.forget(99_999)  # the first thousand have left
    assert abs(kept.value() - 1_000) < 60
    kept.forget(10**9)
    assert kept.value() == 0
    kept.add(10**9 + 1, "t1", 1_000)
    assert (kept.value(), kept.panes) == (1, [])


@pytest.mark.parametrize("q", ["0.01", "0.5", "0.95", "1.0"])
def test_percentiles_are_exact_up_to_256_and_within_one_rank_in_a_hundred_above(q: str) -> None:
    dice = random.Random(3)
    ever, lately, seen = Quantiles(q), SlidingQuantiles(q), []
    for i in range(5_000):
        amount = dice.lognormvariate(3, 1)
        seen.append(amount)
        ever.add(i, amount, 100)
        lately.add(i, amount, 100)
        if i == EXACT - 1:
            assert ever.value() == lately.value() == sorted(seen)[max(0, -(-int(float(q) * 100) * EXACT // 100) - 1)]
    for value in (ever.value(), lately.value()):
        assert value is not None
        rank = sum(other <= value for other in seen) / len(seen)
        assert abs(rank - float(q)) <= 0.02


@pytest.mark.parametrize(
    ("kept", "of"),
    [
        (SlidingMean(), lambda amounts: sum(amounts) / len(amounts)),
        (SlidingMinimum(), min),
        (SlidingMaximum(), max),
        (SlidingFirst(), lambda amounts: amounts[0]),
    ],
)
def test_above_256_matches_other_measures_are_late_by_less_than_a_pane(
    kept: SlidingMeasure, of: Callable[[list[float]], float]
) -> None:
    window, pane = 256_000, 256_000 // EXACT
    dice = random.Random(5)
    happened = [(i * 97, float(dice.randrange(1_000))) for i in range(2_000)]
    for at, amount in happened:
        kept.add(at, amount, pane)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=type(kept))
    for now in range(happened[-1][0], happened[-1][0] + window, 9_973):
        again.forget(now - window)
        late = range(now - window - pane, now - window + 1)  # the cutoffs that the result may correspond to
        possible = [[amount for at, amount in happened if at > cutoff] for cutoff in (late[0], *late[1::97], late[-1])]
        answers = [of(amounts) for amounts in possible if amounts]
        assert min(answers) - 1e-9 <= again.value() <= max(answers) + 1e-9


def test_a_common_value_is_found_among_very_many() -> None:
    kept = Frequencies()
    for i in range(20_000):
        kept.add(i, "often" if i % 50 == 0 else f"rare {i}", 0)
    assert len(kept.seen) == EXACT
    assert kept.value() == "often"


def test_a_habit_keeps_two_matches_a_period_at_most() -> None:
    kept = Beats()
    dice = random.Random(9)
    for _ in range(10_000):
        kept.add(dice.randrange(28 * 24 * HOUR), None, 7 * 24 * HOUR)
    assert len(kept.times) <= 10


def test_a_sequence_keeps_256_events_at_most_and_still_completes() -> None:
    where = {"sequence": [{"event": "Add"}, {"event": "Look"}, {"not": BUY, "for": "1h"}]}
    evaluator, state = evaluator_of(where), UserState()
    for i in range(2_000):
        assert evaluator.on_event(state, event("Look" if i % 3 else "Add", i * 1_000), i * 1_000) == []
    chain = state.accumulators.get(evaluator.plan.leaves[0])
    assert isinstance(chain, Chain)
    assert len(chain.links) == EXACT
    (change,) = evaluator.on_timer(state, 4 * HOUR)
    assert 1_000 <= change.effective_at - HOUR < 20_000  # the hour of the second event; later links were dropped first


def test_states_with_sketches_go_through_bytes() -> None:
    evaluator = Evaluator(
        compile_plan(
            [
                parse_segment(
                    {"key": f"s{i}", "name": "s", "where": {**BUY, **measure, "op": "gte", "value": 500, **window}}, Known()
                )
                for i, (measure, window) in enumerate(
                    (measure, window)
                    for measure in ({"measure": {"distinct": "v"}}, {"measure": {"percentile": "v", "q": 0.5}})
                    for window in ({}, {"within": "30d"}, {"calendar": "this_month"}, {"between_ago": ["30d", "10d"]})
                )
            ]
        )
    )
    state, changes = UserState(), []
    for i in range(1_200):
        state = decode_state(encode_state(state))
        changes += evaluator.on_event(state, event("Buy", i * 1_000, v=i), i * 1_000)
    assert {change.segment_key for change in changes} >= {"s0", "s1", "s2", "s4", "s5", "s6"}
    assert len(encode_state(state)) < 1 << 20
    assert {change.segment_key for change in evaluator.on_timer(state, 15 * 24 * HOUR)} == {"s3", "s7"}


@pytest.mark.parametrize("threshold", range(560, 640, 5))
def test_repeated_evaluations_of_a_state_agree(threshold: int) -> None:
    """A sketch is not modified by reads: a user above a threshold stays above it."""
    evaluator = evaluator_of({**BUY, "measure": {"percentile": "v", "q": 0.5}, "op": "gte", "value": threshold, "within": "30d"})
    state = UserState()
    for i in range(2 * threshold - 60):
        evaluator.on_event(state, event("Buy", i, v=i), i)
    for i in range(2 * threshold - 60, 2 * threshold + 60):
        evaluator.on_event(state, event("Buy", i, v=i), i)
        kept = state.accumulators.get(next(iter(state.accumulators)))
        assert len({kept.value() for _ in range(5)}) == 1
        assert state.memberships.get("s", Membership()).member is (kept.value() >= threshold)


def nested(levels: int) -> Doc:
    where: Doc = {"everyone": True}
    for _ in range(levels):
        where = {"all": [where, where]} if levels < 8 else {"not": where}
    return where


WIDE_STEP = {"event": "A*", "where": {"any": [{"property": f"p{i}", "op": "matches", "value": "^(a+)+$"} for i in range(2)]}}
TOO_MUCH: dict[str, Doc] = {
    "deep": nested(2_000 // 4),
    "wide": {"any": [{"all": [{"event": f"E{i}-{j}"} for j in range(64)]} for i in range(64)]},
    "a flood of steps": {"all": [{"sequence": [WIDE_STEP] * 64} for _ in range(8)]},
    "a flood of ratios": {"all": [{"measure": {"ratio": {"of": BUY, "to": BUY}}, "op": "gt", "value": 1} for _ in range(64)] * 9},
    "a long list": {"trait": "v", "op": "in", "value": [str(i) for i in range(10_001)]},
    "a long text list": {"trait": "v", "op": "contains", "value": ["x" * 20] * 10_001},
    "a long text": {"trait": "v", "op": "eq", "value": "x" * 262_144},
    "a pattern that explodes": {"trait": "v", "op": "matches", "value": "(((a{30}){30}){30}){30}"},
    "a very long pattern": {"trait": "v", "op": "matches", "value": "(a|b)" * 5_000},
    "a period of nothing": {"regularly": BUY, "every": "1s", "at_least": 1, "of": 10**9},
    "a very long path": {"trait": "a." * 10_000 + "a", "op": "exists"},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_asks_for_too_much_is_refused(name: str) -> None:
    with pytest.raises(DefinitionRefused) as caught:
        parse_segment({"key": "s", "name": "s", "where": TOO_MUCH[name]}, Known())
    assert {fault.code for fault in caught.value.errors} & {"too_deep", "too_wide", "too_large", "wrong_type", "bad_pattern"}


def test_patterns_that_blow_up_elsewhere_take_linear_time() -> None:
    """Twice the text takes about twice the time; a back-tracking engine would not finish the first one."""
    where = {
        "all": [{"trait": "v", "op": "matches", "value": pattern} for pattern in ("^(a+)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]$")]
    }
    evaluator, text = evaluator_of(where), "a" * 30_000 + "!"
    assert evaluator.on_profile(UserState(), {"v": text}, [], 0) == []


def test_the_largest_definitions_cost_their_share_and_no_more() -> None:
    """Measured in links and their contents, not in seconds: a chain for each choice of events would be 300 over 64.

    For steps that compare with earlier ones see `test_segments_room.py`.
    """
    steps = [{"event": "A*", "within": "1h"} for _ in range(63)]
    evaluator, state = evaluator_of({"sequence": [{"event": "A*"}, *steps], "within": "2h"}), UserState()
    for i in range(300):
        evaluator.on_event(state, event("Ab", i * 1_000), i * 1_000)
    assert [membership.member for membership in state.memberships.values()] == [True]
    chain = state.accumulators.get(evaluator.plan.leaves[0])
    assert isinstance(chain, Chain)
    assert [len(link.reached) for link in chain.links] == [1] * EXACT
    assert len(encode_state(state)) < 16_000
    assert len(json.dumps(evaluator.explain(state, "s", 300_000))) < 10_000
