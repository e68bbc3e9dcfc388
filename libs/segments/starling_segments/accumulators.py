"""Pure core: what is kept of a user's past events, one small value a leaf, folded in place.

Times are epoch ms. An event inside a window leaves it at its time + the window's length. A window holds the newest
`EXACT` matches one by one; older ones are kept in panes of `window / EXACT`, each counted until its last match leaves:
exact up to `EXACT` matches in the window, above that late by less than one pane.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from itertools import islice
from math import fsum
from typing import Any, TypeAlias

import msgspec

EXACT = 256
LOOK_AHEAD = 8
"""How many departures are tried out for the next change of truth before a timer is set for good measure."""

Holds = Callable[[Any, int], bool]


class _Lifetime(msgspec.Struct, gc=False):
    """What is kept for ever: nothing leaves it, so its value never changes by itself."""

    def forget(self, cutoff: int) -> None:
        """Nothing to forget."""

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002 - one shape for all
        """Never."""
        return None


class Tally(_Lifetime, array_like=True, tag=1, gc=False):
    """`count` over a lifetime."""

    n: int = 0

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        self.n += 1

    def value(self) -> int:
        """The measure now."""
        return self.n


class Total(_Lifetime, array_like=True, tag=2, gc=False):
    """`sum` over a lifetime, exact: parts that do not overlap (Shewchuk 1997), so the order of arrival does not count."""

    parts: list[float] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        kept = []
        for part in self.parts:
            large, small = (payload, part) if abs(payload) >= abs(part) else (part, payload)
            payload = large + small
            rest = small - (payload - large)
            if rest:
                kept.append(rest)
        kept.append(payload)
        self.parts = kept

    def value(self) -> float | None:
        """The measure now."""
        return fsum(self.parts) if self.parts else None


class Values(_Lifetime, array_like=True, tag=3, gc=False):
    """`distinct` over a lifetime."""

    seen: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, time: int, payload: str, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        self.seen[payload] = 0

    def value(self) -> int:
        """The measure now."""
        return len(self.seen)


class Earliest(_Lifetime, array_like=True, tag=4, gc=False):
    """The time of the very first match."""

    at: int | None = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.at is None or time < self.at:
            self.at = time

    def value(self) -> int | None:
        """The measure now."""
        return self.at


class RecentTimes(msgspec.Struct, array_like=True, tag=5, gc=False):
    """`count` in a window. `times` ascending; `panes`: (time of the last match, matches), ascending."""

    times: list[int] = msgspec.field(default_factory=list)
    panes: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        times = self.times
        if times and time < times[-1]:
            insort(times, time)
        else:
            times.append(time)
        if len(times) > EXACT:
            _spill(self.panes, times.pop(0), 1, pane_ms)

    def forget(self, cutoff: int) -> None:
        """Drop what happened at `cutoff` or before."""
        times = self.times
        if times and times[0] <= cutoff:
            del times[: bisect_right(times, cutoff)]
        while self.panes and self.panes[0][0] <= cutoff:
            self.panes.pop(0)

    def value(self) -> int:
        """The measure now."""
        n = len(self.times)
        return n + sum(pane[1] for pane in self.panes) if self.panes else n

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:
        """The time of the match whose leaving can next change the truth of `holds(value, now)`.

        `threshold`: the truth turns where the count passes it, and nowhere else.
        """
        times, n = self.times, len(self.times)
        if self.panes:
            return min(self.panes[0][0], times[0]) if times else self.panes[0][0]
        if threshold is not None:
            return times[n - threshold] if 0 < threshold <= n else None
        return _first_turn(times, range(n - 1, -1, -1), n, holds, now)


class RecentAmounts(msgspec.Struct, array_like=True, tag=6, gc=False):
    """`sum` in a window. `times` ascending with their `amounts`; `panes`: (time of the last match, sum), ascending."""

    times: list[int] = msgspec.field(default_factory=list)
    amounts: list[float] = msgspec.field(default_factory=list)
    panes: list[tuple[int, float]] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: float, pane_ms: int) -> None:
        """Fold a match."""
        times = self.times
        place = len(times) if not times or time >= times[-1] else bisect_right(times, time)
        times.insert(place, time)
        self.amounts.insert(place, payload)
        if len(times) > EXACT:
            _spill(self.panes, times.pop(0), self.amounts.pop(0), pane_ms)

    def forget(self, cutoff: int) -> None:
        """Drop what happened at `cutoff` or before."""
        times = self.times
        if times and times[0] <= cutoff:
            gone = bisect_right(times, cutoff)
            del times[:gone]
            del self.amounts[:gone]
        while self.panes and self.panes[0][0] <= cutoff:
            self.panes.pop(0)

    def value(self) -> float | None:
        """The measure now."""
        if self.panes:
            return fsum([*self.amounts, *(amount for _, amount in self.panes)])
        return fsum(self.amounts) if self.amounts else None

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """The time of the match whose leaving can next change the truth of `holds(value, now)`."""
        times, amounts = self.times, self.amounts
        if self.panes:
            return min(self.panes[0][0], times[0]) if times else self.panes[0][0]
        left = (fsum(amounts[i:]) if i < len(amounts) else None for i in range(1, len(amounts) + 1))
        return _first_turn(times, left, self.value(), holds, now)


class RecentValues(msgspec.Struct, array_like=True, tag=7, gc=False):
    """`distinct` in a window: each value with the time it was last seen, ascending. Grows with the values."""

    latest: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, time: int, payload: str, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        latest = self.latest
        if latest.get(payload, time) > time:
            return
        latest.pop(payload, None)
        newest = next(reversed(latest.values()), time)
        latest[payload] = time
        if time < newest:
            self.latest = dict(sorted(latest.items(), key=_second))

    def forget(self, cutoff: int) -> None:
        """Drop what happened at `cutoff` or before."""
        for value in [value for value, time in self.latest.items() if time <= cutoff]:
            del self.latest[value]

    def value(self) -> int:
        """The measure now."""
        return len(self.latest)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:
        """As for `RecentTimes`, over the times at which the values were last seen."""
        n = len(self.latest)
        if threshold is not None:
            return next(islice(self.latest.values(), n - threshold, None)) if 0 < threshold <= n else None
        return _first_turn(list(islice(self.latest.values(), LOOK_AHEAD)), range(n - 1, -1, -1), n, holds, now)


Accumulator: TypeAlias = Tally | Total | Values | Earliest | RecentTimes | RecentAmounts | RecentValues


def _second(item: tuple[str, int]) -> int:
    return item[1]


def _first_turn(times: list[int], values_left: Any, value: Any, holds: Holds, now: int) -> int | None:
    """The time of the first departure that changes the truth; of the last one tried when there are too many to try."""
    truth = holds(value, now)
    for i, left in enumerate(islice(values_left, LOOK_AHEAD)):
        if holds(left, now) is not truth or i == LOOK_AHEAD - 1:
            return times[i]
    return None


def _spill(panes: list[tuple[int, Any]], time: int, amount: float, pane_ms: int) -> None:
    number = time // pane_ms
    place = bisect_right(panes, number, key=lambda pane: pane[0] // pane_ms)
    if place and panes[place - 1][0] // pane_ms == number:
        last, so_far = panes[place - 1]
        panes[place - 1] = (max(last, time), so_far + amount)
    else:
        panes.insert(place, (time, amount))
