"""Pure core: compiles segments to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from starling_segments.aggregates.measure_table import kind_of, quotient
from starling_segments.compile.leaf_table import InvalidPlan, LeafTable
from starling_segments.engine.compiled import CompiledAccount, CompiledSegment
from starling_segments.engine.event_index import router
from starling_segments.engine.explain import Node, earliest, no_value
from starling_segments.engine.leaves import EventLeaf, ValueTest, earlier, threshold_of
from starling_segments.engine.plan import Plan
from starling_segments.engine.state import UserState
from starling_segments.engine.trait_conditions import held, is_in
from starling_segments.language.identity import condition_facts, meanings
from starling_segments.language.tree import (
    Account,
    Bucket,
    Calendar,
    Condition,
    EventMeasure,
    Everyone,
    FirstTime,
    Group,
    InList,
    InSegment,
    Leaf,
    Measure,
    Ratio,
    Regularly,
    Segment,
    Trait,
    Window,
    leaves,
)  # fmt: skip
from starling_segments.language.tree import Sequence as Steps
from starling_segments.parse.filters import uses_context, uses_traits
from starling_segments.parse.groups import combine
from starling_segments.parse.windows import contains, next_crossing

__all__ = ["InvalidPlan", "compile_plan"]


def compile_plan(segments: Sequence[Segment]) -> Plan:
    """Return one plan for these segments. Equal leaf nodes are shared; each segment follows the segments that it uses.

    Raises: InvalidPlan for segments that are valid one by one but not together.
    """
    ordered = _in_order(segments)
    building = _Building({segment.key: segment for segment in ordered})
    dependents = {segment.key: 0 for segment in ordered}
    for i, segment in enumerate(ordered):
        for used in segment.uses:
            dependents[used] |= 1 << i
    compiled = []
    for i, segment in enumerate(ordered):
        building.mask = 1 << i
        tree = building.node(segment.where, "/where")
        building.trees[segment.key] = tree
        compiled.append(CompiledSegment(segment, tree.holds, tree, dependents[segment.key]))
    table = building.table
    return Plan(
        tuple(compiled),
        table.event_leaves,
        table.trait_leaves,
        router(table.subscriptions),
        building.lists,
        tuple(building.accounts),
        reads_context=any(map(uses_context, table.wheres)),
        reads_traits=any(map(uses_traits, table.wheres)),
    )


def _in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments, each after those that it uses, otherwise in the given order."""
    by_key = {segment.key: segment for segment in segments}
    done: dict[str, Segment] = {}

    def visit(key: str, way: tuple[str, ...]) -> None:
        if key in way:
            raise InvalidPlan("segments are built on each other: " + " → ".join([*way, key]))
        if key not in by_key:
            raise InvalidPlan(f"segment {way[-1]!r} uses {key!r}, which is not there")
        if key in done:
            return
        for used in sorted(by_key[key].uses):
            visit(used, (*way, key))
        done[key] = by_key[key]

    for segment in segments:
        visit(segment.key, ())
    return list(done.values())


