"""Pure core: the leaf nodes of `between_ago` and `calendar` windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.aggregates.accumulators import Delayed, Periods
from starling_segments.engine.leaves import EventLeaf, ShiftingLeaf, ValueTest, earlier
from starling_segments.engine.state import UserState
from starling_segments.language.periods import span_of
from starling_segments.language.tree import Unit

_DELAYED: Any = Delayed.__struct_config__.tag


@dataclass(slots=True)
class DelayedLeaf(ShiftingLeaf):
    """The leaf node of `between_ago`. `window_ms` is the longer duration, `newer_ms` the shorter one."""

    newer_ms: int = 0

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """Fold a match; it counts when it is `newer_ms` old."""
        if time <= now - (self.window_ms or 0):
            return 0
        accumulator = state.accumulators.get(self.id)
        if accumulator is None:
            if time > now - self.newer_ms:
                self._add_first_waiting(state, time, payload, now)
                return 0
            accumulator = Delayed(self.kind.windowed())
            state.accumulators.put(self.id, accumulator)
        self.settle(accumulator, now)
        before = accumulator.inner.value() if self.value_tests else None
        if time <= now - self.newer_ms:
            accumulator.inner.add(time, payload, self.pane_ms)
        else:
            accumulator.put(time, payload, self.pane_ms, self.kind.lifetime)
        if not self.value_tests:
            return 0
        changed = self.changed(before, accumulator.inner.value(), now)
        self.set_timer(state, accumulator, now)
        return changed

    def _add_first_waiting(self, state: UserState, time: int, payload: Any, now: int) -> None:
        """Fold the first match of a user if it is younger than `newer_ms`."""
        # Hot, the most frequent case: the window is empty before and after.
        state.accumulators.put_first(self.id, (_DELAYED, self.kind.windowed(), [time], [payload], []))
        if not self.value_tests:
            return
        earliest: int | None = time + self.newer_ms
        for value_test in self.value_tests:
            if value_test.next_change is not None:
                earliest = earlier(earliest, value_test.next_change(self.kind.default, now))
        state.due.set(self.id, earliest)

    def merge(self, own: Any, other: Any, now: int) -> None:
        """Merge an accumulator of matches that arrived later into one of matches that arrived earlier."""
        self.settle(own, now)
        self.settle(other, now)
        own.merge(other, self.pane_ms, self.kind.lifetime)

    def settle(self, accumulator: Any, now: int) -> None:
        """Move matches into the window and drop those that have left it."""
        accumulator.admit(now - self.newer_ms, self.pane_ms)
        accumulator.inner.forget(now - (self.window_ms or 0))

    def is_empty(self, accumulator: Any) -> bool:
        """Return whether the accumulator equals that of a user without matches."""
        return not (accumulator.times or accumulator.panes) and bool(accumulator.inner.value() == self.kind.default)

    def observe(self, state: UserState, value_test: ValueTest, now: int) -> Any:  # noqa: ARG002
        """Return the value at `now`."""
        accumulator = state.accumulators.get(self.id)
        if accumulator is None:
            return self.kind.default
        self.settle(accumulator, now)
        return accumulator.inner.value()

    def next_change(self, value_test: ValueTest, accumulator: Any, now: int) -> int | None:
        """Return when the next match enters or leaves the window."""
        coming = accumulator.times[0] + self.newer_ms if accumulator.times else None
        if accumulator.panes:
            coming = earlier(coming, accumulator.panes[0][0] + self.newer_ms)
        return earlier(coming, EventLeaf.next_change(self, value_test, accumulator.inner, now))


@dataclass(slots=True)
class CalendarLeaf(ShiftingLeaf):
    """The leaf node of `calendar`: one accumulator for each of the current, previous and future periods."""

    unit: Unit = "day"
    zone: ZoneInfo = ZoneInfo("UTC")  # noqa: RUF009 - an immutable value

    def add_test(self, value_test: ValueTest) -> None:
        """Add the test of another segment."""
        EventLeaf.add_test(self, value_test)
        self.timed = True

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """Fold a match into the accumulator of its period."""
        start, oldest = span_of(self.unit, self.zone, time)[0], self._oldest(now)
        if start < oldest:
            return 0
        accumulator = state.accumulators.get(self.id)
        if accumulator is None:
            accumulator = Periods()
            state.accumulators.put(self.id, accumulator)
        accumulator.forget(oldest)
        inner = accumulator.at(start)
        before = self.kind.default if inner is None or not self.value_tests else inner.value()
        if inner is None:
            inner = self.kind.lifetime()
            accumulator.put(start, inner)
        inner.add(time, payload, self.pane_ms)
        if not self.value_tests:
            return 0
        after, changed = inner.value(), 0
        for value_test in self.value_tests:
            if self._visible(value_test.back, now) == start and value_test.holds(before, now) is not value_test.holds(after, now):
                changed |= value_test.mask
        self.set_timer(state, accumulator, now)
        return changed

    def merge(self, own: Any, other: Any, now: int) -> None:
        """Merge an accumulator of matches that arrived later into one of matches that arrived earlier."""
        self.settle(own, now)
        self.settle(other, now)
        own.merge(other)

    def settle(self, accumulator: Any, now: int) -> None:
        """Drop the periods before the previous one."""
        accumulator.forget(self._oldest(now))

    def is_empty(self, accumulator: Any) -> bool:
        """Return whether the accumulator equals that of a user without matches."""
        return not accumulator.starts

    def observe(self, state: UserState, value_test: ValueTest, now: int) -> Any:
        """Return the value of the period of the test."""
        accumulator = state.accumulators.get(self.id)
        return self.kind.default if accumulator is None else self._value(accumulator, value_test.back, now)

    def next_change(self, value_test: ValueTest, accumulator: Any, now: int) -> int | None:
        """Return the end of the first period after which the truth changes."""
        value = self._value(accumulator, value_test.back, now)
        truth = value_test.holds(value, now)
        moving = None if value_test.next_change is None else value_test.next_change(value, now)
        instant = now
        while accumulator.starts and self._visible(value_test.back, instant) <= accumulator.starts[-1]:
            instant = span_of(self.unit, self.zone, instant)[1]
            after = self._value(accumulator, value_test.back, instant)
            if value_test.next_change is not None or value_test.holds(after, instant) is not truth:
                return earlier(moving, instant)
        return moving

    def _value(self, accumulator: Periods, back: int, now: int) -> Any:
        inner = accumulator.at(self._visible(back, now))
        return self.kind.default if inner is None else inner.value()

    def _visible(self, back: int, now: int) -> int:
        start = span_of(self.unit, self.zone, now)[0]
        for _ in range(back):
            start = span_of(self.unit, self.zone, start - 1)[0]
        return start

    def _oldest(self, now: int) -> int:
        return self._visible(1, now)
