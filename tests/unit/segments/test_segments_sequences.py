"""The first match of a sequence, by the fast path and by the general one, and events that were ahead of time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from starling_segments import Evaluator, Known, UserState, compile_plan, parse_segment
from starling_segments.aggregates.accumulators import Chain

NOW = 1_767_225_600_000
SAME = {"property": "k", "op": "eq", "value": {"step": 0, "property": "k"}}
A, B, C = {"event": "A"}, {"event": "B"}, {"event": "C"}
SEQUENCES: dict[str, list[dict[str, Any]]] = {
    "one step": [A],
    "two steps": [A, B],
    "the same step twice": [A, A],
    "a gap": [A, {**B, "within": "1h"}],
    "checked when it comes": [{**A, "where": {"property": "k", "op": "eq", "value": "x"}}, B],
    "compared later": [A, {**B, "where": SAME}],
    "a first step that is compared with the profile": [
        {**A, "where": {"all": [{"property": "k", "op": "eq", "value": {"trait": "t"}}]}}, {**B, "where": SAME},
    ],
    "one that must not lie between": [A, {"not": C}, B],
    "a wildcard": [{"event": "A*"}, B],
    "a pause": [A, {"not": B, "for": "30m"}],
    "a pause in the middle": [A, {"not": B, "for": "30m"}, C],
}  # fmt: skip
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("A", {}), ("A", {"k": "x"}), ("A", {"k": "y" * 5000}), ("A", {"k": ["x", {"deep": 1.5}]}),
    ("B", {"k": "x"}), ("B", {}), ("C", {}), ("Ab", {"k": "x"}),
]  # fmt: skip


def _evaluator(steps: list[dict[str, Any]]) -> Evaluator:
    document = {"key": "s", "name": "s", "where": {"sequence": steps, "within": "9d"}}
    return Evaluator(compile_plan([parse_segment(document, Known())]))


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("age_ms", [0, 60_000, 400 * 86_400_000, NOW - 5])
def test_a_first_match_leaves_the_same_either_way(name: str, age_ms: int) -> None:
    evaluator = _evaluator(SEQUENCES[name])
    (leaf,) = evaluator.plan.event_leaves.values()
    for event_name, properties in EVENTS:
        event: Any = SimpleNamespace(name=event_name, time_ms=NOW - age_ms, properties=properties, context={})
        one, other = (UserState(known=True, traits_json='{"t": "x"}') for _ in range(2))
        other.accumulators.put(leaf.id, Chain())  # empty but present: the general path
        masks = [leaf.fold(state, event, NOW) for state in (one, other)]
        assert masks[0] == masks[1]
        kept, same = (state.accumulators.get(leaf.id) for state in (one, other))
        assert (kept or Chain()) == same, (event_name, properties)
        assert one.due == other.due


@pytest.mark.parametrize(
    ("sent_ms", "is_member"),
    [
        pytest.param(NOW + 500, False, id="before it"),
        pytest.param(NOW + 1_000, True, id="at the same instant"),
        pytest.param(NOW - 500, True, id="before the first step"),
    ],
)
def test_an_event_that_was_ahead_follows_a_late_one_at_its_instant(sent_ms: int, is_member: bool) -> None:
    evaluator, state = _evaluator([A, {"not": C}, B]), UserState()

    def sent(name: str, time_ms: int, now: int) -> None:
        event: Any = SimpleNamespace(name=name, time_ms=time_ms, properties={}, context={})
        evaluator.on_event(state, event, now)

    sent("A", NOW, NOW)
    sent("B", NOW + 1_000, NOW)
    sent("C", sent_ms, NOW + 1_000)
    assert state.memberships.keys() == ({"s"} if is_member else set())
    assert state.waiting == []
    assert (evaluator.next_due(state) or NOW + 1_001) > NOW + 1_000
