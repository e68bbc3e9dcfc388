"""Pure core: leaves over events whose window lies in the past, or moves from one calendar period to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.aggregates.accumulators import Delayed, Periods
from starling_segments.engine.leaves import EventLeaf, Question, ShiftingLeaf, earlier
from starling_segments.engine.state import UserState
from starling_segments.language.periods import span_of
from starling_segments.language.tree import Unit

_DELAYED: Any = Delayed.__struct_config__.tag


@dataclass(slots=True)
class DelayedLeaf(ShiftingLeaf):
    """`between_ago`: `window_ms` is the longer duration, `newer_ms` the shorter one."""

    newer_ms: int = 0

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """A match waits until it is `newer_ms` old."""
        if time <= now - (self.window_ms or 0):
            return 0
        kept = state.accumulators.get(self.id)
        if kept is None:
            if time > now - self.newer_ms:
                self._begin_waiting(state, time, payload, now)
                return 0
            kept = Delayed(self.kind.windowed())
            state.accumulators.put(self.id, kept)
        self.settle(kept, now)
        before = kept.inner.value() if self.questions else None
        if time <= now - self.newer_ms:
            kept.inner.add(time, payload, self.pane_ms)
        else:
            kept.put(time, payload, self.pane_ms, self.kind.lifetime)
        if not self.questions:
            return 0
        changed = self.changed(before, kept.inner.value(), now)
        self.set_timer(state, kept, now)
        return changed

    def _begin_waiting(self, state: UserState, time: int, payload: Any, now: int) -> None:
        """As `add`, of a very first match that has to get older."""
        # Hot, the usual case: nothing is in the window before or after.
        state.accumulators.begin(self.id, (_DELAYED, self.kind.windowed(), [time], [payload], []))
        if not self.questions:
            return
        earliest: int | None = time + self.newer_ms
        for question in self.questions:
            if question.moving is not None:
                earliest = earlier(earliest, question.moving(self.kind.nothing, now))
        state.due.note(self.id, earliest)

    def settle(self, kept: Any, now: int) -> None:
        """Let in what is old enough, let go what is too old."""
        kept.admit(now - self.newer_ms, self.pane_ms)
        kept.inner.forget(now - (self.window_ms or 0))

    def is_empty(self, kept: Any) -> bool:
        """Whether it is as if nothing had ever matched."""
        return not (kept.times or kept.panes) and bool(kept.inner.value() == self.kind.nothing)

    def observe(self, state: UserState, question: Question, now: int) -> Any:  # noqa: ARG002
        """The measure at `now`."""
        kept = state.accumulators.get(self.id)
        if kept is None:
            return self.kind.nothing
        self.settle(kept, now)
        return kept.inner.value()

    def next_change(self, question: Question, kept: Any, now: int) -> int | None:
        """The next match to come in or to leave."""
        coming = kept.times[0] + self.newer_ms if kept.times else None
        if kept.panes:
            coming = earlier(coming, kept.panes[0][0] + self.newer_ms)
        return earlier(coming, EventLeaf.next_change(self, question, kept.inner, now))


@dataclass(slots=True)
class CalendarLeaf(ShiftingLeaf):
    """`calendar`: an accumulator for each period that is running, lies just behind, or is still to come."""

    unit: Unit = "day"
    zone: ZoneInfo = ZoneInfo("UTC")  # noqa: RUF009 - an immutable value

    def ask(self, question: Question) -> None:
        """Another segment hangs on it."""
        EventLeaf.ask(self, question)
        self.timed = True

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """A match goes to its own period."""
        start, oldest = span_of(self.unit, self.zone, time)[0], self._oldest(now)
        if start < oldest:
            return 0
        kept = state.accumulators.get(self.id)
        if kept is None:
            kept = Periods()
            state.accumulators.put(self.id, kept)
        kept.forget(oldest)
        inner = kept.at(start)
        before = self.kind.nothing if inner is None or not self.questions else inner.value()
        if inner is None:
            inner = self.kind.lifetime()
            kept.put(start, inner)
        inner.add(time, payload, self.pane_ms)
        if not self.questions:
            return 0
        after, changed = inner.value(), 0
        for question in self.questions:
            if self._visible(question.back, now) == start and question.holds(before, now) is not question.holds(after, now):
                changed |= question.mask
        self.set_timer(state, kept, now)
        return changed

    def settle(self, kept: Any, now: int) -> None:
        """Let go what lies further back than the period before this one."""
        kept.forget(self._oldest(now))

    def is_empty(self, kept: Any) -> bool:
        """Whether it is as if nothing had ever matched."""
        return not kept.starts

    def observe(self, state: UserState, question: Question, now: int) -> Any:
        """The measure of the period that the question is about."""
        kept = state.accumulators.get(self.id)
        return self.kind.nothing if kept is None else self._value(kept, question.back, now)

    def next_change(self, question: Question, kept: Any, now: int) -> int | None:
        """The end of the first period after which the answer is another one."""
        value = self._value(kept, question.back, now)
        truth = question.holds(value, now)
        moving = None if question.moving is None else question.moving(value, now)
        instant = now
        while kept.starts and self._visible(question.back, instant) <= kept.starts[-1]:
            instant = span_of(self.unit, self.zone, instant)[1]
            after = self._value(kept, question.back, instant)
            if question.moving is not None or question.holds(after, instant) is not truth:
                return earlier(moving, instant)
        return moving

    def _value(self, kept: Periods, back: int, now: int) -> Any:
        inner = kept.at(self._visible(back, now))
        return self.kind.nothing if inner is None else inner.value()

    def _visible(self, back: int, now: int) -> int:
        start = span_of(self.unit, self.zone, now)[0]
        for _ in range(back):
            start = span_of(self.unit, self.zone, start - 1)[0]
        return start

    def _oldest(self, now: int) -> int:
        return self._visible(1, now)
