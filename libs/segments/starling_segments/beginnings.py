"""Pure core, hot path: what each kind of accumulator keeps after its very first match, as it is written.

Most matches are a user's first one of their leaf, and most of what begins is not asked for before the next event. So it
is not made, only written: `PackedLeaves.begin` makes it when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from starling_segments import lifetimes, recent_measures, recent_spreads, recents, spreads
from starling_segments.accumulators import Beats
from starling_segments.values import distinct_key

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
    total = _tag(lifetimes.Total)
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
    lifetimes.Tally: _tally,
    lifetimes.Total: _total,
    lifetimes.Values: _different,
    lifetimes.Earliest: _instant,
    lifetimes.Latest: _instant,
    lifetimes.Mean: _mean,
    lifetimes.Lowest: _value,
    lifetimes.Highest: _value,
    lifetimes.FirstValue: _instant_and_value,
    lifetimes.LastValue: _instant_and_value,
    spreads.Frequencies: _frequencies,
    spreads.Quantiles: _amounts,
    spreads.Days: _runs,
    recents.RecentTimes: _times,
    recents.RecentAmounts: _times_and_values,
    recents.RecentValues: _last_seen,
    recent_measures.RecentFirstTime: _times,
    recent_measures.RecentLatest: _instant_and_value,
    recent_measures.RecentLast: _instant_and_value,
    recent_measures.RecentDays: _days,
    recent_measures.RecentMean: _times_and_values,
    recent_measures.RecentLowest: _times_and_values,
    recent_measures.RecentHighest: _times_and_values,
    recent_measures.RecentFirst: _times_and_values,
    recent_spreads.RecentFrequencies: _times_and_values,
    recent_spreads.RecentQuantiles: _times_and_amounts,
    Beats: _beats,
}
