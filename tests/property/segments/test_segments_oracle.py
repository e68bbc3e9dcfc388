"""The fold against the oracle, which stores everything and evaluates every instant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starling_segments import (
    AccountTally,
    Change,
    Evaluator,
    Known,
    Segment,
    UserState,
    compile_plan,
    decode_state,
    encode_state,
    parse_segment,
    plan_in_force,
    required_segments,
)  # fmt: skip
from tests.property.segments.oracle import GRID_MS, ExpectedChange, MeasuredEvent, Oracle
from tests.property.segments.stories import (
    LISTS,
    WORLDS,
    Step,
    World,
    crowded,
    placed,
    sequence_leaves,
    stories,
    windowed_leaves,
)  # fmt: skip
from tests.property.segments.wide import located

CASES = int(os.environ.get("STARLING_ORACLE_CASES", "150"))
"""Number of stories in each test."""
Past = tuple[str, Any, int]
"""(event or profile, content, stream time)"""


@dataclass
class Folded:
    """The package as a worker uses it; `through_bytes`: the state is serialised between steps."""

    through_bytes: bool
    zone: str
    state: UserState
    evaluator: Evaluator = field(default_factory=lambda: Evaluator(compile_plan([])))
    past: list[Past] = field(default_factory=list)
    versions: dict[str, tuple[Any, int]] = field(default_factory=dict)
    others: tuple[int, int] | None = None
    segments: list[Segment] = field(default_factory=list)
    paused: frozenset[str] = frozenset()

    def rule(self, step: Step, now: int) -> list[Change]:
        if step.kind == "define":
            return self.define(step.definitions, now)
        self.paused = step.held
        return self.switch(now)

    def define(self, definitions: tuple[tuple[str, Any], ...], now: int) -> list[Change]:
        segments = []
        known = Known({key: frozenset() for key, _ in definitions}, lists=frozenset(LISTS), accounts=True)
        for key, where in definitions:
            before, version = self.versions.get(key, (None, 0))
            is_same = json.dumps(before) == json.dumps(where)  # Python holds 1 and true for equal
            self.versions[key] = (where, version if is_same else version + 1)
            document = {"key": key, "name": key, "timezone": self.zone, "where": where}
            segments.append(replace(parse_segment(document, known), version=self.versions[key][1]))
        self.segments, self.paused = segments, self.paused.intersection(known.segments)
        return self.switch(now)

    def switch(self, now: int) -> list[Change]:
        previous, self.evaluator = self.evaluator, Evaluator(plan_in_force(self.segments, self.paused))
        self.remember(set(self.evaluator.plan.leaves) - set(previous.plan.leaves), now)
        self.state.account = self.tally(previous)  # whose last timers have not fired yet
        changes = self.evaluator.on_definition(self.state, now, previous)
        assert self.evaluator.on_definition(self.state, now, self.evaluator) == []
        return changes

    def remember(self, fresh: set[str], now: int) -> None:
        """Fold history into the new leaf nodes, in order of arrival."""
        history, past = Evaluator(self.evaluator.plan.restricted_to(fresh)), UserState(user_id=self.state.user_id)
        for kind, what, at in self.past:
            if kind == "event":
                history.on_event(past, what, at)
            else:
                history.on_profile(past, what, [], at)
        history.on_timer(past, now)
        self.state.accumulators.take_over(past.accumulators)
        self.state.waiting = sorted([*self.state.waiting, *past.waiting], key=lambda match: match.time)

    def tally(self, previous: Evaluator | None = None) -> AccountTally | None:
        evaluators = (self.evaluator,) if previous is None else (self.evaluator, previous)
        answers = {condition.id: self.others for evaluator in evaluators for condition in evaluator.plan.accounts}
        return None if self.others is None else AccountTally("acme", answers)  # type: ignore[arg-type]

    def take(self, step: Step, event: MeasuredEvent | None, now: int) -> list[Change]:
        if self.through_bytes:
            self.state = decode_state(encode_state(self.state))
        if step.kind in ("define", "hold"):
            return self.rule(step, now)
        if step.kind == "advance":
            return self.evaluator.on_timer(self.state, now)
        if step.kind == "list":
            self.past += [("profile", dict(self.state.traits), now)] if step.listed[1] else []
            return self.evaluator.on_list(self.state, *step.listed, now)
        if step.kind == "account":
            self.others = step.others
            self.past.append(("profile", dict(self.state.traits), now))
            return self.evaluator.on_account(self.state, self.tally(), now)
        if step.kind == "profile":
            self.past.append(("profile", dict(step.traits or {}), now))
            return self.evaluator.on_profile(self.state, dict(step.traits or {}), [], now)
        assert event is not None
        self.past.append(("event", event, now))
        return self.evaluator.on_event(self.state, event, now)

    def members(self) -> set[str]:
        return {key for key, membership in self.state.memberships.items() if membership.member}


def ask(oracle: Oracle, step: Step, event: MeasuredEvent | None, now: int) -> list[ExpectedChange]:
    if step.kind in ("define", "hold"):
        return oracle.hold(step.held, now) if step.kind == "hold" else oracle.define(dict(step.definitions), now)
    if step.kind == "advance":
        return oracle.advance(now)
    if step.kind == "list":
        return oracle.listed(*step.listed, now)
    if step.kind == "account":
        return oracle.account(step.others, now)
    if step.kind == "profile":
        return oracle.profile(dict(step.traits or {}), now)
    assert event is not None
    return oracle.event(event, now)


def seen(changes: list[Change]) -> list[ExpectedChange]:
    return [(c.segment_key, c.sequence, c.status, c.effective_at, c.cause) for c in changes]


def in_order(changes: list[ExpectedChange]) -> list[ExpectedChange]:
    """Sort by instant; the order within one evaluation is arbitrary."""
    return sorted(changes, key=lambda change: (change[3], change[0], change[1]))


def put(step: Step, world: World, now: int) -> tuple[Step, MeasuredEvent | None]:
    """Return the step with its instants moved into the world."""
    traits = step.traits and located(step.traits, world.zone, world.base_ms)
    definitions = tuple((key, placed(where, world)) for key, where in step.definitions)
    event = step.event and replace(
        step.event,
        time_ms=now + step.event.time_ms,
        properties=located(step.event.properties, world.zone, world.base_ms),
        context=located(step.event.context, world.zone, world.base_ms),
    )
    return replace(step, traits=traits, definitions=definitions), event


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
