"""Pure core: segments -> plan. Everything that can be worked out once is worked out here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from starling_segments import paths
from starling_segments.explain import Node, earliest, nothing
from starling_segments.filters import compile_filter
from starling_segments.groups import combine
from starling_segments.identity import filter_facts, leaf_id, measure_facts, predicate_facts, selector_facts
from starling_segments.leaves import EventLeaf, Question, TraitLeaf, first_is_within, threshold_of
from starling_segments.measures import FIRST, MEASURES
from starling_segments.plan import CompiledSegment, Plan, Route, Routes
from starling_segments.state import UserState
from starling_segments.tree import (
    Condition,
    EventMeasure,
    EventSelector,
    Everyone,
    FirstTime,
    Group,
    InSegment,
    Leaf,
    Segment,
    Trait,
)  # fmt: skip


class BrokenPlan(ValueError):
    """The segments do not fit together: one uses another that is not there, or they go round in a loop."""


def compile_plan(segments: Sequence[Segment]) -> Plan:
    """One plan for all the segments: shared leaves once, a segment after those it is built on.

    Raises: BrokenPlan (the parser refuses such definitions one by one; together they may still not fit).
    """
    building = _Building()
    ordered = _in_order(segments)
    dependents = {segment.key: 0 for segment in ordered}
    for i, segment in enumerate(ordered):
        for used in segment.uses:
            dependents[used] |= 1 << i
    compiled = []
    for i, segment in enumerate(ordered):
        tree = building.node(segment.where, "/where", 1 << i)
        building.trees[segment.key] = tree
        compiled.append(CompiledSegment(segment, tree.holds, tree, dependents[segment.key]))
    by_name, by_prefix = building.routes()
    return Plan(tuple(compiled), building.event_leaves, building.trait_leaves, by_name, by_prefix)


def _in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Each after those it uses, otherwise as given."""
    by_key = {segment.key: segment for segment in segments}
    done: dict[str, Segment] = {}

    def visit(key: str, way: tuple[str, ...]) -> None:
        if key in way:
            raise BrokenPlan("segments are built on each other: " + " → ".join([*way, key]))
        if key not in by_key:
            raise BrokenPlan(f"segment {way[-1]!r} uses {key!r}, which is not there")
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
    """What grows while the segments are compiled one by one."""

    event_leaves: dict[str, EventLeaf] = field(default_factory=dict)
    trait_leaves: dict[str, TraitLeaf] = field(default_factory=dict)
    trees: dict[str, Node] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    selectors: dict[str, EventSelector] = field(default_factory=dict)

    def node(self, condition: Condition, pointer: str, segment: int) -> Node:
        if isinstance(condition, Group):
            ends = ["/not"] if condition.kind == "not" else [f"/{condition.kind}/{i}" for i in range(len(condition.parts))]
            children = tuple(self.node(part, pointer + end, segment) for part, end in zip(condition.parts, ends, strict=True))
            holds = combine(condition.kind, [child.holds for child in children])
            return Node(pointer, condition.kind, holds, nothing, earliest(children), children)
        return self.leaf(condition, pointer, segment)

    def leaf(self, leaf: Leaf, pointer: str, segment: int) -> Node:
        match leaf:
            case Trait():
                return self.trait(leaf, pointer, segment)
            case EventMeasure():
                question = Question(leaf.predicate.holds)
                kept = self.measured(leaf)
                if kept.kind.by_ones:
                    question.threshold = threshold_of(leaf.predicate)
                return self.asked(kept, question, ("event", pointer), segment)
            case FirstTime():
                question = Question(first_is_within(leaf.within_ms), within_ms=leaf.within_ms)
                return self.asked(self.first(leaf), question, ("first_time", pointer), segment)
            case InSegment(key):
                return self.nested(key, pointer)
            case Everyone():
                return Node(pointer, "everyone", lambda state, _now: state.known, nothing, nothing)
            case _:
                assert_never(leaf)

    def identity(self, *facts: Any) -> str:
        found = leaf_id(*facts)
        if self.facts.setdefault(found, facts) != facts:
            raise BrokenPlan(f"two leaves share the identity {found}: {facts} and {self.facts[found]}")
        return found

    def measured(self, leaf: EventMeasure) -> EventLeaf:
        measure = leaf.measure
        found = self.identity("event", *measure_facts(measure))
        if found not in self.event_leaves:
            read = paths.reader(measure.path) if measure.path else None
            windowed = measure.within_ms is not None
            self.event_leaves[found] = EventLeaf(found, MEASURES[measure.name], measure.within_ms, windowed, read)
            self.selectors[found] = measure.event
        return self.event_leaves[found]

    def first(self, leaf: FirstTime) -> EventLeaf:
        """Without a window a match counts at once, even one from the future, so that is another leaf."""
        windowed = leaf.within_ms is not None
        found = self.identity("first_time", *selector_facts(leaf.event), windowed)
        if found not in self.event_leaves:
            self.event_leaves[found] = EventLeaf(found, FIRST, None, windowed, None)
            self.selectors[found] = leaf.event
        return self.event_leaves[found]

    def asked(self, leaf: EventLeaf, question: Question, where: tuple[str, str], segment: int) -> Node:
        question.mask = segment
        leaf.questions.append(question)
        leaf.mask |= segment
        kind, pointer = where

        def holds(state: UserState, now: int) -> bool:
            return question.holds(leaf.value(state, now), now)

        def next_change(state: UserState, now: int) -> int | None:
            leaf.value(state, now)  # forgets what has left the window
            kept = state.accumulator(leaf.id)
            turns = [match.time for match in state.waiting if match.leaf == leaf.id]
            turn = None if kept is None else leaf.next_change(question, kept, now)
            return min([*turns, *([] if turn is None else [turn])], default=None)

        return Node(pointer, kind, holds, leaf.value, next_change)

    def trait(self, leaf: Trait, pointer: str, segment: int) -> Node:
        found = self.identity("trait", leaf.path, *predicate_facts(leaf.predicate))
        if found not in self.trait_leaves:
            self.trait_leaves[found] = TraitLeaf(found, paths.reader(leaf.path), leaf.predicate)
        kept = self.trait_leaves[found]
        kept.mask |= segment
        read, test = kept.read, leaf.predicate.holds
        return Node(
            pointer,
            "trait",
            lambda state, now: test(read(state.traits), now),
            lambda state, _now: read(state.traits),
            kept.next_change,
        )

    def nested(self, key: str, pointer: str) -> Node:
        tree = self.trees[key]

        def holds(state: UserState, _now: int) -> bool:
            membership = state.memberships.get(key)
            return membership is not None and membership.member

        return Node(pointer, "segment", holds, lambda _state, _now: key, tree.next_change)

    def routes(self) -> tuple[Mapping[str, Routes], tuple[tuple[str, Routes], ...]]:
        """The ways from an event's name to its leaves: by exact name (fitting prefixes included), and by prefix alone."""
        by_pattern: dict[str, list[EventLeaf]] = {}
        for found, selector in self.selectors.items():
            by_pattern.setdefault(selector.name, []).append(self.event_leaves[found])
        prefixes = {name[:-1]: leaves for name, leaves in by_pattern.items() if name.endswith("*")}
        by_name = {
            name: self.route([*leaves, *(leaf for prefix, more in prefixes.items() if name.startswith(prefix) for leaf in more)])
            for name, leaves in by_pattern.items()
            if not name.endswith("*")
        }
        return by_name, tuple((prefix, self.route(leaves)) for prefix, leaves in prefixes.items())

    def route(self, leaves: Iterable[EventLeaf]) -> Routes:
        """Leaves with the same `where` stand behind one test."""
        behind: dict[str, list[EventLeaf]] = {}
        for leaf in leaves:
            behind.setdefault(repr(filter_facts(self.selectors[leaf.id].where)), []).append(leaf)
        routes = []
        for together in behind.values():
            where = self.selectors[together[0].id].where
            routes.append(Route(None if where is None else compile_filter(where), tuple(together)))
        return tuple(routes)
