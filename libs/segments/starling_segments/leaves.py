"""Pure core, hot path: compiled leaves. Each knows which segments hang on it, folds into its accumulator and sets its timer.

Sets of segments are bit masks: bit i is the plan's segment i.
"""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from operator import attrgetter
from typing import Any, Protocol

from starling_segments.accumulators import EXACT, Accumulator
from starling_segments.measures import MeasureKind
from starling_segments.operators.table import Test
from starling_segments.paths import Reader
from starling_segments.state import UserState, Waiting
from starling_segments.tree import Predicate

_BY_TIME = attrgetter("time")


class EventView(Protocol):
    """One accepted event. `properties` and `context` are only read when a leaf needs them."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def time_ms(self) -> int: ...  # noqa: D102
    @property
    def properties(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def context(self) -> Mapping[str, Any]: ...  # noqa: D102


@dataclass(slots=True)
class Question:
    """What one segment asks of a leaf's value: a predicate, or whether an instant is within `within_ms` of now.

    `threshold`: the truth, or the falsehood, is "at least that many"; `mask`: the segment.
    """

    holds: Test
    threshold: int | None = None
    within_ms: int | None = None
    mask: int = 0


@dataclass(slots=True)
class EventLeaf:
    """One accumulator over events. `window_ms`: what leaves it by age; `waits`: a match from the future is put off."""

    id: str
    kind: MeasureKind
    window_ms: int | None
    waits: bool
    read: Reader | None
    questions: list[Question] = field(default_factory=list)
    mask: int = 0

    def fold(self, state: UserState, event: EventView, now: int) -> int:
        """Fold a match; returns the segments whose truth may have changed. A match too old for the window is dropped."""
        payload = None
        if self.read is not None:
            payload = self.kind.payload(self.read(event.properties))  # type: ignore[misc]
            if payload is None:
                return 0
        time = event.time_ms
        if time > now and self.waits:
            insort_right(state.waiting, Waiting(time, self.id, payload), key=_BY_TIME)
            return 0
        return self.add(state, time, payload, now)

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """As `fold`, of a match whose time has come."""
        window_ms = self.window_ms
        if window_ms is not None and time <= now - window_ms:
            return 0
        kept = state.accumulator(self.id)
        if kept is None:
            kept = state.accumulators[self.id] = self.kind.lifetime() if window_ms is None else self.kind.windowed()
            before: Any = self.kind.nothing
        else:
            if window_ms is not None:
                kept.forget(now - window_ms)
            before = kept.value()
        kept.add(time, payload, (window_ms or 0) // EXACT)
        after: Any = kept.value()
        changed = 0
        for question in self.questions:
            k = question.threshold
            if k is not None:  # two comparisons instead of two calls: the usual question, a tenth of a step
                if (before >= k) is not (after >= k):
                    changed |= question.mask
            elif question.holds(before, now) is not question.holds(after, now):
                changed |= question.mask
        if self.waits:
            self._set_timer(state, kept, now)
        return changed

    def expire(self, state: UserState, now: int) -> int:
        """The leaf is due: forget what has left the window; returns the segments that hang on it."""
        kept = state.accumulator(self.id)
        if kept is None:
            state.due.pop(self.id, None)
            return self.mask
        if self.window_ms is not None:
            kept.forget(now - self.window_ms)
            if kept.value() == self.kind.nothing:
                del state.accumulators[self.id]
        self._set_timer(state, kept, now)
        return self.mask

    def value(self, state: UserState, now: int) -> Any:
        """The measure at `now`, which must not lie before the state's clock."""
        kept = state.accumulator(self.id)
        if kept is None:
            return self.kind.nothing
        if self.window_ms is not None:
            kept.forget(now - self.window_ms)
        return kept.value()

    def next_change(self, question: Question, kept: Accumulator, now: int) -> int | None:
        """The earliest instant after `now` at which the answer can change by itself. Nothing in `kept` is too old."""
        if question.within_ms is not None:
            first = kept.value()
            turn = None if first is None else int(first) + question.within_ms
            return turn if turn is not None and turn > now else None
        if self.window_ms is None:
            return None
        leaving = kept.next_departure(question.threshold, question.holds, now)
        return None if leaving is None else leaving + self.window_ms

    def _set_timer(self, state: UserState, kept: Accumulator, now: int) -> None:
        earliest = None
        for question in self.questions:
            turn = self.next_change(question, kept, now)
            if turn is not None and (earliest is None or turn < earliest):
                earliest = turn
        if earliest is None:
            state.due.pop(self.id, None)
        else:
            state.due[self.id] = earliest

    def refresh(self, state: UserState, now: int) -> None:
        """Set the timer anew, after the plan changed."""
        kept = state.accumulator(self.id)
        if kept is not None:
            if self.window_ms is not None:
                kept.forget(now - self.window_ms)
            self._set_timer(state, kept, now)


@dataclass(slots=True)
class TraitLeaf:
    """One predicate on one trait."""

    id: str
    read: Reader
    predicate: Predicate
    mask: int = 0

    def expire(self, state: UserState, now: int) -> int:
        """The leaf is due: set its next timer; returns the segments that hang on it."""
        self.refresh(state, now)
        return self.mask

    def turn(self, state: UserState, before: Mapping[str, Any], now: int) -> int:
        """The traits were `before`: returns the segments whose truth may have changed."""
        old, new = self.read(before), self.read(state.traits)
        if old is new:
            return 0
        self.refresh(state, now)
        return self.mask if self.predicate.holds(old, now) is not self.predicate.holds(new, now) else 0

    def next_change(self, state: UserState, now: int) -> int | None:
        """The earliest instant after `now` at which the truth can change by itself."""
        change = self.predicate.next_change
        return change(self.read(state.traits), now) if change else None

    def refresh(self, state: UserState, now: int) -> None:
        """Set the timer anew."""
        turn = self.next_change(state, now)
        if turn is None:
            state.due.pop(self.id, None)
        else:
            state.due[self.id] = turn


def threshold_of(predicate: Predicate) -> int | None:
    """The whole number k for which the predicate is the truth, or the falsehood, of "at least k"; None if there is none."""
    limit: float = predicate.operand
    if predicate.op in {"gte", "lt"}:
        return ceil(limit)
    return floor(limit) + 1 if predicate.op in {"gt", "lte"} else None


def first_is_within(within_ms: int | None) -> Test:
    """Whether the first match (epoch ms, None for none) lies inside the window."""
    if within_ms is None:
        return lambda first, _now: first is not None
    return lambda first, now: first is not None and now - within_ms < first <= now
