"""Pure core, hot path: the leaf nodes of event conditions. Each folds its matches and sets its timer.

Sets of segments are bit masks: bit i is segment i of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Any, Protocol

from starling_segments.aggregates.measure_table import MeasureKind
from starling_segments.engine.future_events import defer, next_deferred
from starling_segments.engine.state import UserState
from starling_segments.language.operators.table import NextChange
from starling_segments.language.tree import Predicate


class EventView(Protocol):
    """One accepted event. `properties` and `context` are read only if a leaf node needs them."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def time_ms(self) -> int: ...  # noqa: D102
    @property
    def properties(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def context(self) -> Mapping[str, Any]: ...  # noqa: D102


class EventWithTraits:
    """An event with the traits of its user, for filters that compare the two."""

    __slots__ = ("context", "name", "properties", "time_ms", "traits")

    def __init__(self, event: EventView, traits: Mapping[str, Any]) -> None:
        self.name = event.name
        self.time_ms = event.time_ms
        self.properties = event.properties
        self.context = event.context
        self.traits = traits


Take = Callable[[EventView], Any]
"""Returns the payload that a leaf node folds for an event; None to ignore the event."""
HoldsAt = Callable[[Any, int], Any]
"""(value, instant in epoch ms) -> the truth, or any object that changes whenever the segment has to be evaluated."""


@dataclass(slots=True)
class ValueTest:
    """The test of one segment's condition on the value of a leaf node.

    `threshold`: k, if the truth or its negation is "at least k". `next_change`: for predicates that time alone can change.
    `back`: number of calendar periods back. `mask`: the segment.
    """

    holds: HoldsAt
    threshold: int | None = None
    next_change: NextChange | None = None
    back: int = 0
    mask: int = 0


@dataclass(slots=True)
class EventLeaf:
    """A leaf node with one accumulator over events.

    `window_ms`: age at which matches leave. `pane_ms`: passed to the accumulator with each match. `waits`: future matches are
    stored until their time. `timed`: time alone can change a test.
    """

    id: str
    kind: MeasureKind
    window_ms: int | None
    pane_ms: int
    waits: bool
    take: Take | None
    value_tests: list[ValueTest] = field(default_factory=list)
    mask: int = 0
    timed: bool = False

    @property
    def reads(self) -> bool:
        """Return whether the content of matching events is read."""
        return self.take is not None

    def without_segments(self) -> EventLeaf:
        """Return the leaf node without tests of segments."""
        return replace(self, value_tests=[], mask=0, timed=False)

    def add_test(self, value_test: ValueTest) -> None:
        """Add the test of another segment."""
        self.value_tests.append(value_test)
        self.mask |= value_test.mask
        self.timed = self.timed or self.waits or value_test.next_change is not None

    def fold(self, state: UserState, event: EventView, now: int) -> int:
        """Fold a match; return the mask of the affected segments. A match outside the window is dropped."""
        payload = None
        if self.take is not None:
            payload = self.take(event)
            if payload is None:
                return 0
        time = event.time_ms
        if time > now and self.waits:
            defer(state, time, self.id, payload)
            return 0
        return self.add(state, time, payload, now)

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """Fold a match whose time has been reached; return the mask of the affected segments."""
        window_ms = self.window_ms
        if window_ms is not None and time <= now - window_ms:
            return 0
        accumulator = state.accumulators.get(self.id)
        if accumulator is None:
            return self._add_first(state, time, payload, now)
        if window_ms is not None:
            accumulator.forget(now - window_ms)
        before: Any = accumulator.value() if self.value_tests else None
        accumulator.add(time, payload, self.pane_ms)
        if not self.value_tests:
            return 0  # without tests: the values before and after can cost more than the match itself
        after: Any = accumulator.value()
        changed = 0
        for value_test in self.value_tests:  # hot: `changed` inline
            k = value_test.threshold
            if k is not None:  # two comparisons instead of two calls: the most frequent test, a tenth of a step
                if (before >= k) is not (after >= k):
                    changed |= value_test.mask
            elif value_test.holds(before, now) is not value_test.holds(after, now):
                changed |= value_test.mask
        if self.timed:
            self.set_timer(state, accumulator, now)
        return changed

    def _add_first(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """Fold the first match of a user; return the mask of the affected segments."""
        # Hot, the most frequent case: value and expiry of a single match are known without an accumulator object.
        kind, window_ms = self.kind, self.window_ms
        initialise = kind.lifetime_first if window_ms is None else kind.windowed_first
        state.accumulators.put_first(self.id, initialise(time, payload))
        if not self.value_tests:
            return 0
        before, after = kind.default, kind.single(time, payload)
        changed, leaving, earliest = 0, None if window_ms is None else time + window_ms, None
        for value_test in self.value_tests:
            k, moving = value_test.threshold, value_test.next_change
            if k is not None:
                differs = (before >= k) is not (after >= k)
            else:
                differs = value_test.holds(before, now) is not value_test.holds(after, now)
            if differs:
                changed |= value_test.mask
            change_at = leaving if differs or kind.wakes_on_departure or moving is not None else None
            if moving is not None:
                change_at = earlier(change_at, moving(after, now))
            if change_at is not None and (earliest is None or change_at < earliest):
                earliest = change_at
        if earliest is not None:
            state.due.set(self.id, earliest)
        return changed

    def changed(self, before: Any, after: Any, now: int) -> int:
        """Return the mask of the segments whose truth differs between the two values."""
        changed = 0
        for value_test in self.value_tests:
            if value_test.holds(before, now) is not value_test.holds(after, now):
                changed |= value_test.mask
        return changed

    def expire(self, state: UserState, now: int) -> int:
        """Handle the due timer: drop the matches that left the window; return the mask of the affected segments."""
        accumulator = state.accumulators.get(self.id)
        if accumulator is None:
            state.due.set(self.id, None)
            return self.mask
        changed = self.settle_changes(accumulator, now)
        if self.is_empty(accumulator):
            state.accumulators.drop(self.id)
        self.set_timer(state, accumulator, now)
        return changed

    def merge(self, own: Any, other: Any, now: int) -> None:
        """Merge an accumulator of matches that arrived later into one of matches that arrived earlier. `other` is consumed."""
        if self.window_ms is None:
            own.merge(other)
        else:
            # What has left the window takes no place among the matches that are stored one by one.
            self.settle(own, now)
            self.settle(other, now)
            own.merge(other, self.pane_ms)

    def settle_changes(self, accumulator: Any, now: int) -> int:
        """Settle the accumulator; return the mask of the affected segments."""
        before = accumulator.value()  # the value up to now: each departure that matters has a timer of its own
        self.settle(accumulator, now)
        after, changed = accumulator.value(), 0
        for value_test in self.value_tests:
            if value_test.next_change is not None or value_test.holds(before, now) is not value_test.holds(after, now):
                changed |= value_test.mask
        return changed

    def settle(self, accumulator: Any, now: int) -> None:
        """Drop from the accumulator what has left the window at `now`."""
        if self.window_ms is not None:
            accumulator.forget(now - self.window_ms)

    def is_empty(self, accumulator: Any) -> bool:
        """Return whether the accumulator equals that of a user without matches."""
        return bool(accumulator.value() == self.kind.default)

    def observe(self, state: UserState, value_test: ValueTest, now: int) -> Any:  # noqa: ARG002 - one shape for all leaves
        """Return the value at `now`, which must not be before the state's clock."""
        accumulator = state.accumulators.get(self.id)
        if accumulator is None:
            return self.kind.default
        self.settle(accumulator, now)
        return accumulator.value()

    def next_change(self, value_test: ValueTest, accumulator: Any, now: int) -> int | None:
        """Return the earliest instant after `now` at which time alone changes the truth. The accumulator is settled at `now`."""
        moving, window_ms = value_test.next_change, self.window_ms
        change_at = None
        if window_ms is not None:
            leaving = accumulator.next_departure(value_test.threshold, value_test.holds if moving is None else _itself, now)
            change_at = None if leaving is None else leaving + window_ms
        return change_at if moving is None else earlier(change_at, moving(accumulator.value(), now))

    def set_timer(self, state: UserState, accumulator: Any, now: int) -> None:
        """Set the timer to the first instant at which time alone changes a truth."""
        window_ms, earliest = self.window_ms, None
        for value_test in self.value_tests:
            if window_ms is None or value_test.next_change is not None:
                change_at = self.next_change(value_test, accumulator, now)
            else:  # hot: `next_change` inline
                change_at = accumulator.next_departure(value_test.threshold, value_test.holds, now)
                change_at = None if change_at is None else change_at + window_ms
            if change_at is not None and (earliest is None or change_at < earliest):
                earliest = change_at
        state.due.set(self.id, earliest)

    def refresh(self, state: UserState, now: int) -> None:
        """Settle the accumulator and set the timer, after a switch of plans."""
        accumulator = state.accumulators.get(self.id)
        if accumulator is not None:
            self.settle(accumulator, now)
            self.set_timer(state, accumulator, now)

    def next_change_in(self, state: UserState, value_test: ValueTest, now: int) -> int | None:
        """Return `next_change` for a state; a stored future match counts as a change."""
        accumulator = state.accumulators.get(self.id)
        change_at = None
        if accumulator is not None:
            self.settle(accumulator, now)
            change_at = self.next_change(value_test, accumulator, now)
        return earlier(change_at, next_deferred(state, self.id))


@dataclass(slots=True)
class FixedLeaf(EventLeaf):
    """A leaf node with a window between two fixed dates."""

    after_ms: int | None = None
    before_ms: int | None = None

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """Fold a match inside the dates."""
        if (self.after_ms is not None and time < self.after_ms) or (self.before_ms is not None and time >= self.before_ms):
            return 0
        return EventLeaf.add(self, state, time, payload, now)


@dataclass(slots=True)
class ShiftingLeaf(EventLeaf):
    """A leaf node whose value time changes in other ways than by departures; subclasses define `next_change`."""

    def settle_changes(self, accumulator: Any, now: int) -> int:
        """Settle the accumulator; return the mask of all segments."""
        self.settle(accumulator, now)
        return self.mask

    def set_timer(self, state: UserState, accumulator: Any, now: int) -> None:
        """Set the timer to the first instant at which time alone changes a truth."""
        earliest = None
        for value_test in self.value_tests:
            earliest = earlier(earliest, self.next_change(value_test, accumulator, now))
        state.due.set(self.id, earliest)


def earlier(one: int | None, other: int | None) -> int | None:
    """Return the earlier of two instants; None counts as never."""
    if one is None or (other is not None and other < one):
        return other
    return one


def _itself(value: Any, _now: int) -> Any:
    return value


def threshold_of(predicate: Predicate) -> int | None:
    """Return the integer k if the predicate, or its negation, means "at least k"; None if it does not."""
    if predicate.op not in {"gt", "gte", "lt", "lte"}:
        return None
    limit: float = predicate.operand
    return ceil(limit) if predicate.op in {"gte", "lt"} else floor(limit) + 1
