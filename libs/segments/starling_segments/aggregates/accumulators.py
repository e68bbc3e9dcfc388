"""Pure core: all types of accumulators in a user's state, each with a tag of its own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from starling_segments.aggregates.distributions import Days, Frequencies, Quantiles
from starling_segments.aggregates.lifetime import (
    EXACT,
    Earliest,
    FirstValue,
    Highest,
    Holds,
    LastValue,
    Latest,
    Lowest,
    Mean,
    Tally,
    Total,
    Values,
)  # fmt: skip
from starling_segments.aggregates.merging import merge_matches
from starling_segments.aggregates.panes import MAX_BYTES, encoded_size, merged, spill, thin_panes
from starling_segments.aggregates.sliding import SlidingCount, SlidingDistinct, SlidingSum
from starling_segments.aggregates.sliding_distributions import SlidingFrequencies, SlidingQuantiles, thin_frequencies
from starling_segments.aggregates.sliding_measures import (
    SlidingDays,
    SlidingFirst,
    SlidingFirstTime,
    SlidingLast,
    SlidingLastTime,
    SlidingMaximum,
    SlidingMean,
    SlidingMinimum,
)  # fmt: skip
from starling_segments.aggregates.values import is_large

__all__ = ["EXACT", "Accumulator", "Beats", "Chain", "Delayed", "Holds", "Link", "Measured", "Periods", "Since"]

_UNSEEN = 8
"""Number of new panes between two checks of their size: a check takes longer than a match."""


class Delayed(msgspec.Struct, array_like=True, tag=40, gc=False):
    """`between_ago`: matches wait in `times` and `payloads`, ascending, until they are old enough for `inner`.

    The newest `EXACT` of them are stored one by one and older ones in `panes`, (time of the last match, lifetime accumulator); a
    pane enters and leaves the window as a whole, with its last match.
    """

    inner: Measured
    times: list[int] = msgspec.field(default_factory=list)
    payloads: list[Any] = msgspec.field(default_factory=list)
    panes: list[tuple[int, LifetimeAccumulator]] = msgspec.field(default_factory=list)

    def put(self, time: int, payload: Any, pane_ms: int, fresh: Callable[[], Any]) -> None:
        """Add a match that is too young for the window. `fresh`: creates a lifetime accumulator."""
        place = bisect_right(self.times, time)
        self.times.insert(place, time)
        self.payloads.insert(place, payload)
        if len(self.times) > EXACT:
            self._spill(pane_ms, fresh)
        if payload is not None and is_large(payload):
            while len(self.times) > 1 and encoded_size(self.payloads) > MAX_BYTES:
                self._spill(pane_ms, fresh)

    def _spill(self, pane_ms: int, fresh: Callable[[], Any]) -> None:
        panes, time, payload = self.panes, self.times.pop(0), self.payloads.pop(0)

        def grown(kept: Any) -> Any:
            found = fresh() if kept is None else kept
            found.add(time, payload, 0)
            return found

        n = len(panes)
        spill(panes, time, pane_ms, grown)
        if is_large(payload) or (len(panes) > n and len(panes) % _UNSEEN == 0):
            self._thin(pane_ms)

    def merge(self, other: Delayed, pane_ms: int, fresh: Callable[[], Any]) -> None:
        """Merge another one, whose matches arrived later and which is consumed. Both have admitted matches up to one instant."""

        def grown(kept: Any, time: int, payload: Any) -> Any:
            found = fresh() if kept is None else kept
            found.add(time, payload, 0)
            return found

        inner: Any = self.inner
        inner.merge(other.inner, pane_ms)
        if merge_matches(self, other, pane_ms, grown, bulky=True):
            self._thin(pane_ms)

    def _thin(self, pane_ms: int) -> None:
        if isinstance(self.inner, SlidingFrequencies):
            thin_frequencies(self.panes, pane_ms)
        else:
            thin_panes(self.panes, pane_ms, merged)

    def admit(self, newest: int, pane_ms: int) -> None:
        """Move the matches up to `newest` into the window."""
        while self.panes and self.panes[0][0] <= newest:
            inner: Any = self.inner
            inner.add_pane(*self.panes.pop(0), pane_ms)
        old_enough = bisect_right(self.times, newest)
        for time, payload in zip(self.times[:old_enough], self.payloads[:old_enough], strict=True):
            self.inner.add(time, payload, pane_ms)
        del self.times[:old_enough], self.payloads[:old_enough]


class Periods(msgspec.Struct, array_like=True, tag=41, gc=False):
    """One accumulator for each calendar period, by the start of the period."""

    starts: list[int] = msgspec.field(default_factory=list)
    kept: list[Measured] = msgspec.field(default_factory=list)

    def at(self, start: int) -> Any:
        """Return the accumulator of a period; None without one."""
        place = bisect_left(self.starts, start)
        return self.kept[place] if place < len(self.starts) and self.starts[place] == start else None

    def put(self, start: int, fresh: Measured) -> None:
        """Add a period."""
        place = bisect_left(self.starts, start)
        self.starts.insert(place, start)
        self.kept.insert(place, fresh)

    def merge(self, other: Periods) -> None:
        """Merge another one, whose matches arrived later and which is consumed."""
        for start, kept in zip(other.starts, other.kept, strict=True):
            own = self.at(start)
            if own is None:
                self.put(start, kept)
            else:
                own.merge(kept)

    def forget(self, first: int) -> None:
        """Drop the periods that start before `first`."""
        gone = bisect_left(self.starts, first)
        del self.starts[:gone], self.kept[:gone]


class Beats(msgspec.Struct, array_like=True, tag=42, gc=False):
    """`regularly`: the matches that determine which periods contain one, ascending.

    Of three matches within the length of one period the middle one is dropped: each period of that length that contains it also
    contains one of the others.
    """

    times: list[int] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: Any, every_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        times = self.times
        place = bisect_right(times, time)
        times.insert(place, time)
        for middle in (place + 1, place, place - 1):
            if 0 < middle < len(times) - 1 and times[middle + 1] - times[middle - 1] <= every_ms:
                del times[middle]

    def forget(self, cutoff: int) -> None:
        """Drop what happened at `cutoff` or before."""
        del self.times[: bisect_right(self.times, cutoff)]

    def value(self) -> tuple[int, ...]:
        """Return the matches."""
        return tuple(self.times)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """Return the time of the first match to leave."""
        return self.times[0] if self.times else None


class Since(msgspec.Struct, array_like=True, tag=43, gc=False):
    """`held_for`, `held_less_than`: the instant since which the predicate has been true."""

    at: int


class Link(msgspec.Struct, array_like=True, gc=False):
    """One event of a sequence. `matches`: bit i is step i.

    `reached`: combination of values of earlier steps (JSON text, "" for none) -> bit k: stage k is completed by this event after
    all stages before it; the bits above them: the pause after it was broken. `kept`: the captured values, in the order of the
    sequence's `captures`; by name up to format 6.
    """

    time: int
    matches: int
    reached: dict[str, int] = msgspec.field(default_factory=dict)
    kept: list[Any] | dict[str, Any] | None = None


class Chain(msgspec.Struct, array_like=True, tag=44, gc=False):
    """`sequence`: its events by time and arrival, and the latest completion."""

    links: list[Link] = msgspec.field(default_factory=list)
    done: int | None = None


LifetimeAccumulator: TypeAlias = (
    Tally | Total | Values | Earliest | Latest | Mean | Lowest | Highest | FirstValue | LastValue | Frequencies | Quantiles | Days
)  # fmt: skip
"""The accumulators of a lifetime."""
Measured: TypeAlias = (
    LifetimeAccumulator
    | SlidingCount | SlidingSum | SlidingDistinct | SlidingFirstTime | SlidingLastTime | SlidingLast | SlidingDays | SlidingMean
    | SlidingMinimum | SlidingMaximum | SlidingFirst | SlidingFrequencies | SlidingQuantiles | Beats
)  # fmt: skip
"""The accumulators with a value."""
Accumulator: TypeAlias = Measured | Delayed | Periods | Since | Chain
