"""Pure core: what is kept of a user's past events where nothing leaves by age, one small value a leaf, folded in place.

Times are epoch ms. Each is also what a pane of a window keeps, so most of them can take in another of their kind
(`merge`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from math import fsum
from typing import Any, TypeAlias

import msgspec

from starling_segments.sketches import distinct_in, quantile_in, rank_of, with_amounts, with_values
from starling_segments.values import distinct_key

EXACT = 256
"""Up to so many matches, or different values, everything is exact."""

Holds = Callable[[Any, int], Any]


class Lifetime(msgspec.Struct, gc=False):
    """What is kept for ever: nothing leaves it, so its value never changes by itself."""

    def forget(self, cutoff: int) -> None:
        """Nothing to forget."""

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002 - one shape for all
        """Never."""
        return None


class Tally(Lifetime, array_like=True, tag=1, gc=False):
    """`count` over a lifetime."""

    n: int = 0

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        self.n += 1

    def value(self) -> int:
        """The measure now."""
        return self.n


class Total(Lifetime, array_like=True, tag=2, gc=False):
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


class Values(Lifetime, array_like=True, tag=3, gc=False):
    """`distinct` over a lifetime: the values themselves, or a sketch of them once there were more than `EXACT`."""

    seen: dict[str, int] = msgspec.field(default_factory=dict)
    sketch: bytes = b""

    def add(self, time: int, payload: str, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.sketch:
            self.sketch = with_values(self.sketch, (payload,))
            return
        self.seen[payload] = 0
        if len(self.seen) > EXACT:
            self.sketch, self.seen = with_values(b"", self.seen), {}

    def value(self) -> int:
        """The measure now."""
        return distinct_in(self.sketch) if self.sketch else len(self.seen)


class Earliest(Lifetime, array_like=True, tag=4, gc=False):
    """The time of the very first match."""

    at: int | None = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.at is None or time < self.at:
            self.at = time

    def value(self) -> int | None:
        """The measure now."""
        return self.at


class Latest(Lifetime, array_like=True, tag=8, gc=False):
    """The time of the last match."""

    at: int | None = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.at is None or time > self.at:
            self.at = time

    def value(self) -> int | None:
        """The measure now."""
        return self.at


class Mean(Lifetime, array_like=True, tag=9, gc=False):
    """`avg`: an exact sum and how many."""

    total: Total = msgspec.field(default_factory=Total)
    n: int = 0

    def add(self, time: int, payload: float, pane_ms: int) -> None:
        """Fold a match."""
        self.total.add(time, payload, pane_ms)
        self.n += 1

    def merge(self, other: Mean) -> None:
        """Take in another one."""
        for part in other.total.parts:
            self.total.add(0, part, 0)
        self.n += other.n

    def value(self) -> float | None:
        """The measure now."""
        return fsum(self.total.parts) / self.n if self.n else None


class Lowest(Lifetime, array_like=True, tag=10, gc=False):
    """`min`."""

    least: float | None = None

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.least is None or payload < self.least:
            self.least = payload

    def merge(self, other: Lowest) -> None:
        """Take in another one."""
        if other.least is not None:
            self.add(0, other.least, 0)

    def value(self) -> float | None:
        """The measure now."""
        return self.least


class Highest(Lifetime, array_like=True, tag=11, gc=False):
    """`max`."""

    most: float | None = None

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.most is None or payload > self.most:
            self.most = payload

    def merge(self, other: Highest) -> None:
        """Take in another one."""
        if other.most is not None:
            self.add(0, other.most, 0)

    def value(self) -> float | None:
        """The measure now."""
        return self.most


class FirstValue(Lifetime, array_like=True, tag=12, gc=False):
    """`first`: by event time, then by arrival."""

    at: int | None = None
    seen: Any = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.at is None or time < self.at:
            self.at, self.seen = time, payload

    def merge(self, other: FirstValue) -> None:
        """Take in another one."""
        if other.at is not None:
            self.add(other.at, other.seen, 0)

    def value(self) -> Any:
        """The measure now."""
        return self.seen


class LastValue(Lifetime, array_like=True, tag=13, gc=False):
    """`last`: by event time, then by arrival."""

    at: int | None = None
    seen: Any = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.at is None or time >= self.at:
            self.at, self.seen = time, payload

    def value(self) -> Any:
        """The measure now."""
        return self.seen


class Seen(msgspec.Struct, array_like=True, gc=False):
    """One value: how often, when last, and itself."""

    n: int
    last: int
    value: Any


class Frequencies(Lifetime, array_like=True, tag=14, gc=False):
    """`most_frequent`; a tie goes to the value seen last. Of values of the same instant, the last to arrive stands last.

    Above `EXACT` different values the rarest makes room and leaves its count to the new one (Space-Saving, Metwally,
    Agrawal and El Abbadi 2005): a value that is more than one match in `EXACT` is never lost.
    """

    seen: dict[str, Seen] = msgspec.field(default_factory=dict)

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        self._count(distinct_key(payload) or "", Seen(1, time, payload))

    def merge(self, other: Frequencies) -> None:
        """Take in another one, whose matches are younger or of the same age."""
        for key, found in other.seen.items():
            self._count(key, found)

    def value(self) -> Any:
        """The measure now."""
        best: Seen | None = None
        for found in self.seen.values():
            if best is None or (found.n, found.last) >= (best.n, best.last):
                best = found
        return None if best is None else best.value

    def _count(self, key: str, found: Seen) -> None:
        known = self.seen.get(key)
        if known is None:
            n = found.n + (self._make_room() if len(self.seen) >= EXACT else 0)
            self.seen[key] = Seen(n, found.last, found.value)
            return
        known.n += found.n
        if found.last >= known.last:
            known.last = found.last
            self.seen[key] = self.seen.pop(key)

    def _make_room(self) -> int:
        rarest = min(self.seen, key=lambda key: (self.seen[key].n, self.seen[key].last))
        return self.seen.pop(rarest).n


class Quantiles(Lifetime, array_like=True, tag=15, gc=False):
    """`percentile`: the amounts themselves, ascending, or a sketch of them once there were more than `EXACT`. `q` as text."""

    q: str
    amounts: list[float] = msgspec.field(default_factory=list)
    sketch: bytes = b""

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match."""
        if self.sketch:
            self.sketch = with_amounts(self.sketch, (payload,))
            return
        insort(self.amounts, payload)
        if len(self.amounts) > EXACT:
            self.sketch, self.amounts = with_amounts(b"", self.amounts), []

    def value(self) -> float | None:
        """The measure now."""
        if self.sketch:
            return quantile_in(self.sketch, self.q)
        return self.amounts[rank_of(self.q, len(self.amounts)) - 1] if self.amounts else None


class Days(Lifetime, array_like=True, tag=16, gc=False):
    """`days`: the days with a match as runs `[first, last]`, ascending; a daily visitor's years are one run."""

    runs: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: int, pane_ms: int) -> None:  # noqa: ARG002
        """Fold a match. `payload`: the day's number."""
        place = bisect_right(self.runs, payload, key=_first)
        first = last = payload
        if place and self.runs[place - 1][1] >= payload - 1:
            place -= 1
            first, last = self.runs[place][0], max(last, self.runs[place][1])
            del self.runs[place]
        if place < len(self.runs) and self.runs[place][0] == last + 1:
            last = self.runs[place][1]
            del self.runs[place]
        self.runs.insert(place, (first, last))

    def value(self) -> int:
        """The measure now."""
        return sum(last - first + 1 for first, last in self.runs)


Summary: TypeAlias = Mean | Lowest | Highest | FirstValue | Frequencies
"""What a pane can keep."""


def _first(run: tuple[int, int]) -> int:
    return run[0]
