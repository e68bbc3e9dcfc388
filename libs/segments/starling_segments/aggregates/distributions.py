"""Pure core: lifetime accumulators of distributions: most frequent value, percentile, days."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from starling_segments.aggregates.lifetime import EXACT, FirstValue, Highest, Lifetime, Lowest, Mean
from starling_segments.aggregates.panes import MAX_BYTES, encoded_size
from starling_segments.aggregates.sketches import merged_amounts, quantile_in, rank_of, with_amounts
from starling_segments.aggregates.values import distinct_key, is_large


class Frequency(msgspec.Struct, array_like=True, gc=False):
    """One value, its number of matches and the time of the last one."""

    n: int
    last: int
    value: Any


class Frequencies(Lifetime, array_like=True, tag=14, gc=False):
    """`most_frequent`; a tie goes to the value seen last. Of values of the same instant, the last to arrive is the last.

    Above `EXACT` different values the rarest is dropped and its count added to the new one (Space-Saving, Metwally, Agrawal and
    El Abbadi 2005): a value of more than one match in `EXACT` is never lost. Fewer values are stored if they are large.
    """

    seen: dict[str, Frequency] = msgspec.field(default_factory=dict)

    def add(self, time: int, payload: Any, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        self._count(distinct_key(payload) or "", Frequency(1, time, payload))

    def merge(self, other: Frequencies) -> None:
        """Merge another one, whose matches arrived later.

        A value that one side lacks can have been dropped there with as many matches as its rarest value has. These are counted, so
        a value of more than one match in `EXACT` is still never lost (Agarwal et al., Mergeable Summaries, 2012).
        """
        lost, lost_by_other = self._lost(), other._lost()
        if lost_by_other:
            for key, found in self.seen.items():
                if key not in other.seen:
                    found.n += lost_by_other
        for key, found in other.seen.items():
            n = found.n if key in self.seen else found.n + lost
            add_count(self.seen, key, n, found.last, found.value)
        self.keep_most(EXACT)
        if any(is_large(found.value) for found in other.seen.values()):
            self._fit()

    def value(self) -> Any:
        """Return the value of the measure."""
        return most_frequent(self.seen.values())

    def _count(self, key: str, found: Frequency) -> None:
        known = self.seen.get(key)
        if known is None:
            n = found.n + (self._make_room() if len(self.seen) >= EXACT else 0)
            self.seen[key] = Frequency(n, found.last, found.value)
            if is_large(found.value):
                self._fit()
            return
        known.n += found.n
        if found.last >= known.last:
            known.last = found.last
            self.seen[key] = self.seen.pop(key)

    def keep_most(self, n: int) -> None:
        """Drop all but the `n` most frequent values: a value of more than one match in `n` is still not lost."""
        if len(self.seen) > n:
            rarest = sorted(self.seen, key=lambda key: (self.seen[key].n, self.seen[key].last))
            for key in rarest[: len(rarest) - n]:
                del self.seen[key]

    def _fit(self) -> None:
        while len(self.seen) > 1 and encoded_size(self) > MAX_BYTES:
            self._make_room()

    def _lost(self) -> int:
        """Return the most matches that a value can have which is not stored."""
        return min((found.n for found in self.seen.values()), default=0) if len(self.seen) >= EXACT else 0

    def _make_room(self) -> int:
        rarest = min(self.seen, key=lambda key: (self.seen[key].n, self.seen[key].last))
        return self.seen.pop(rarest).n


def most_frequent(counts: Iterable[Frequency]) -> Any:
    """Return the value with the most matches, of several the one seen last; None without one."""
    best, most, last = None, 0, 0
    for found in counts:
        if found.n > most or (found.n == most and found.last >= last):
            best, most, last = found, found.n, found.last
    return None if best is None else best.value


def total_counts(parts: Iterable[Frequencies]) -> dict[str, Frequency]:
    """Return the counts of all parts, the older ones first. The parts stay unchanged."""
    counts: dict[str, Frequency] = {}
    for part in parts:
        for key, found in part.seen.items():
            add_count(counts, key, found.n, found.last, found.value)
    return counts


def add_count(counts: dict[str, Frequency], key: str, n: int, last: int, value: Any) -> None:
    """Add `n` matches of a value, the last one at `last`. The value seen last is the last of the counts."""
    known = counts.get(key)
    if known is None:
        counts[key] = Frequency(n, last, value)
        return
    known.n += n
    if last >= known.last:
        known.last = last
        counts[key] = counts.pop(key)


class Quantiles(Lifetime, array_like=True, tag=15, gc=False):
    """`percentile`: the amounts, ascending, or a sketch of them above `EXACT`. `q` as text."""

    q: str
    amounts: list[float] = msgspec.field(default_factory=list)
    sketch: bytes = b""

    def add(self, time: int, payload: float, pane_ms: int) -> None:  # noqa: ARG002
        """Add a match to the accumulator."""
        if self.sketch:
            self.sketch = with_amounts(self.sketch, (payload,))
            return
        insort(self.amounts, payload)
        self._sketch_many()

    def merge(self, other: Quantiles) -> None:
        """Merge another one."""
        if self.sketch or other.sketch:
            self.sketch, self.amounts = merged_amounts([self.as_sketch(), other.as_sketch()]), []
        else:
            self.amounts = sorted([*self.amounts, *other.amounts])
            self._sketch_many()

    def as_sketch(self) -> bytes:
        """Return a sketch of the amounts, even of few."""
        return self.sketch or with_amounts(b"", self.amounts)

    def _sketch_many(self) -> None:
        if len(self.amounts) > EXACT:
            self.sketch, self.amounts = with_amounts(b"", self.amounts), []

    def value(self) -> float | None:
        """Return the value of the measure."""
        if self.sketch:
            return quantile_in(self.sketch, self.q)
        return self.amounts[rank_of(self.q, len(self.amounts)) - 1] if self.amounts else None


class Days(Lifetime, array_like=True, tag=16, gc=False):
    """`days`: the days with a match as runs `[first, last]`, ascending; years of daily visits are one run."""

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

    def merge(self, other: Days) -> None:
        """Merge another one."""
        for day in other.each():
            self.add(0, day, 0)

    def each(self) -> Iterator[int]:
        """Iterate over the days, ascending."""
        for first, last in self.runs:
            yield from range(first, last + 1)

    def value(self) -> int:
        """Return the value of the measure."""
        return sum(last - first + 1 for first, last in self.runs)


Summary: TypeAlias = Mean | Lowest | Highest | FirstValue | Frequencies
"""The accumulators of panes."""


def _first(run: tuple[int, int]) -> int:
    return run[0]
