"""Pure core: lifetime accumulators, which nothing leaves: small values, folded in place.

Times are epoch ms. They are also the contents of panes, so most of them can merge another one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum
from typing import Any

import msgspec

from starling_segments.aggregates.sketches import distinct_in, union_of, with_values

EXACT = 256
"""Results are exact up to this number of matches, or of different values."""

Holds = Callable[[Any, int], Any]


class Lifetime(msgspec.Struct, gc=False):
    """An accumulator that nothing leaves: time alone never changes its value."""

    def forget(self, cutoff: int) -> None:
        """Do nothing: no match leaves."""

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002 - one shape for all
        """Return None: no match leaves."""
        return None


class Tally(Lifetime, array_like=True, tag=1, gc=False):
    """`count` over a lifetime."""

    n: int = 0

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        self.n += 1

    def merge(self, other: Tally) -> None:
        """Merge another one."""
        self.n += other.n

    def value(self) -> int:
        """Return the value of the measure."""
        return self.n


class Total(Lifetime, array_like=True, tag=2, gc=False):
    """`sum` over a lifetime, exact: non-overlapping parts (Shewchuk 1997), so the order of arrival does not matter."""

    parts: list[float] = msgspec.field(default_factory=list)

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        kept = []
        for part in self.parts:
            large, small = (payload, part) if abs(payload) >= abs(part) else (part, payload)
            payload = large + small
            rest = small - (payload - large)
            if rest:
                kept.append(rest)
        kept.append(payload)
        self.parts = kept

    def merge(self, other: Total) -> None:
        """Merge another one."""
        for part in other.parts:
            self.add(0, part, 0)

    def value(self) -> float | None:
        """Return the value of the measure."""
        return fsum(self.parts) if self.parts else None


class Values(Lifetime, array_like=True, tag=3, gc=False):
    """`distinct` over a lifetime: the values, or a sketch of them above `EXACT`."""

    seen: dict[str, int] = msgspec.field(default_factory=dict)
    sketch: bytes = b""

    def add(self, time: int, payload: str, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.sketch:
            self.sketch = with_values(self.sketch, (payload,))
            return
        self.seen[payload] = 0
        self._sketch_many()

    def merge(self, other: Values) -> None:
        """Merge another one."""
        if self.sketch or other.sketch:
            self.sketch, self.seen = union_of([self.as_sketch(), other.as_sketch()]), {}
        else:
            self.seen |= other.seen
            self._sketch_many()

    def as_sketch(self) -> bytes:
        """Return a sketch of the values, even of few."""
        return self.sketch or with_values(b"", self.seen)

    def _sketch_many(self) -> None:
        if len(self.seen) > EXACT:
            self.sketch, self.seen = with_values(b"", self.seen), {}

    def value(self) -> int:
        """Return the value of the measure."""
        return distinct_in(self.sketch) if self.sketch else len(self.seen)


class Earliest(Lifetime, array_like=True, tag=4, gc=False):
    """`first_time`: the time of the first match."""

    at: int | None = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.at is None or time < self.at:
            self.at = time

    def merge(self, other: Earliest) -> None:
        """Merge another one."""
        if other.at is not None:
            self.add(other.at, None, 0)

    def value(self) -> int | None:
        """Return the value of the measure."""
        return self.at


class Latest(Lifetime, array_like=True, tag=8, gc=False):
    """`last_time`: the time of the last match."""

    at: int | None = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.at is None or time > self.at:
            self.at = time

    def merge(self, other: Latest) -> None:
        """Merge another one."""
        if other.at is not None:
            self.add(other.at, None, 0)

    def value(self) -> int | None:
        """Return the value of the measure."""
        return self.at


class Mean(Lifetime, array_like=True, tag=9, gc=False):
    """`avg`: an exact sum and the number of matches."""

    total: Total = msgspec.field(default_factory=Total)
    n: int = 0

    def add(self, time: int, payload: float, pane_ms: int) -> None:
        """Add a match to the accumulator."""
        self.total.add(time, payload, pane_ms)
        self.n += 1

    def merge(self, other: Mean) -> None:
        """Merge another one."""
        self.total.merge(other.total)
        self.n += other.n

    def value(self) -> float | None:
        """Return the value of the measure."""
        return fsum(self.total.parts) / self.n if self.n else None


class Lowest(Lifetime, array_like=True, tag=10, gc=False):
    """`min`."""

    least: float | None = None

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.least is None or payload < self.least:
            self.least = payload

    def merge(self, other: Lowest) -> None:
        """Merge another one."""
        if other.least is not None:
            self.add(0, other.least, 0)

    def value(self) -> float | None:
        """Return the value of the measure."""
        return self.least


class Highest(Lifetime, array_like=True, tag=11, gc=False):
    """`max`."""

    most: float | None = None

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.most is None or payload > self.most:
            self.most = payload

    def merge(self, other: Highest) -> None:
        """Merge another one."""
        if other.most is not None:
            self.add(0, other.most, 0)

    def value(self) -> float | None:
        """Return the value of the measure."""
        return self.most


class FirstValue(Lifetime, array_like=True, tag=12, gc=False):
    """`first`: by event time, then by arrival."""

    at: int | None = None
    seen: Any = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.at is None or time < self.at:
            self.at, self.seen = time, payload

    def merge(self, other: FirstValue) -> None:
        """Merge another one."""
        if other.at is not None:
            self.add(other.at, other.seen, 0)

    def value(self) -> Any:
        """Return the value of the measure."""
        return self.seen


class LastValue(Lifetime, array_like=True, tag=13, gc=False):
    """`last`: by event time, then by arrival."""

    at: int | None = None
    seen: Any = None

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.at is None or time >= self.at:
            self.at, self.seen = time, payload

    def merge(self, other: LastValue) -> None:
        """Merge another one, whose matches are younger or of the same age."""
        if other.at is not None:
            self.add(other.at, other.seen, 0)

    def value(self) -> Any:
        """Return the value of the measure."""
        return self.seen
