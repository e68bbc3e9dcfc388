"""Pure core: accumulators in sliding windows of times, days, first and last values, sums, averages and extremes.

The newest `EXACT` matches are stored one by one, and older ones in panes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import fsum
from typing import Any, ClassVar, cast

import msgspec

from starling_segments.aggregates.distributions import Days, Summary
from starling_segments.aggregates.lifetime import EXACT, Earliest, FirstValue, Highest, Holds, LastValue, Latest, Lowest, Mean
from starling_segments.aggregates.merging import merge_matches, spill_pane
from starling_segments.aggregates.panes import MAX_BYTES, encoded_size, merged, spill, thin_panes
from starling_segments.aggregates.sliding import SlidingCount, first_change
from starling_segments.aggregates.values import is_large


class SlidingFirstTime(SlidingCount, array_like=True, tag=20, gc=False):
    """`first_time` in a window; for a pane, the time of its last match."""

    def add_pane(self, last: int, pane: Earliest, pane_ms: int) -> None:  # type: ignore[override]  # noqa: ARG002
        """Add the values of a pane, whose last match was at `last`."""
        spill(self.panes, last, pane_ms, lambda n: (n or 0) + 1)

    def value(self) -> int | None:  # type: ignore[override]
        """Return the value of the measure."""
        firsts = [*(last for last, _ in self.panes[:1]), *self.times[:1]]
        return min(firsts, default=None)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """Return the instant from which the first match leaves the window."""
        return self.value()


class SlidingLastTime(msgspec.Struct, array_like=True, tag=21, gc=False):
    """`last_time` in a window: only the last match is stored, because older ones leave earlier."""

    at: int | None = None
    seen: Any = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.at is None or time >= self.at:
            self.at, self.seen = time, payload

    def merge(self, other: SlidingLastTime, pane_ms: int) -> None:
        """Merge another one, whose matches arrived later."""
        if other.at is not None:
            self.add(other.at, other.seen, pane_ms)

    def add_pane(self, last: int, pane: Latest | LastValue, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        self.add(last, pane.seen if isinstance(pane, LastValue) else None, pane_ms)

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        if self.at is not None and self.at <= cutoff:
            self.at = self.seen = None

    def value(self) -> Any:
        """Return the value of the measure."""
        return self.at

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """Return the time of the last match."""
        return self.at


class SlidingLast(SlidingLastTime, array_like=True, tag=22, gc=False):
    """`last` in a window."""

    def value(self) -> Any:
        """Return the value of the measure."""
        return self.seen


class SlidingDays(msgspec.Struct, array_like=True, tag=23, gc=False):
    """`days` in a window: each day's last match, both lists ascending; at most one entry for each day of the longest window."""

    days: list[int] = msgspec.field(default_factory=list)
    times: list[int] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: int, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match. `payload`: the day's number."""
        place = bisect_left(self.days, payload)
        if place < len(self.days) and self.days[place] == payload:
            self.times[place] = max(self.times[place], time)
        else:
            if place and self.times[place - 1] > time:
                time = self.times[place - 1]  # of a pane: both lists are ascending
            self.days.insert(place, payload)
            self.times.insert(place, time)

    def merge(self, other: SlidingDays, pane_ms: int) -> None:  # noqa: ARG002
        """Merge another one."""
        latest = dict(zip(self.days, self.times, strict=True))
        for day, time in zip(other.days, other.times, strict=True):
            latest[day] = max(time, latest.get(day, time))
        self.days = sorted(latest)
        self.times = list(accumulate((latest[day] for day in self.days), max))

    def add_pane(self, last: int, pane: Days, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        for day in pane.each():
            self.add(last, day, pane_ms)

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        gone = bisect_right(self.times, cutoff)
        if gone:
            del self.days[:gone], self.times[:gone]

    def value(self) -> int:
        """Return the value of the measure."""
        return len(self.days)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:
        """Return the instant at which the next day leaves the window and the result of the tests can change; None if never."""
        n = len(self.times)
        if threshold is not None:
            return self.times[n - threshold] if 0 < threshold <= n else None
        return first_change(self.times, range(n - 1, -1, -1), n, holds, now)


class SlidingMeasure(msgspec.Struct, array_like=True, gc=False):
    """The base of the other measures. `times` ascending with their `payloads`; `panes`: (time of the last match, summary)."""

    summary: ClassVar[type[Any]]
    bulky: ClassVar[bool] = False
    """Whether payloads can be large, as values of any type can."""

    times: list[int] = msgspec.field(default_factory=list)
    payloads: list[Any] = msgspec.field(default_factory=list)
    panes: list[tuple[int, Summary]] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: Any, pane_ms: int) -> None:
        """Add a match to the accumulator."""
        times = self.times
        place = bisect_right(times, time)
        times.insert(place, time)
        self.payloads.insert(place, payload)
        if len(times) > EXACT:
            self._spill(pane_ms)
        if self.bulky and is_large(payload):
            while len(times) > 1 and encoded_size(self.payloads) > MAX_BYTES:
                self._spill(pane_ms)

    def merge(self, other: SlidingMeasure, pane_ms: int) -> None:
        """Merge another one, whose matches arrived later and which is consumed."""
        if merge_matches(self, other, pane_ms, self._grown, bulky=self.bulky) and self.bulky:
            self._thin(pane_ms)

    def add_pane(self, last: int, pane: Any, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        spill_pane(self.panes, last, pane, pane_ms)
        if self.bulky:
            self._thin(pane_ms)

    def _spill(self, pane_ms: int) -> None:
        oldest, what, n = self.times.pop(0), self.payloads.pop(0), len(self.panes)
        spill(self.panes, oldest, pane_ms, lambda kept: self._grown(kept, oldest, what))
        if self.bulky and self._may_be_much(what, len(self.panes) > n):
            self._thin(pane_ms)

    def _may_be_much(self, payload: Any, is_new: bool) -> bool:  # noqa: ARG002
        """Return whether to check the size of the panes after a match was added to one."""
        return is_large(payload)

    def _thin(self, pane_ms: int) -> None:
        thin_panes(self.panes, pane_ms, merged)

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        gone = bisect_right(self.times, cutoff)
        if gone:
            del self.times[:gone], self.payloads[:gone]
        while self.panes and self.panes[0][0] <= cutoff:
            self.panes.pop(0)

    def value(self) -> Any:
        """Return the value of the measure."""
        return self._of(0)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """Return the time of the match whose departure can next change the truth of `holds(value, now)`."""
        if self.panes:
            return min(self.panes[0][0], self.times[0]) if self.times else self.panes[0][0]
        if len(self.times) == 1:  # hot, the most frequent case: without an iterator
            return None if holds(None, now) is holds(self.value(), now) else self.times[0]
        return first_change(self.times, map(self._of, range(1, len(self.times) + 1)), self.value(), holds, now)

    def _of(self, start: int) -> Any:
        """Return the value of the matches from `start` on; with 0, of the panes too."""
        total = self.summary()
        if not start:
            for _, kept in self.panes:
                total.merge(kept)
        for i in range(start, len(self.times)):
            total.add(self.times[i], self.payloads[i], 0)
        return total.value()

    def _grown(self, kept: Any, time: int, payload: Any) -> Any:
        summary = self.summary() if kept is None else kept
        summary.add(time, payload, 0)
        return summary


class Plain(SlidingMeasure, array_like=True, gc=False):
    """The base of measures that depend on payloads only."""

    def _of(self, start: int) -> Any:
        if self.panes and not start:
            return super()._of(start)
        left = self.payloads[start:]
        return self._out_of(left) if left else None

    @staticmethod
    def _out_of(payloads: list[Any]) -> Any:
        """Return the value of one payload or more."""
        raise NotImplementedError


class SlidingMean(Plain, array_like=True, tag=24, gc=False):
    """`avg` in a window."""

    summary = Mean

    def _of(self, start: int) -> Any:
        if start or not self.panes:
            return super()._of(start)
        # One exact sum of all parts: merging hundreds of panes takes thirty times as long.
        parts, n = [*self.payloads], len(self.payloads)
        for _, kept in cast("list[tuple[int, Mean]]", self.panes):
            parts += kept.total.parts
            n += kept.n
        return fsum(parts) / n

    @staticmethod
    def _out_of(payloads: list[float]) -> float:
        return fsum(payloads) / len(payloads)


class SlidingMinimum(Plain, array_like=True, tag=25, gc=False):
    """`min` in a window."""

    summary = Lowest

    @staticmethod
    def _out_of(payloads: list[float]) -> float:
        return min(payloads)


class SlidingMaximum(Plain, array_like=True, tag=26, gc=False):
    """`max` in a window."""

    summary = Highest

    @staticmethod
    def _out_of(payloads: list[float]) -> float:
        return max(payloads)


class SlidingFirst(Plain, array_like=True, tag=27, gc=False):
    """`first` in a window."""

    summary = FirstValue
    bulky = True

    @staticmethod
    def _out_of(payloads: list[Any]) -> Any:
        return payloads[0]