@dataclass
class _Building:
    """The compilation in progress. `mask`: bit of the segment that is being compiled."""

    segments: Mapping[str, Segment]
    table: LeafTable = field(default_factory=LeafTable)
    trees: dict[str, Node] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    accounts: list[CompiledAccount] = field(default_factory=list)
    mask: int = 0

    def node(self, condition: Condition, pointer: str) -> Node:
        if isinstance(condition, Group):
            ends = ["/not"] if condition.kind == "not" else [f"/{condition.kind}/{i}" for i in range(len(condition.parts))]
            children = tuple(self.node(part, pointer + end) for part, end in zip(condition.parts, ends, strict=True))
            holds = combine(condition.kind, [child.holds for child in children])
            return Node(pointer, condition.kind, holds, no_value, earliest(children), children)
        return self.leaf(condition, pointer)

    def leaf(self, leaf: Leaf, pointer: str) -> Node:  # noqa: PLR0911 - one line a kind of leaf
        match leaf:
            case Trait():
                return self.trait(leaf, pointer)
            case EventMeasure():
                return self.measure(leaf, pointer)
            case FirstTime():
                return self.value_condition(self.table.first(leaf), first_is_inside(leaf.window), pointer, "first_time")
            case Regularly():
                return self.value_condition(self.table.regular(leaf), keeps_on(leaf), pointer, "regularly")
            case Steps():
                return self.sequence(leaf, pointer)
            case InSegment(key):
                return self.nested(key, pointer)
            case InList(key):
                self.lists[key] = self.lists.get(key, 0) | self.mask
                return Node(pointer, "list", lambda state, _now: key in state.lists, lambda _state, _now: key, no_value)
            case Bucket():
                return _bucket(leaf, pointer)
            case Account():
                return self.account(leaf, pointer)
            case Everyone():
                return Node(pointer, "everyone", lambda state, _now: state.known, no_value, no_value)
            case _:
                assert_never(leaf)

    def measure(self, leaf: EventMeasure, pointer: str) -> Node:
        predicate, measure = leaf.predicate, leaf.measure
        if isinstance(measure, Ratio):
            return self.ratio(leaf, measure, pointer)
        value_test = ValueTest(predicate.holds, next_change=predicate.next_change, back=_back(measure))
        if kind_of(measure).is_count and not isinstance(measure.window, Calendar):
            value_test.threshold = threshold_of(predicate)
        return self.value_condition(self.table.measured(measure), value_test, pointer, "event")

    def value_condition(self, leaf: EventLeaf, value_test: ValueTest, pointer: str, kind: str) -> Node:
        value_test.mask = self.mask
        leaf.add_test(value_test)
        return Node(
            pointer,
            kind,
            lambda state, now: value_test.holds(leaf.observe(state, value_test, now), now),
            lambda state, now: leaf.observe(state, value_test, now),
            lambda state, now: leaf.next_change_in(state, value_test, now),
        )

    def ratio(self, leaf: EventMeasure, ratio: Ratio, pointer: str) -> Node:
        """Any change of the value of either side can change the truth."""
        sides = []
        for part in (ratio.of, ratio.to):
            value_test = ValueTest(lambda value, _now: value, back=_back(part), mask=self.mask)
            side = self.table.measured(part)
            side.add_test(value_test)
            sides.append((side, value_test))
        (of, of_test), (to, to_test) = sides
        test = leaf.predicate.holds

        def observed(state: UserState, now: int) -> float | None:
            return quotient(of.observe(state, of_test, now), to.observe(state, to_test, now))

        return Node(
            pointer,
            "event",
            lambda state, now: test(observed(state, now), now),
            observed,
            lambda state, now: earlier(of.next_change_in(state, of_test, now), to.next_change_in(state, to_test, now)),
        )

    def sequence(self, leaf: Steps, pointer: str) -> Node:
        kept = self.table.sequence(leaf)
        kept.mask |= self.mask
        return Node(pointer, "sequence", kept.holds, kept.observe, kept.next_change_in)

    def trait(self, leaf: Trait, pointer: str) -> Node:
        if leaf.held_for_ms is not None or leaf.held_less_than_ms is not None:
            return self.held(leaf, pointer)
        kept = self.table.trait(leaf)
        kept.mask |= self.mask
        read, test = kept.read, leaf.predicate.holds
        return Node(
            pointer,
            "trait",
            lambda state, now: test(read(state.traits), now),
            lambda state, _now: read(state.traits),
            kept.next_change,
        )

    def held(self, leaf: Trait, pointer: str) -> Node:
        kept, value_test = self.table.held(leaf), held(leaf)
        value_test.mask = self.mask
        kept.add_test(value_test)
        change, read = leaf.predicate.next_change, kept.read

        def changes_at(state: UserState, now: int) -> int | None:
            moved = None if change is None else change(read(state.traits), now)
            return earlier(moved, kept.next_change_in(state, value_test, now))

        return Node(
            pointer,
            "trait",
            lambda state, now: value_test.holds(kept.since(state), now),
            lambda state, _now: {"value": read(state.traits), "since": kept.since(state)},
            changes_at,
        )

    def nested(self, key: str, pointer: str) -> Node:
        tree = self.trees[key]

        def holds(state: UserState, _now: int) -> bool:
            membership = state.memberships.get(key)
            return membership is not None and membership.member

        return Node(pointer, "segment", holds, lambda _state, _now: key, tree.next_change)

    def account(self, leaf: Account, pointer: str) -> Node:
        """The answers of other users arrive through `Evaluator.on_account`; the user's own is evaluated here."""
        inner = self.node(leaf.where, pointer + "/account/where")
        uses = frozenset(part.key for part in leaves(leaf.where) if isinstance(part, InSegment))
        # The id includes the definitions of used segments: under another definition, answers have another meaning.
        found = self.table.identity("account", condition_facts(leaf.where), meanings(uses, self.segments))
        self.accounts.append(CompiledAccount(found, inner.holds, self.mask, uses))

        def observed(state: UserState, now: int) -> dict[str, Any] | None:
            if state.account is None:
                return None
            users, matching = state.account.others.get(found, (0, 0))
            return {"account": state.account.id, "users": users + 1, "matching": matching + inner.holds(state, now)}

        def holds(state: UserState, now: int) -> bool:
            seen = observed(state, now)
            if seen is None:
                return False
            if leaf.match == "all":
                return bool(seen["matching"] == seen["users"])
            return bool(seen["matching"] > 0) is (leaf.match == "any")

        return Node(pointer, "account", holds, observed, inner.next_change, (inner,))


def _back(measure: Measure) -> int:
    return measure.window.back if isinstance(measure.window, Calendar) else 0


def _bucket(leaf: Bucket, pointer: str) -> Node:
    return Node(pointer, "bucket", lambda state, _now: is_in(leaf, state.user_id), lambda _state, _now: leaf.salt, no_value)


def first_is_inside(window: Window | None) -> ValueTest:
    """Return the test whether the first match (epoch ms; None: no match) is inside the window."""
    if window is None:
        return ValueTest(lambda first, _now: first is not None)
    is_inside, change_at = contains(window), next_crossing(window)
    return ValueTest(
        lambda first, now: first is not None and is_inside(first, now),
        next_change=lambda first, now: None if first is None else change_at(first, now),
    )


def keeps_on(leaf: Regularly) -> ValueTest:
    """Return the test whether enough of the last periods contain a match."""
    every, at_least, of = leaf.every_ms, leaf.at_least, leaf.of

    def holds(times: tuple[int, ...], now: int) -> bool:
        if len(times) < at_least:
            return False
        return len({(now - t) // every for t in times if 0 <= now - t < every * of}) >= at_least

    def moving(times: tuple[int, ...], now: int) -> int | None:
        """Each match moves to the next period when its age is a multiple of the period."""
        if len(times) < at_least:
            return None
        truth = holds(times, now)
        changes_at = sorted({t + ((now - t) // every + 1) * every for t in times if now - t < every * of})
        for tried, change_at in enumerate(changes_at, start=1):
            if holds(times, change_at) is not truth or tried == _LOOK_AHEAD:
                return change_at
        return changes_at[-1] if changes_at else None

    return ValueTest(holds, next_change=moving)


_LOOK_AHEAD = 8
"""Instants that are tried; if none changes the truth, the timer is set to the last of them."""
