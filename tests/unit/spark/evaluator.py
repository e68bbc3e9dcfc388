"""The segment language's own evaluator, asked for the values of computed traits."""

from collections.abc import Mapping, Sequence
from typing import Any

from starling_segments import Evaluator as SegmentEvaluator
from starling_segments import Known, UserState, compile_plan, parse_segment
from tests.unit.spark.keeping import PROFILE, event


class Evaluator:
    """One segment for each document, one state for each user; stream time is one for all of them."""

    def __init__(self, documents: Mapping[str, Mapping[str, Any]], timezone: str = "UTC") -> None:
        segments = [
            {"key": key, "name": key, "timezone": timezone, "where": {**document, "op": "exists"}}
            for key, document in documents.items()
        ]
        self.segments = SegmentEvaluator(compile_plan([parse_segment(segment, Known()) for segment in segments]))
        self.states: dict[str, UserState] = {}
        self.now_ms = 0

    def on_event(self, user: str, time_ms: int, name: str, properties: Mapping[str, Any], received_ms: int | None = None) -> None:
        """`received_ms`: what stream time goes by under the wall clock."""
        self.now_ms = max(self.now_ms, time_ms if received_ms is None else received_ms)
        if user not in self.states:
            self.states[user] = UserState(user_id=user)
            self.segments.on_profile(self.states[user], PROFILE, [], self.now_ms)
        self.segments.on_event(self.states[user], event(name, time_ms, properties), self.now_ms)

    def values(self, user: str, until_ms: int) -> dict[str, Any]:
        """What it observes of a user at `until_ms`, by key."""
        self.segments.on_timer(self.states[user], until_ms)
        trees = {one.segment.key: one.tree for one in self.segments.plan.segments}
        return {key: tree.observed(self.states[user], until_ms) for key, tree in trees.items()}


def differences(
    published: Mapping[tuple[str, str], Any],
    documents: Mapping[str, Mapping[str, Any]],
    events: Sequence[tuple[Any, ...]],
    until_ms: int,
) -> list[tuple[str, str, Any, Any]]:
    """Return (user, trait, published, expected) where the last published value differs from an evaluation of all events.

    An event is (user, time, name, properties). No value at all and the value of nothing are the same.
    """
    evaluator = Evaluator(documents)
    for one in events:
        evaluator.on_event(*one)
    expected = {(user, key): value for user in evaluator.states for key, value in evaluator.values(user, until_ms).items()}
    wrong = []
    for user, key in {**published, **expected}:
        found, value = published.get((user, key)), expected.get((user, key))
        if found != value and (found or value):
            wrong.append((user, key, found, value))
    return wrong
