"""Generated stories, folded by the package."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from typing import Any

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
)  # fmt: skip
from tests.property.segments.oracle import ExpectedChange, MeasuredEvent, Oracle
from tests.property.segments.stories import LISTS, Step, World, placed
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
