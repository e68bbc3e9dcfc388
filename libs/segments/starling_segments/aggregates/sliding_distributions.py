"""Pure core: accumulators of distributions in sliding windows: most frequent value, percentile."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, cast

import msgspec

from starling_segments.aggregates.distributions import Frequencies, Quantiles, add_count, most_frequent, total_counts
from starling_segments.aggregates.lifetime import EXACT, Holds
from starling_segments.aggregates.merging import interleaved
from starling_segments.aggregates.panes import MAX_BYTES, MAX_PANES, Panes, encoded_size, spill, thin_panes, thin_sketches
from starling_segments.aggregates.sketches import merged_amounts, quantile_with, rank_of, with_amounts
from starling_segments.aggregates.sliding import first_change
from starling_segments.aggregates.sliding_measures import SlidingMeasure
from starling_segments.aggregates.values import distinct_key, is_large

_MOST_FREQUENT = 64
"""Number of values that a pane keeps when panes are too large."""


class SlidingFrequencies(SlidingMeasure, array_like=True, tag=28, gc=False):
    """`most_frequent` in a window."""

    summary = Frequencies
    bulky = True

    def _may_be_much(self, payload: Any, is_new: bool) -> bool:
        return is_new or is_large(payload)

    def _thin(self, pane_ms: int) -> None:
        thin_frequencies(self.panes, pane_ms)

    def _of(self, start: int) -> Any:
        # Counted without the limit of an accumulator, which searches for the rarest value at each new one.
        counts = {} if start else total_counts(cast("Frequencies", kept) for _, kept in self.panes)
        for time, payload in zip(self.times[start:], self.payloads[start:], strict=True):
            add_count(counts, distinct_key(payload) or "", 1, time, payload)
        return most_frequent(counts.values())


def thin_frequencies(panes: list[Any], pane_ms: int) -> None:
    """Run `thin_panes` with only the most frequent values of each pane."""
    if len(panes) > MAX_PANES or encoded_size(panes) > MAX_BYTES:
        for _, kept in panes:
            kept.keep_most(_MOST_FREQUENT)
        thin_panes(panes, pane_ms, _fewer)


class SlidingQuantiles(msgspec.Struct, array_like=True, tag=29, gc=False):
    """`percentile` in a window. `q` as text; `panes`: (time of the last match, sketch); `whole`: the sketch of all panes."""

    q: str
    times: list[int] = msgspec.field(default_factory=list)
    amounts: list[float] = msgspec.field(default_factory=list)
    panes: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    whole: bytes = b""

    def add(self, time: int, payload: float, pane_ms: int) -> None:
        """Add a match to the accumulator."""
        place = bisect_right(self.times, time)
        self.times.insert(place, time)
        self.amounts.insert(place, payload)
        if len(self.times) > EXACT:
            oldest = self.amounts.pop(0)
            self.whole = with_amounts(self.whole, (oldest,))
            grown = spill(self.panes, self.times.pop(0), pane_ms, lambda kept: with_amounts(kept or b"", (oldest,)))
            thin_sketches(self.panes, pane_ms, grown, _merged_sketches)

    def merge(self, other: SlidingQuantiles, pane_ms: int) -> None:
        """Merge another one."""
        times, amounts, _ = interleaved(self.times, self.amounts, other.times, other.amounts)
        gone = max(0, len(times) - EXACT)
        if self.whole and other.whole:
            self.whole = _merged_sketches(self.whole, other.whole)
        self.whole = self.whole or other.whole
        if gone:
            self.whole = with_amounts(self.whole, amounts[:gone])
        for time, amount in zip(times[:gone], amounts[:gone], strict=True):
            _join(self.panes, time, with_amounts(b"", (amount,)), pane_ms)
        for last, sketch in other.panes:
            _join(self.panes, last, sketch, pane_ms)
        self.times, self.amounts = times[gone:], amounts[gone:]
        thin_panes(self.panes, pane_ms, _merged_sketches)

    def add_pane(self, last: int, pane: Quantiles, pane_ms: int) -> None:
        """Add the values of a pane, whose last match was at `last`."""
        sketch = pane.as_sketch()
        self.whole = merged_amounts([self.whole, sketch]) if self.whole else sketch
        thin_sketches(self.panes, pane_ms, _join(self.panes, last, sketch, pane_ms), _merged_sketches)

    def forget(self, cutoff: int) -> None:
        """Drop matches at `cutoff` or before."""
        gone = bisect_right(self.times, cutoff)
        if gone:
            del self.times[:gone], self.amounts[:gone]
        if self.panes and self.panes[0][0] <= cutoff:
            self.panes = [pane for pane in self.panes if pane[0] > cutoff]
            self.whole = merged_amounts([sketch for _, sketch in self.panes])

    def value(self) -> float | None:
        """Return the value of the measure."""
        if self.panes:
            return quantile_with(self.whole, self.amounts, self.q)
        return self._of(0)

    def next_departure(self, threshold: int | None, holds: Holds, now: int) -> int | None:  # noqa: ARG002
        """Return the time of the match whose departure can next change the truth of `holds(value, now)`."""
        if self.panes:
            return min(self.panes[0][0], self.times[0]) if self.times else self.panes[0][0]
        return first_change(self.times, map(self._of, range(1, len(self.times) + 1)), self.value(), holds, now)

    def _of(self, start: int) -> float | None:
        left = sorted(self.amounts[start:])
        return left[rank_of(self.q, len(left)) - 1] if left else None


def _join(panes: Panes, last: int, sketch: bytes, pane_ms: int) -> Any:
    return spill(panes, last, pane_ms, lambda kept: _merged_sketches(kept, sketch) if kept else sketch)


def _merged_sketches(one: bytes, other: bytes) -> bytes:
    return merged_amounts([one, other])


def _fewer(older: Frequencies, younger: Frequencies) -> Frequencies:
    older.merge(younger)
    older.keep_most(_MOST_FREQUENT)
    return older
