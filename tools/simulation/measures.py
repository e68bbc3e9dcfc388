"""Pure core: latencies by time of receipt, backlogs by time, and their percentiles."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tools.simulation.model import Chunk

_AS_BEFORE: Final = 1.25
"""A backlog up to this multiple of the highest one before a fault is that of chance."""


@dataclass(slots=True)
class Freshness:
    """The latency of events from their receipt to a reader, by second of receipt."""

    born: "array[float]" = field(default_factory=lambda: array("d"))
    latency: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("q"))
    events: int = 0
    """The events that were read."""

    def add(self, now: float, chunks: Sequence[Chunk]) -> None:
        """Add chunks that a reader has at this time."""
        self.born.extend([chunk.born for chunk in chunks])
        self.latency.extend([now - chunk.born for chunk in chunks])
        self.counts.extend([chunk.events for chunk in chunks])
        self.events += sum(chunk.events for chunk in chunks)

    def percentiles(self, shares: Sequence[float], first: float = 0.0, end: float = float("inf")) -> list[float]:
        """Return the latencies in s below which these shares of the events lie, of the events received within [first, end)."""
        born = np.frombuffer(self.born)
        chosen = (born >= first) & (born < end)
        return weighted(np.frombuffer(self.latency)[chosen], np.frombuffer(self.counts, dtype=np.int64)[chosen], shares)

    def by_second(self, shares: Sequence[float], seconds: int, step: int = 1) -> list[list[float]]:
        """Return the percentiles of the events received in each interval of `step` seconds."""
        return [self.percentiles(shares, second, second + step) for second in range(0, seconds, step)]


def weighted(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", counts: "np.ndarray[tuple[int], np.dtype[np.int64]]",
             shares: Sequence[float]) -> list[float]:  # fmt: skip
    """Return the least value with at least this share of the weight at or below it, for each share; 0 without values."""
    if not len(values):
        return [0.0 for _ in shares]
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(counts[order])
    places = np.searchsorted(sums, [share * sums[-1] for share in shares])
    return [float(values[order][min(place, len(values) - 1)]) for place in places]


def drained_at(times: Sequence[float], backlog: Sequence[float], fault_at: float, repaired_at: float) -> float | None:
    """Return when the backlog is at most a quarter above its highest before the fault, and stays there; None if never."""
    before = [size for time, size in zip(times, backlog, strict=True) if fault_at / 2 <= time < fault_at]
    found: float | None = None
    for time, size in zip(times, backlog, strict=True):
        if time < repaired_at:
            continue
        if size > _AS_BEFORE * max(before):
            found = None
        elif found is None:
            found = time
    return found
