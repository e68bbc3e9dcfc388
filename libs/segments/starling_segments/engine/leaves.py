"""Pure core, hot path: compiled leaves over events. Each knows which segments hang on it, folds, and sets its timer.

Sets of segments are bit masks: bit i is the plan's segment i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Any, Protocol

from starling_segments.aggregates.measure_table import MeasureKind
from starling_segments.engine.future_events import next_waiting, wait
from starling_segments.engine.state import UserState
from starling_segments.language.operators.table import NextChange
from starling_segments.language.tree import Predicate


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


class Seen:
    """An event beside the traits of its profile, for those who compare the two."""

    __slots__ = ("context", "name", "properties", "time_ms", "traits")

    def __init__(self, event: EventView, traits: Mapping[str, Any]) -> None:
        self.name = event.name
        self.time_ms = event.time_ms
        self.properties = event.properties
        self.context = event.context
        self.traits = traits


Take = Callable[[EventView], Any]
"""What a leaf folds of an event; None to ignore it."""
Answer = Callable[[Any, int], Any]
"""(value, instant in epoch ms) -> the truth, or whatever is another object whenever the segment has to be asked again."""


@dataclass(slots=True)
class Question:
    """What one segment asks of a leaf's value.

    `threshold`: the truth, or the falsehood, is "at least that many". `moving`: when time alone changes the truth for a
    value that stays. `back`: which calendar period, counted backwards. `mask`: the segment.
    """

    holds: Answer
    threshold: int | None = None
    moving: NextChange | None = None
    back: int = 0
    mask: int = 0


@dataclass(slots=True)
class EventLeaf:
    """One accumulator over events.

    `window_ms`: what leaves it by age. `pane_ms`: what its accumulator is told with each match. `waits`: a match from
    the future is put off. `timed`: time alone may change an answer.
    """

    id: str
    kind: MeasureKind
    window_ms: int | None
    pane_ms: int
    waits: bool
    take: Take | None
    questions: list[Question] = field(default_factory=list)
    mask: int = 0
    timed: bool = False

    @property
    def reads(self) -> bool:
        """Whether it looks into the events that it folds."""
        return self.take is not None

    def alone(self) -> EventLeaf:
        """The same without segments."""
        return replace(self, questions=[], mask=0, timed=False)

    def ask(self, question: Question) -> None:
        """Another segment hangs on it."""
        self.questions.append(question)
        self.mask |= question.mask
        self.timed = self.timed or self.waits or question.moving is not None

    def fold(self, state: UserState, event: EventView, now: int) -> int:
        """Fold a match; returns the segments whose truth may have changed. A match too old for the window is dropped."""
        payload = None
        if self.take is not None:
            payload = self.take(event)
            if payload is None:
                return 0
        time = event.time_ms
        if time > now and self.waits:
            wait(state, time, self.id, payload)
            return 0
        return self.add(state, time, payload, now)

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """As `fold`, of a match whose time has come."""
        window_ms = self.window_ms
        if window_ms is not None and time <= now - window_ms:
            return 0
        kept = state.accumulators.get(self.id)
        if kept is None:
            return self._begin(state, time, payload, now)
        if window_ms is not None:
            kept.forget(now - window_ms)
        before: Any = kept.value() if self.questions else None
        kept.add(time, payload, self.pane_ms)
        if not self.questions:
            return 0  # nobody asks now: the values before and after may cost more than the match
        after: Any = kept.value()
        changed = 0
        for question in self.questions:  # hot: as `changed`, a call less
            k = question.threshold
            if k is not None:  # two comparisons instead of two calls: the usual question, a tenth of a step
                if (before >= k) is not (after >= k):
                    changed |= question.mask
            elif question.holds(before, now) is not question.holds(after, now):
                changed |= question.mask
        if self.timed:
            self.set_timer(state, kept, now)
        return changed

    def _begin(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """As `add`, of the very first match."""
        # Hot, the usual case: what one match says and when it leaves is known without asking what keeps it.
        kind, window_ms = self.kind, self.window_ms
        begins = kind.lifetime_begins if window_ms is None else kind.windowed_begins
        state.accumulators.begin(self.id, begins(time, payload))
        if not self.questions:
            return 0
        before, after = kind.nothing, kind.lone(time, payload)
        changed, leaving, earliest = 0, None if window_ms is None else time + window_ms, None
        for question in self.questions:
            k, moving = question.threshold, question.moving
            if k is not None:
                turned = (before >= k) is not (after >= k)
            else:
                turned = question.holds(before, now) is not question.holds(after, now)
            if turned:
                changed |= question.mask
            turn = leaving if turned or kind.departs or moving is not None else None
            if moving is not None:
                turn = earlier(turn, moving(after, now))
            if turn is not None and (earliest is None or turn < earliest):
                earliest = turn
        if earliest is not None:
            state.due.note(self.id, earliest)
        return changed

    def changed(self, before: Any, after: Any, now: int) -> int:
        """The segments whose answer is another one after the value went from `before` to `after`."""
        changed = 0
        for question in self.questions:
            if question.holds(before, now) is not question.holds(after, now):
                changed |= question.mask
        return changed

    def expire(self, state: UserState, now: int) -> int:
        """The leaf is due: let go what has left the window; returns the segments whose truth may have changed."""
        kept = state.accumulators.get(self.id)
        if kept is None:
            state.due.note(self.id, None)
            return self.mask
        changed = self.outlive(kept, now)
        if self.is_empty(kept):
            state.accumulators.drop(self.id)
        self.set_timer(state, kept, now)
        return changed

    def outlive(self, kept: Any, now: int) -> int:
        """Settle what is kept; returns the segments whose truth may have changed."""
        before = kept.value()  # what was so up to now: nothing that counts has left since the last time somebody looked
        self.settle(kept, now)
        after, changed = kept.value(), 0
        for question in self.questions:
            if question.moving is not None or question.holds(before, now) is not question.holds(after, now):
                changed |= question.mask
        return changed

    def settle(self, kept: Any, now: int) -> None:
        """Bring what is kept to `now`."""
        if self.window_ms is not None:
            kept.forget(now - self.window_ms)

    def is_empty(self, kept: Any) -> bool:
        """Whether it is as if nothing had ever matched."""
        return bool(kept.value() == self.kind.nothing)

    def observe(self, state: UserState, question: Question, now: int) -> Any:  # noqa: ARG002 - one shape for all leaves
        """The measure at `now`, which must not lie before the state's clock."""
        kept = state.accumulators.get(self.id)
        if kept is None:
            return self.kind.nothing
        self.settle(kept, now)
        return kept.value()

    def next_change(self, question: Question, kept: Any, now: int) -> int | None:
        """The earliest instant after `now` at which the answer can change by itself. `kept` is settled at `now`."""
        moving, window_ms = question.moving, self.window_ms
        turn = None
        if window_ms is not None:
            leaving = kept.next_departure(question.threshold, question.holds if moving is None else _itself, now)
            turn = None if leaving is None else leaving + window_ms
        return turn if moving is None else earlier(turn, moving(kept.value(), now))

    def set_timer(self, state: UserState, kept: Any, now: int) -> None:
        """For the first answer that can change by itself."""
        window_ms, earliest = self.window_ms, None
        for question in self.questions:
            if window_ms is None or question.moving is not None:
                turn = self.next_change(question, kept, now)
            else:  # hot: as `next_change`, a call less
                turn = kept.next_departure(question.threshold, question.holds, now)
                turn = None if turn is None else turn + window_ms
            if turn is not None and (earliest is None or turn < earliest):
                earliest = turn
        state.due.note(self.id, earliest)

    def refresh(self, state: UserState, now: int) -> None:
        """Settle, and set the timer anew, after the plan changed."""
        kept = state.accumulators.get(self.id)
        if kept is not None:
            self.settle(kept, now)
            self.set_timer(state, kept, now)

    def turns(self, state: UserState, question: Question, now: int) -> int | None:
        """As `next_change`, from a state; a match that still waits may change anything."""
        kept = state.accumulators.get(self.id)
        turn = None
        if kept is not None:
            self.settle(kept, now)
            turn = self.next_change(question, kept, now)
        return earlier(turn, next_waiting(state, self.id))


