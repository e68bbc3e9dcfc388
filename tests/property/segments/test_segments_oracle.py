"""The fold against the oracle, which stores everything and evaluates every instant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starling_segments import Change, Evaluator, UserState, decode_state, encode_state, plan_in_force, required_segments
from tests.property.segments.folded import CASES, Folded, ask, in_order, put
from tests.property.segments.oracle import GRID_MS, ExpectedChange, Oracle
from tests.property.segments.stories import WORLDS, Step, World, crowded, sequence_leaves, stories, windowed_leaves


def seen(changes: list[Change]) -> list[ExpectedChange]:
    return [(c.segment_key, c.sequence, c.status, c.effective_at, c.cause) for c in changes]


def run_story(story: list[Step], world: World, follows_events: bool, through_bytes: bool) -> None:
    now = world.base_ms
    oracle = Oracle({}, now=now, zone=world.zone)
    folded = Folded(through_bytes, world.zone, UserState(user_id="u"))
    for planned in story:
        now += planned.after_ms
        step, event = put(planned, world, now)
        if event and follows_events:
            now = max(now, event.time_ms)
        changes = seen(folded.take(step, event, now))
        wanted = ask(oracle, step, event, now)
        assert in_order(changes) == in_order(wanted), step
        assert [change[3] for change in changes] == sorted(change[3] for change in changes)
        assert folded.members() == oracle.members()
        due = folded.evaluator.next_due(folded.state)
        assert due is None or due > now
    explained(folded, oracle, now)


def explained(folded: Folded, oracle: Oracle, now: int) -> None:
    """Check explain for each node of a stored state, as the API calls it: the truth, and no change before the stated instant."""
    running = {one.segment.key: one.segment for one in folded.evaluator.plan.segments}
    for key, where in oracle.definitions.items() if oracle.known else ():
        evaluator = Evaluator(plan_in_force(required_segments([key], running), folded.paused))
        explanation = evaluator.explain(decode_state(encode_state(folded.state)), key, now)
        assert explanation["member"] is (key in oracle.members())
        assert explanation["tree"]["truth"] is explanation["member"] or key in folded.paused
        for node in nodes(explanation["tree"]):
            assert node["truth"] is oracle.holds(part_of({"where": where}, node["node"]), now), node
        turn = explanation["tree"]["next_change_at"]
        assert turn is None or turn > now
        for instant in range(now, min(turn or now + 20 * GRID_MS, now + 20 * GRID_MS), GRID_MS):
            assert oracle.holds(where, instant) is explanation["tree"]["truth"]


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree["children"]:
        yield from nodes(child)


def part_of(document: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


worlds = st.sampled_from(WORLDS)


@settings(max_examples=CASES, deadline=None)
@given(stories(), worlds, st.booleans())
def test_the_fold_changes_what_the_oracle_changes_under_the_event_clock(
    story: list[Step], world: World, through_bytes: bool
) -> None:
    run_story(story, world, follows_events=True, through_bytes=through_bytes)


@settings(max_examples=CASES, deadline=None)
@given(stories(), worlds, st.booleans())
def test_the_fold_changes_what_the_oracle_changes_under_the_wall_clock(
    story: list[Step], world: World, through_bytes: bool
) -> None:
    """Future events enter their windows on a timer."""
    run_story(story, world, follows_events=False, through_bytes=through_bytes)


@settings(max_examples=CASES, deadline=None)
@given(crowded(windowed_leaves), worlds, st.booleans(), st.booleans())
def test_crowded_windows(story: list[Step], world: World, follows_events: bool, through_bytes: bool) -> None:
    run_story(story, world, follows_events=follows_events, through_bytes=through_bytes)


@settings(max_examples=CASES, deadline=None)
@given(crowded(sequence_leaves()), worlds, st.booleans(), st.booleans())
def test_crowded_sequences(story: list[Step], world: World, follows_events: bool, through_bytes: bool) -> None:
    run_story(story, world, follows_events=follows_events, through_bytes=through_bytes)
