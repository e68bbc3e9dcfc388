"""Pure core, hot path: the encoded form of each accumulator after a user's first match.

Most matches are a user's first one of a leaf node, and most accumulators are not read before the next event. The accumulator is
therefore encoded without creating the object: `PackedLeaves.put_first` stores it, `get` decodes it when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from starling_segments.aggregates import distributions, lifetime, sliding, sliding_distributions, sliding_measures
from starling_segments.aggregates.accumulators import Beats
from starling_segments.aggregates.values import distinct_key

Initialiser: TypeAlias = Callable[[int, Any], tuple[Any, ...]]
"""(time of the match, its payload) -> tag and fields of the accumulator."""


def initialiser(make: Any) -> Initialiser:
    """Return the initialiser for a factory of accumulators: a class, or a partial of a percentile's with its rank."""
    made, more = (make.func, make.args) if isinstance(make, partial) else (make, ())
    found: Initialiser = _INITIALISERS[made](_tag(made), *more)
    return found


def _tag(made: Any) -> int:
    return int(made.__struct_config__.tag)


def _tally(tag: int) -> Initialiser:
    return lambda _time, _payload: (tag, 1)


def _total(tag: int) -> Initialiser:
    return lambda _time, payload: (tag, [payload])


def _mean(tag: int) -> Initialiser:
    total = _tag(lifetime.Total)
    return lambda _time, payload: (tag, (total, [payload]), 1)


def _instant(tag: int) -> Initialiser:
    return lambda time, _payload: (tag, time)


def _value(tag: int) -> Initialiser:
    return lambda _time, payload: (tag, payload)


def _instant_and_value(tag: int) -> Initialiser:
    return lambda time, payload: (tag, time, payload)


def _different(tag: int) -> Initialiser:
    return lambda _time, payload: (tag, {payload: 0}, b"")


def _frequencies(tag: int) -> Initialiser:
    return lambda time, payload: (tag, {distinct_key(payload) or "": (1, time, payload)})


def _runs(tag: int) -> Initialiser:
    return lambda _time, payload: (tag, [(payload, payload)])


def _times(tag: int) -> Initialiser:
    return lambda time, _payload: (tag, [time], [])


def _beats(tag: int) -> Initialiser:
    return lambda time, _payload: (tag, [time])


def _times_and_values(tag: int) -> Initialiser:
    return lambda time, payload: (tag, [time], [payload], [])


def _last_seen(tag: int) -> Initialiser:
    return lambda time, payload: (tag, {payload: time}, [], b"")


def _amounts(tag: int, q: str = "") -> Initialiser:
    return lambda _time, payload: (tag, q, [payload], b"")


def _times_and_amounts(tag: int, q: str = "") -> Initialiser:
    return lambda time, payload: (tag, q, [time], [payload], [], b"")


def _days(tag: int) -> Initialiser:
    return lambda time, payload: (tag, [payload], [time])


_INITIALISERS: Final[Mapping[Any, Callable[..., Initialiser]]] = {
    lifetime.Tally: _tally,
    lifetime.Total: _total,
    lifetime.Values: _different,
    lifetime.Earliest: _instant,
    lifetime.Latest: _instant,
    lifetime.Mean: _mean,
    lifetime.Lowest: _value,
    lifetime.Highest: _value,
    lifetime.FirstValue: _instant_and_value,
    lifetime.LastValue: _instant_and_value,
    distributions.Frequencies: _frequencies,
    distributions.Quantiles: _amounts,
    distributions.Days: _runs,
    sliding.SlidingCount: _times,
    sliding.SlidingSum: _times_and_values,
    sliding.SlidingDistinct: _last_seen,
    sliding_measures.SlidingFirstTime: _times,
    sliding_measures.SlidingLastTime: _instant_and_value,
    sliding_measures.SlidingLast: _instant_and_value,
    sliding_measures.SlidingDays: _days,
    sliding_measures.SlidingMean: _times_and_values,
    sliding_measures.SlidingMinimum: _times_and_values,
    sliding_measures.SlidingMaximum: _times_and_values,
    sliding_measures.SlidingFirst: _times_and_values,
    sliding_distributions.SlidingFrequencies: _times_and_values,
    sliding_distributions.SlidingQuantiles: _times_and_amounts,
    Beats: _beats,
}
