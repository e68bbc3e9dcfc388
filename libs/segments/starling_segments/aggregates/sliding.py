"""Pure core: accumulators of sliding windows: small values, folded in place.

Times are epoch ms. A match leaves a window at its time plus the window's length. A window stores the newest `EXACT` matches one
by one; older ones are in panes of `window / EXACT`, each counted until its last match leaves: exact up to `EXACT` matches,
above that late by less than one pane. Panes that are too large are merged (`panes.py`). `add_pane` is for matches that enter the
window as a pane: (its last match, a lifetime accumulator).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import islice
from math import fsum
from typing import Any

import msgspec

from starling_segments.aggregates.lifetime import EXACT, Holds, Tally, Total, Values
from starling_segments.aggregates.merging import interleaved
from starling_segments.aggregates.panes import Panes, spill, thin_panes, thin_sketches
from starling_segments.aggregates.sketches import distinct_in, union_of, with_values

LOOK_AHEAD = 8
"""Number of departures that are tried; if none changes the truth, the timer is set to the last of them."""


class SlidingCount(msgspec.Struct, array_like=True, tag=5, gc=False):
    """`count` in a window. `times` ascending; `panes`: (time of the last match, matches), ascending."""

    times: list[int] = msgspec.field(default_factory=list)
    panes: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        times = self.times
        if times and time < times[-1]:
            insort(times, time)
        else:
            times.append(time)
        if len(times) > EXACT:
            spill(self.panes, times.pop(0), pane_ms, lambda n: (n or 0) + 1)

    def merge(self, other: SlidingCount, pane_ms: int) -> None:
        """Merge another one."""
        self.times = sorted([*self.times, *other.times])
        gone = max(0, len(self.times) - EXACT)
        for time, n in [*((time, 1) for time in self.times[:gone]), *other.panes]:
            _increase(self.panes, time, n, pane_ms)
        del self.times[:gone]

    def add_pane(self, last: int, pane: Tally, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        spill(self.panes, last, pane_ms, lambda n: (n or 0) + pane.n)

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        times = self.times
        if times and times[0] <= cutoff:
            del times[: bisect_right(times, cutoff)]
        while self.panes and self.panes[0][0] <= cutoff:
            self.panes.pop(0)

    def value(self) -> int:
        """Return the value of the measure."""
        n = len(self.times)
        return n + sum(pane[1] for pane in self.panes) if self.panes else n

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:
        """Return the time of the match whose departure can next change the truth of `holds(value, now)`."""
        times, n = self.times, len(self.times)
        if self.panes:
            return min(self.panes[0][0], times[0]) if times else self.panes[0][0]
        if threshold is not None:
            return times[n - threshold] if 0 < threshold <= n else None
        return first_change(times, range(n - 1, -1, -1), n, holds, now)


class SlidingSum(msgspec.Struct, array_like=True, tag=6, gc=False):
    """`sum` in a window. `times` ascending with their `amounts`; `panes`: (time of the last match, sum), ascending."""

    times: list[int] = msgspec.field(default_factory=list)
    amounts: list[float] = msgspec.field(default_factory=list)
    panes: list[tuple[int, float]] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: float, pane_ms: int) -> None:
        """Add a match to the accumulator."""
        times = self.times
        place = len(times) if not times or time >= times[-1] else bisect_right(times, time)
        times.insert(place, time)
        self.amounts.insert(place, payload)
        if len(times) > EXACT:
            oldest = self.amounts.pop(0)
            spill(self.panes, times.pop(0), pane_ms, lambda total: (total or 0.0) + oldest)

    def merge(self, other: SlidingSum, pane_ms: int) -> None:
        """Merge another one."""
        times, amounts, _ = interleaved(self.times, self.amounts, other.times, other.amounts)
        gone = max(0, len(times) - EXACT)
        for time, total in [*zip(times[:gone], amounts[:gone], strict=True), *other.panes]:
            _increase(self.panes, time, total, pane_ms)
        self.times, self.amounts = times[gone:], amounts[gone:]

    def add_pane(self, last: int, pane: Total, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        spill(self.panes, last, pane_ms, lambda total: (total or 0.0) + (pane.value() or 0.0))

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        times = self.times
        if times and times[0] <= cutoff:
            gone = bisect_right(times, cutoff)
            del times[:gone]
            del self.amounts[:gone]
        while self.panes and self.panes[0][0] <= cutoff:
            self.panes.pop(0)

    def value(self) -> float | None:
        """Return the value of the measure."""
        if self.panes:
            return fsum([*self.amounts, *(amount for _, amount in self.panes)])
        return fsum(self.amounts) if self.amounts else None

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """Return the time of the match whose departure can next change the truth of `holds(value, now)`."""
        times, amounts = self.times, self.amounts
        if self.panes:
            return min(self.panes[0][0], times[0]) if times else self.panes[0][0]
        if len(times) == 1:  # hot, the most frequent case: without an iterator
            return None if holds(None, now) is holds(amounts[0], now) else times[0]
        left = (fsum(amounts[i:]) if i < len(amounts) else None for i in range(1, len(amounts) + 1))
        return first_change(times, left, self.value(), holds, now)


class SlidingDistinct(msgspec.Struct, array_like=True, tag=7, gc=False):
    """`distinct` in a window: each value with the time it was last seen, ascending.

    Above `EXACT` different values all of them are in `panes`, (time of the last match, sketch), ascending; `whole` is the sketch
    of all panes, so that a match changes one pane only.
    """

    latest: dict[str, int] = msgspec.field(default_factory=dict)
    panes: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    whole: bytes = b""

    def add(self, time: int, payload: str, pane_ms: int) -> None:
        """Add a match to the accumulator."""
        if self.panes:
            self._sketch(payload, time, pane_ms)
            return
        self._note(payload, time)
        if len(self.latest) > EXACT:
            self._sketch_all(pane_ms)

    def merge(self, other: SlidingDistinct, pane_ms: int) -> None:
        """Merge another one, which is consumed."""
        if not self.panes and not other.panes:
            latest = self.latest
            for value, time in other.latest.items():
                latest[value] = max(time, latest.get(value, time))
            self.latest = dict(sorted(latest.items(), key=_second))
            if len(latest) > EXACT:
                self._sketch_all(pane_ms)
            return
        self._sketch_all(pane_ms)
        other._sketch_all(pane_ms)
        self.whole = _union(self.whole, other.whole) if self.whole and other.whole else self.whole or other.whole
        for last, sketch in other.panes:
            _unite(self.panes, last, sketch, pane_ms)
        thin_panes(self.panes, pane_ms, _union)

    def add_pane(self, last: int, pane: Values, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        if not self.panes and not pane.sketch:
            for value in pane.seen:
                self.add(last, value, pane_ms)
            return
        self._sketch_all(pane_ms)
        sketch = pane.as_sketch()
        self.whole = union_of([self.whole, sketch]) if self.whole else sketch
        thin_sketches(self.panes, pane_ms, _unite(self.panes, last, sketch, pane_ms), _union)

    def _sketch_all(self, pane_ms: int) -> None:
        crowd, self.latest = self.latest, {}
        for value, seen_at in crowd.items():
            self._sketch(value, seen_at, pane_ms)

    def _sketch(self, value: str, time: int, pane_ms: int) -> None:
        self.whole = with_values(self.whole, (value,))
        grown = spill(self.panes, time, pane_ms, lambda kept: with_values(kept or b"", (value,)))
        thin_sketches(self.panes, pane_ms, grown, _union)

    def _note(self, payload: str, time: int) -> None:
        latest = self.latest
        if latest.get(payload, time) > time:
            return
        latest.pop(payload, None)
        newest = next(reversed(latest.values()), time)
        latest[payload] = time
        if time < newest:
            self.latest = dict(sorted(latest.items(), key=_second))

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        for value in [value for value, time in self.latest.items() if time <= cutoff]:
            del self.latest[value]
        if self.panes and self.panes[0][0] <= cutoff:
            self.panes = [pane for pane in self.panes if pane[0] > cutoff]
            self.whole = union_of([sketch for _, sketch in self.panes])

    def value(self) -> int:
        """Return the value of the measure."""
        return distinct_in(self.whole) if self.panes else len(self.latest)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:
        """Return the instant at which the next value leaves the window and the result of the tests can change; None if never."""
        if self.panes:
            return self.panes[0][0]
        n = len(self.latest)
        if threshold is not None:
            return next(islice(self.latest.values(), n - threshold, None)) if 0 < threshold <= n else None
        return first_change(list(islice(self.latest.values(), LOOK_AHEAD)), range(n - 1, -1, -1), n, holds, now)


def _increase(panes: Panes, last: int, more: float, pane_ms: int) -> None:
    spill(panes, last, pane_ms, lambda kept: more if kept is None else kept + more)


def _unite(panes: Panes, last: int, sketch: bytes, pane_ms: int) -> Any:
    return spill(panes, last, pane_ms, lambda kept: _union(kept, sketch) if kept else sketch)


def _union(one: bytes, other: bytes) -> bytes:
    return union_of([one, other])


def _second(item: tuple[str, int]) -> int:
    return item[1]


def first_change(times: list[int], values_left: Any, value: Any, holds: Holds, now: int) -> int | None:
    """Return the time of the first departure that changes the truth, or of the last one tried."""
    truth = holds(value, now)
    for i, left in enumerate(islice(values_left, LOOK_AHEAD)):
        if holds(left, now) is not truth or i == LOOK_AHEAD - 1:
            return times[i]
    return None
