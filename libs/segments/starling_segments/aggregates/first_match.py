"""Pure core, hot path: what each kind of accumulator keeps after its very first match, as it is written.

Most matches are a user's first one of their leaf, and most of what begins is not asked for before the next event. So it
is not made, only written: `PackedLeaves.begin` makes it when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from starling_segments.aggregates import distributions, lifetime, sliding, sliding_distributions, sliding_measures
from starling_segments.aggregates.accumulators import Beats
from starling_segments.aggregates.values import distinct_key

Begin: TypeAlias = Callable[[int, Any], tuple[Any, ...]]
"""(the match's time, its payload) -> the accumulator's number and its fields."""


def beginning(make: Any) -> Begin:
    """Of what makes an accumulator: its class, or that of percentiles with the rank."""
    made, more = (make.func, make.args) if isinstance(make, partial) else (make, ())
    found: Begin = _BEGIN[made](_tag(made), *more)
    return found


def _tag(made: Any) -> int:
    return int(made.__struct_config__.tag)


def _tally(tag: int) -> Begin:
    return lambda _time, _payload: (tag, 1)


def _total(tag: int) -> Begin:
    return lambda _time, payload: (tag, [payload])


def _mean(tag: int) -> Begin:
    total = _tag(lifetime.Total)
    return lambda _time, payload: (tag, (total, [payload]), 1)


def _instant(tag: int) -> Begin:
    return lambda time, _payload: (tag, time)


def _value(tag: int) -> Begin:
    return lambda _time, payload: (tag, payload)


def _instant_and_value(tag: int) -> Begin:
    return lambda time, payload: (tag, time, payload)


def _different(tag: int) -> Begin:
    return lambda _time, payload: (tag, {payload: 0}, b"")


def _frequencies(tag: int) -> Begin:
    return lambda time, payload: (tag, {distinct_key(payload) or "": (1, time, payload)})


def _runs(tag: int) -> Begin:
    return lambda _time, payload: (tag, [(payload, payload)])


def _times(tag: int) -> Begin:
    return lambda time, _payload: (tag, [time], [])


def _beats(tag: int) -> Begin:
    return lambda time, _payload: (tag, [time])


def _times_and_values(tag: int) -> Begin:
    return lambda time, payload: (tag, [time], [payload], [])


def _last_seen(tag: int) -> Begin:
    return lambda time, payload: (tag, {payload: time}, [], b"")


def _amounts(tag: int, q: str = "") -> Begin:
    return lambda _time, payload: (tag, q, [payload], b"")


def _times_and_amounts(tag: int, q: str = "") -> Begin:
    return lambda time, payload: (tag, q, [time], [payload], [], b"")


def _days(tag: int) -> Begin:
    return lambda time, payload: (tag, [payload], [time])


_BEGIN: Final[Mapping[Any, Callable[..., Begin]]] = {
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
    sliding.RecentTimes: _times,
    sliding.RecentAmounts: _times_and_values,
    sliding.RecentValues: _last_seen,
    sliding_measures.RecentFirstTime: _times,
    sliding_measures.RecentLatest: _instant_and_value,
    sliding_measures.RecentLast: _instant_and_value,
    sliding_measures.RecentDays: _days,
    sliding_measures.RecentMean: _times_and_values,
    sliding_measures.RecentLowest: _times_and_values,
    sliding_measures.RecentHighest: _times_and_values,
    sliding_measures.RecentFirst: _times_and_values,
    sliding_distributions.RecentFrequencies: _times_and_values,
    sliding_distributions.RecentQuantiles: _times_and_amounts,
    Beats: _beats,
}
