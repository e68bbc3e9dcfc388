"""Pure core: the leaf node of a sequence. A completed step stays completed: each event stores the stages it completes.

The stages of a sequence are its steps that complete at an instant: events, and pauses (`not … for`). A `not` without `for` is
not a stage but forbids matches. A stage depends on the previous stage only, so an event is stored with the stages that any
chain of matches has reached at it: of two chains that end in the same event, one is enough.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from starling_segments.aggregates.accumulators import EXACT, Chain, Link
from starling_segments.engine.future_events import defer, next_deferred
from starling_segments.engine.leaves import EventLeaf, EventView, EventWithTraits, earlier
from starling_segments.engine.sequences.bounds import MAX_COMBINATION_CHARACTERS, has_room, make_room
from starling_segments.engine.sequences.parts import (
    CACHED_NAMES,
    Bound,
    Capture,
    Named,
    Recorded,
    Slot,
    Stage,
    StepTest,
    by_time,
    in_order,
    thin,
    unpacked,
)  # fmt: skip
from starling_segments.engine.state import UserState

_CHAIN: Final = Chain.__struct_config__.tag


@dataclass(slots=True)
class SequenceLeaf:
    """The leaf node of a sequence. `horizon_ms`: maximum age of events that can be part of a completion; None: unlimited.

    `captures`: the values captured of each event; `slots`: for each stage, the values that later stages compare with.
    """

    id: str
    tests: tuple[StepTest, ...]
    stages: tuple[Stage, ...]
    within_ms: int | None
    horizon_ms: int | None
    captures: tuple[Capture, ...]
    slots: tuple[tuple[Slot, ...], ...]
    needs_traits: bool
    pauses: tuple[int, ...]
    """The stages that time alone can complete."""
    mask: int = 0
    by_name: dict[str, Named] = field(default_factory=dict, compare=False, repr=False)

    @property
    def reads(self) -> bool:
        """Return whether the content of matching events is read."""
        return bool(self.captures) or any(test.now is not None for test in self.tests)

    def without_segments(self) -> SequenceLeaf:
        """Return the leaf node without segments."""
        return replace(self, mask=0)

    def fold(self, state: UserState, event: EventView, now: int) -> int:
        """Fold an event if it matches a step; return the mask of the affected segments."""
        subject: Any = EventWithTraits(event, state.traits) if self.needs_traits else event
        matches, time = 0, event.time_ms
        for bit, test in self._named(event.name):
            if test is None or test(subject, time):
                matches |= bit
        if not matches:
            return 0
        kept = [capture.read(getattr(subject, capture.source)) for capture in self.captures] if self.captures else None
        if time > now:  # rare: a future match is stored with its values by name, as in all formats
            named = None if kept is None else {capture.name: value for capture, value in zip(self.captures, kept, strict=True)}
            defer(state, time, self.id, (matches, named))
            return 0
        return self.add(state, time, (matches, kept), now)

    def _named(self, name: str) -> Named:
        """Return the steps that an event of that name can match.

        Each is its bit, and the test of its filter when the event arrives (None: no filter).
        """
        found = self.by_name.get(name)
        if found is None:
            found = tuple((1 << i, test.now) for i, test in enumerate(self.tests) if test.named(name))
            if len(self.by_name) < CACHED_NAMES:
                self.by_name[name] = found
        return found

    def add(self, state: UserState, time: int, payload: Any, now: int) -> int:
        """Fold a match whose time has been reached. Pauses that have ended are completed later, by `expire`."""
        matches, kept = payload
        if kept.__class__ is dict:
            kept = in_order(kept)
        chain = state.accumulators.get(self.id)
        if chain is None:
            if not self.pauses and len(self.stages) > 1:
                self._start(state, time, matches, kept)
                return 0
            chain = Chain()
            state.accumulators.put(self.id, chain)
        if chain.done is not None and self.within_ms is None:
            return 0
        self._forget(chain, now)
        before = self.holds_of(chain, now)
        links = chain.links
        place = len(links) if not links or time >= links[-1].time else bisect_right(links, time, key=by_time)
        link = Link(time, matches, {}, kept)
        self._break(chain, link)
        links.insert(place, link)
        self._grow(chain, place)
        if self.captures:
            make_room(links, place, self.stages)
        if len(links) > EXACT:
            thin(links)
        self._set_timer(state, chain, now)
        return self.mask if self.holds_of(chain, now) is not before else 0

    def _start(self, state: UserState, time: int, matches: int, kept: Any) -> None:
        """Fold the first match of a user if no pause can start with it and the sequence has more than one stage."""
        # Hot: in the benchmark's mix, an event is the first match of 1.2 sequences and a later one of 0.4.
        reached: dict[str, int] = {}
        first = self.stages[0].step
        if matches >> first & 1:
            later = self.tests[first].later
            if later is None or later(Recorded(kept, {}), time):
                left = self._leave(kept, 0, {})
                if len(left) <= MAX_COMBINATION_CHARACTERS:
                    reached[left] = 1
        state.accumulators.put_first(self.id, (_CHAIN, ((time, matches, reached, kept),), None))

    def expire(self, state: UserState, now: int) -> int:
        """Handle the due timer: complete the pauses that have ended; return the mask of the affected segments."""
        chain = state.accumulators.get(self.id)
        if chain is None:
            state.due.set(self.id, None)
            return self.mask
        first = self._close(chain, now)
        if self.captures:
            make_room(chain.links, first, self.stages)
        self._forget(chain, now)
        if not chain.links and chain.done is None:
            state.accumulators.drop(self.id)
        self._set_timer(state, chain, now)
        return self.mask

    def refresh(self, state: UserState, now: int) -> None:
        """Settle the accumulator and set the timer, after a switch of plans."""
        self.expire(state, now)

    def holds(self, state: UserState, now: int) -> bool:
        """Return whether a chain was completed inside the window."""
        chain = state.accumulators.get(self.id)
        return chain is not None and self.holds_of(chain, now)

    def holds_of(self, chain: Chain, now: int) -> bool:
        """Return whether a chain was completed inside the window."""
        return chain.done is not None and (self.within_ms is None or now - self.within_ms < chain.done)

    def observe(self, state: UserState, now: int) -> dict[str, Any]:  # noqa: ARG002 - one shape for all leaves
        """Return the last completion, and the number of stages that the longest chain has completed."""
        chain = state.accumulators.get(self.id)
        if chain is None:
            return {"completed_at": None, "stages_met": 0, "stages": len(self.stages)}
        every, marks = (1 << len(self.stages)) - 1, 0
        for link in chain.links:
            for reached in link.reached.values():
                marks |= reached & every
        met = len(self.stages) if chain.done is not None else marks.bit_length()
        return {"completed_at": chain.done, "stages_met": met, "stages": len(self.stages)}

    def next_change_in(self, state: UserState, now: int) -> int | None:
        """Return the earliest instant after `now` at which time alone changes the truth."""
        chain = state.accumulators.get(self.id)
        change_at = None if chain is None else self._next_change(chain, now)
        return earlier(change_at, next_deferred(state, self.id))

    def _set_timer(self, state: UserState, chain: Chain, now: int) -> None:
        state.due.set(self.id, self._next_change(chain, now))

    def _next_change(self, chain: Chain, now: int) -> int | None:
        """A pause that has ended but is not completed counts too: it must be completed before the next input."""
        change_at = None
        if chain.done is not None:
            if self.within_ms is None:
                return None
            change_at = chain.done + self.within_ms if chain.done + self.within_ms > now else None
        for k in self.pauses:
            change_at = earlier(change_at, next((over for _, _, over in self._open_pauses(chain, k)), None))
        return change_at

    def _forget(self, chain: Chain, now: int) -> None:
        if chain.done is not None and self.within_ms is None:
            chain.links.clear()
            return
        if self.horizon_ms is not None and chain.links and chain.links[0].time <= now - self.horizon_ms:
            del chain.links[: bisect_right(chain.links, now - self.horizon_ms, key=by_time)]
        if chain.done is not None and self.within_ms is not None and chain.done <= now - self.within_ms:
            chain.done = None

    def _grow(self, chain: Chain, start: int) -> None:
        """Complete stages from link `start` on. A stage depends on earlier links only, so one pass is enough."""
        for i in range(start, len(chain.links)):
            if not self._grow_at(chain, i) and i == start:
                return  # a link without new stages extends no chain

    def _grow_at(self, chain: Chain, i: int) -> bool:
        grown, matches = False, chain.links[i].matches
        for k, stage in enumerate(self.stages):
            if stage.pause_ms is None and matches >> stage.step & 1:
                grown = (self._extend(chain, i, k) if k else self._begin(chain, i)) or grown
        return grown

    def _begin(self, chain: Chain, i: int) -> bool:
        link, stage = chain.links[i], self.stages[0]
        if not self._matches(link, stage.step, {}):
            return False
        return self._mark(chain, i, 0, self._leave(link.kept, 0, {}))

    def _extend(self, chain: Chain, i: int, k: int) -> bool:
        """Extend the chains before this link: of equal combinations, the last link decides."""
        links, stage, previous = chain.links, self.stages[k], self.stages[k - 1]
        link, bit = links[i], 1 << (k - 1)
        tried: set[str] = set()
        between: list[Link] = []
        grown = False
        last = i - 1 if not previous.after_ms else bisect_right(links, link.time - previous.after_ms, key=by_time) - 1
        for j in range(last, -1, -1):
            earlier_link = links[j]
            if stage.within_ms is not None and link.time - earlier_link.time - previous.after_ms > stage.within_ms:
                break
            for left, reached in earlier_link.reached.items():
                if not reached & bit or left in tried:
                    continue
                tried.add(left)
                bound = unpacked(left)
                if self._matches(link, stage.step, bound) and not self._forbidden(between, stage, bound):
                    grown = self._mark(chain, i, k, self._leave(link.kept, k, bound)) or grown
            if not self.captures and tried:
                break
            if any(earlier_link.matches >> step & 1 for step in stage.forbidden):
                if not self.captures:
                    break
                between.append(earlier_link)
        return grown

    def _forbidden(self, between: list[Link], stage: Stage, bound: Bound) -> bool:
        return any(self._matches(link, step, bound) for link in between for step in stage.forbidden)

    def _matches(self, link: Link, step: int, bound: Bound) -> bool:
        if not link.matches >> step & 1:
            return False
        later = self.tests[step].later
        return later is None or later(Recorded(link.kept, bound), link.time)

    def _leave(self, kept: Any, k: int, bound: Bound) -> str:
        """Return the combination after stage `k`, for an event with these captured values."""
        slots = self.slots[k]
        if not slots:
            return ""
        values = {slot: bound.get(slot) if place < 0 else kept[place] for slot, place in slots}
        return msgspec.json.encode(values).decode()

    def _mark(self, chain: Chain, i: int, k: int, left: str) -> bool:
        reached = chain.links[i].reached
        marks = reached.get(left, 0)
        if marks >> k & 1:
            return False
        if left and not marks and not has_room(chain.links, chain.links[i], left):
            return False
        reached[left] = marks | 1 << k
        if k == len(self.stages) - 1:
            done = chain.links[i].time + self.stages[k].after_ms
            chain.done = done if chain.done is None else max(chain.done, done)
        elif self.stages[k + 1].pause_ms is not None:
            self._look_for_breaks(chain, i, k + 1, left)
        return True

    def _open_pauses(self, chain: Chain, k: int) -> Iterator[tuple[int, str, int]]:
        """Iterate over the open pauses `k` in order: (link, combination, end of the pause)."""
        before, settled = 1 << (k - 1), 1 << k | 1 << (len(self.stages) + k)
        after_ms = self.stages[k].after_ms
        for i, link in enumerate(chain.links):
            for left, marks in link.reached.items():
                if marks & before and not marks & settled:
                    yield i, left, link.time + after_ms

    def _look_for_breaks(self, chain: Chain, i: int, k: int, left: str) -> None:
        """Mark pause `k`, which has just started, as broken if it contains a match."""
        links, stage = chain.links, self.stages[k]
        initialise, ends = links[i].time + self.stages[k - 1].after_ms, links[i].time + stage.after_ms
        bound = unpacked(left)
        for place in range(bisect_right(links, initialise, key=by_time), bisect_left(links, ends, key=by_time)):
            if self._matches(links[place], stage.step, bound):
                links[i].reached[left] |= 1 << (len(self.stages) + k)
                return

    def _break(self, chain: Chain, breaker: Link) -> None:
        """Mark all pauses that contain a new link as broken, permanently."""
        for k in self.pauses:
            stage, begins_ms = self.stages[k], self.stages[k - 1].after_ms
            if not breaker.matches >> stage.step & 1:
                continue
            for i, left, ends in list(self._open_pauses(chain, k)):
                link = chain.links[i]
                if link.time + begins_ms < breaker.time < ends and self._matches(breaker, stage.step, unpacked(left)):
                    link.reached[left] |= 1 << (len(self.stages) + k)

    def _close(self, chain: Chain, now: int) -> int:
        """Complete the pauses that have ended at `now`, and the stages after them. Return the first changed link."""
        first = len(chain.links)
        while True:
            over = [(i, k, left) for k in self.pauses for i, left, ends in self._open_pauses(chain, k) if ends <= now]
            if not over:
                return first
            for i, k, left in over:
                passed_on = self._passed_on(left, k)
                if passed_on != left:
                    chain.links[i].reached[left] |= 1 << (len(self.stages) + k)  # the stage is completed under another combination
                self._mark(chain, i, k, passed_on)
            first = min(first, *(i for i, _, _ in over))
            for place in range(first, len(chain.links)):
                self._grow_at(chain, place)

    def _passed_on(self, left: str, k: int) -> str:
        """Return the combination after stage `k`, a pause."""
        slots = self.slots[k]
        bound = unpacked(left)
        return msgspec.json.encode({slot: bound.get(slot) for slot, _ in slots}).decode() if slots else ""


FoldingLeaf: TypeAlias = EventLeaf | SequenceLeaf
"""The leaf nodes that fold events."""