@dataclass(slots=True)
class FixedLeaf(EventLeaf):
    """A lifetime between two instants."""

    after_ms: int | None = None
    before_ms: int | None = None

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """A match outside is dropped."""
        if (self.after_ms is not None and time < self.after_ms) or (self.before_ms is not None and time >= self.before_ms):
            return 0
        return EventLeaf.add(self, state, time, payload, now)


@dataclass(slots=True)
class ShiftingLeaf(EventLeaf):
    """A leaf that does more with time than to forget: it says itself what its answers may do next."""

    def outlive(self, kept: Any, now: int) -> int:
        """Settle what is kept; any answer may be another one."""
        self.settle(kept, now)
        return self.mask

    def set_timer(self, state: UserState, kept: Any, now: int) -> None:
        """For the first answer that can change by itself."""
        earliest = None
        for question in self.questions:
            earliest = earlier(earliest, self.next_change(question, kept, now))
        state.due.note(self.id, earliest)


def earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two instants, as far as there are any."""
    if one is None or (other is not None and other < one):
        return other
    return one


def _itself(value: Any, _now: int) -> Any:
    return value


def threshold_of(predicate: Predicate) -> int | None:
    """The whole number k for which the predicate is the truth, or the falsehood, of "at least k"; None if there is none."""
    if predicate.op not in {"gt", "gte", "lt", "lte"}:
        return None
    limit: float = predicate.operand
    return ceil(limit) if predicate.op in {"gte", "lt"} else floor(limit) + 1
