"""The fold, which forgets and indexes and waits, against the oracle, which keeps everything and looks at every instant."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starling_segments import Change, Known, Plan, UserState, compile_plan, decode_state, encode_state, parse_segment
from tests.property.segments.oracle import Happened, Oracle, Seen
from tests.property.segments.stories import Step, crowded_windows, stories


@dataclass
class Folded:
    """The package, driven as a worker drives it; `through_bytes`: the state is stored and read between any two steps."""

    through_bytes: bool
    state: UserState = field(default_factory=UserState)
    plan: Plan = field(default_factory=lambda: compile_plan([]))
    past: list[Happened] = field(default_factory=list)
    versions: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def define(self, step: Step, now: int) -> list[Change]:
        segments = []
        known = Known({key: frozenset() for key, _ in step.definitions})
        for key, where in step.definitions:
            before, version = self.versions.get(key, (None, 0))
            self.versions[key] = (where, version if before == where else version + 1)
            segment = parse_segment({"key": key, "name": key, "where": where}, known)
            segments.append(replace(segment, version=self.versions[key][1]))
        previous, self.plan = self.plan, compile_plan(segments)
        history = self.plan.restricted_to(set(self.plan.leaves) - set(previous.leaves))
        for event in self.past:
            history.fold_history(self.state, event)
        changes = self.plan.on_definition(self.state, now, previous)
        assert self.plan.on_definition(self.state, now, self.plan) == []
        return changes

    def take(self, step: Step, event: Happened | None, now: int) -> list[Change]:
        if self.through_bytes:
            self.state = decode_state(encode_state(self.state))
        if step.kind == "define":
            return self.define(step, now)
        if step.kind == "advance":
            return self.plan.on_timer(self.state, now)
        if step.kind == "profile":
            return self.plan.on_profile(self.state, dict(step.traits or {}), [], now)
        assert event is not None
        self.past.append(event)
        return self.plan.on_event(self.state, event, now)

    def members(self) -> set[str]:
        return {key for key, membership in self.state.memberships.items() if membership.member}


def ask(oracle: Oracle, step: Step, event: Happened | None, now: int) -> list[Seen]:
    if step.kind == "define":
        return oracle.define(dict(step.definitions), now)
    if step.kind == "advance":
        return oracle.advance(now)
    if step.kind == "profile":
        return oracle.profile(dict(step.traits or {}), now)
    assert event is not None
    return oracle.event(event, now)


def seen(changes: list[Change]) -> list[Seen]:
    return [(c.segment_key, c.sequence, c.status, c.effective_at, c.cause) for c in changes]


def in_order(changes: list[Seen]) -> list[Seen]:
    """By instant; within one evaluation the order says nothing."""
    return sorted(changes, key=lambda change: (change[3], change[0], change[1]))


def tell(story: list[Step], follows_events: bool, through_bytes: bool) -> None:
    oracle, folded, now = Oracle({}), Folded(through_bytes), 0
    for step in story:
        now += step.after_ms
        event = step.event and replace(step.event, time_ms=now + step.event.time_ms)
        if event and follows_events:
            now = max(now, event.time_ms)
        changes = seen(folded.take(step, event, now))
        assert in_order(changes) == in_order(ask(oracle, step, event, now)), step
        assert [change[3] for change in changes] == sorted(change[3] for change in changes)
        assert folded.members() == oracle.members()
        due = folded.plan.next_due(folded.state)
        assert due is None or due > now


@settings(max_examples=250, deadline=None)
@given(stories(), st.booleans())
def test_the_fold_announces_what_the_oracle_sees_under_the_event_clock(story: list[Step], through_bytes: bool) -> None:
    tell(story, follows_events=True, through_bytes=through_bytes)


@settings(max_examples=250, deadline=None)
@given(stories(), st.booleans())
def test_the_fold_announces_what_the_oracle_sees_under_the_wall_clock(story: list[Step], through_bytes: bool) -> None:
    """Events may be ahead of stream time: they come into their windows on a timer."""
    tell(story, follows_events=False, through_bytes=through_bytes)


@settings(max_examples=300, deadline=None)
@given(crowded_windows(), st.booleans(), st.booleans())
def test_crowded_windows(story: list[Step], follows_events: bool, through_bytes: bool) -> None:
    tell(story, follows_events=follows_events, through_bytes=through_bytes)
