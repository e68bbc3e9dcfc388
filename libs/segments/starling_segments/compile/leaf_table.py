"""Pure core: compiles the conditions of definitions to leaf nodes, one for each id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.aggregates.accumulators import EXACT
from starling_segments.aggregates.measure_table import BEATS, FIRST, MeasureKind, kind_of
from starling_segments.compile.sequence_plan import compile_sequence, immediate_filter
from starling_segments.engine.event_index import Subscription, any_of, subscription
from starling_segments.engine.leaves import EventLeaf, FixedLeaf, Take
from starling_segments.engine.sequences.sequence import FoldingLeaf, SequenceLeaf
from starling_segments.engine.trait_conditions import HeldLeaf, TraitLeaf
from starling_segments.engine.window_leaves import CalendarLeaf, DelayedLeaf
from starling_segments.language import paths
from starling_segments.language.identity import leaf_id, measure_facts, predicate_facts, selector_facts, sequence_facts
from starling_segments.language.periods import day_number
from starling_segments.language.tree import (
    Ago,
    Calendar,
    EventSelector,
    Filter,
    FirstTime,
    Fixed,
    Measure,
    Regularly,
    Sequence,
    Trait,
    Within,
)  # fmt: skip


class InvalidPlan(ValueError):
    """The segments cannot form one plan: one uses a segment that is missing, or the uses form a cycle."""


@dataclass
class LeafTable:
    """The leaf nodes compiled so far."""

    event_leaves: dict[str, FoldingLeaf] = field(default_factory=dict)
    trait_leaves: dict[str, TraitLeaf | HeldLeaf] = field(default_factory=dict)
    subscriptions: list[Subscription] = field(default_factory=list)
    wheres: list[Filter | None] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def identity(self, *facts: Any) -> str:
        """Return the id of these facts. Raises: InvalidPlan if other facts have the same id."""
        found = leaf_id(*facts)
        if self.facts.setdefault(found, facts) != facts:
            raise InvalidPlan(f"two leaf nodes have the same id {found}: {facts} and {self.facts[found]}")
        return found

    def measured(self, measure: Measure) -> Any:
        """Return the leaf node of an event measure."""
        if measure.name == "first_time" and measure.window is None:
            return self.first(FirstTime(measure.event))
        found = self.identity("event", *measure_facts(measure))
        if found not in self.event_leaves:
            self._add(_event_leaf(found, measure), measure.event)
        return self.event_leaves[found]

    def first(self, leaf: FirstTime) -> Any:
        """Return the leaf node of a first match. Whether future matches wait depends on the window and is part of the id."""
        waits = isinstance(leaf.window, Within | Ago)
        found = self.identity("first_time", *selector_facts(leaf.event), waits)
        if found not in self.event_leaves:
            self._add(EventLeaf(found, FIRST, None, 0, waits, None), leaf.event)
        return self.event_leaves[found]

    def regular(self, leaf: Regularly) -> Any:
        """Return the leaf node of a `regularly` condition."""
        reach_ms = leaf.every_ms * leaf.of
        found = self.identity("regularly", *selector_facts(leaf.event), leaf.every_ms, leaf.of)
        if found not in self.event_leaves:
            self._add(EventLeaf(found, BEATS, reach_ms, leaf.every_ms, True, None), leaf.event)
        return self.event_leaves[found]

    def sequence(self, sequence: Sequence) -> SequenceLeaf:
        """Return the leaf node of a sequence."""
        found = self.identity("sequence", *sequence_facts(sequence))
        if found not in self.event_leaves:
            leaf = self.event_leaves[found] = compile_sequence(found, sequence)
            self.wheres += [step.event.where for step in sequence.steps]
            for pattern in dict.fromkeys(step.event.name for step in sequence.steps):
                wheres = [immediate_filter(step.event.where) for step in sequence.steps if step.event.name == pattern]
                self.subscriptions.append(subscription(pattern, leaf, any_of(wheres)))
        return self.event_leaves[found]  # type: ignore[return-value]

    def trait(self, leaf: Trait) -> TraitLeaf:
        """Return the leaf node of a predicate on a trait."""
        found = self.identity("trait", leaf.path, *predicate_facts(leaf.predicate))
        if found not in self.trait_leaves:
            self.trait_leaves[found] = TraitLeaf(found, paths.reader(leaf.path), leaf.predicate)
        return self.trait_leaves[found]  # type: ignore[return-value]

    def held(self, leaf: Trait) -> HeldLeaf:
        """Return the leaf node of a trait condition with `held_for` or `held_less_than`."""
        found = self.identity("held", leaf.path, *predicate_facts(leaf.predicate))
        if found not in self.trait_leaves:
            self.trait_leaves[found] = HeldLeaf(found, paths.reader(leaf.path), leaf.predicate)
        return self.trait_leaves[found]  # type: ignore[return-value]

    def _add(self, leaf: FoldingLeaf, selector: EventSelector) -> None:
        self.event_leaves[leaf.id] = leaf
        self.wheres.append(selector.where)
        self.subscriptions.append(subscription(selector.name, leaf, selector.where))


def _event_leaf(found: str, measure: Measure) -> EventLeaf:
    kind = kind_of(measure)
    take = _take(measure, kind)
    match measure.window:
        case Within(length):
            return EventLeaf(found, kind, length, length // EXACT, True, take)
        case Ago(older, newer):
            return DelayedLeaf(found, kind, older, max(1, (older - newer) // EXACT), True, take, newer_ms=newer)
        case Calendar(unit, _, zone):
            return CalendarLeaf(found, kind, None, 0, False, take, unit=unit, zone=ZoneInfo(zone))
        case Fixed(after, before):
            return FixedLeaf(found, kind, None, 0, False, take, after_ms=after, before_ms=before)
        case None:
            return EventLeaf(found, kind, None, 0, False, take)


def _take(measure: Measure, kind: MeasureKind) -> Take | None:
    if measure.zone is not None:
        zone = ZoneInfo(measure.zone)
        return lambda event: day_number(event.time_ms, zone)
    if measure.path is None or kind.payload is None:
        return None
    read, payload = paths.reader(measure.path), kind.payload
    return _taking(read, payload)


def _taking(read: Callable[[Any], Any], payload: Callable[[Any], Any]) -> Take:
    return lambda event: payload(read(event.properties))
