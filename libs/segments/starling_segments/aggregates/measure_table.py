"""Pure core: the measures, by name. A new measure is one entry here (and its accumulators)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

from starling_segments.aggregates import distributions, lifetime, sliding, sliding_distributions, sliding_measures
from starling_segments.aggregates.accumulators import Beats, Measured
from starling_segments.aggregates.first_match import Begin, beginning
from starling_segments.aggregates.values import amount, anything, distinct_key
from starling_segments.language.operators.table import DATE, NUMBER
from starling_segments.language.tree import Measure, MeasureName

ANY_TYPE = ""
"""What a measure gives that can be of any type: every operator fits."""


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """What a measure keeps and says.

    `payload(property value)`: what is folded, None to ignore the match (None instead of a function: it reads no
    property). `nothing`: its value without a match; `lone(time, payload)`: that of one match. `gives`: the type that its
    operators must fit. `by_ones`: it is a whole number that falls by one with each departure. `departs`: its timer is
    set for whatever leaves a window, whether the truth turns then or not.
    """

    payload: Callable[[Any], Any] | None
    lifetime: Callable[[], Measured]
    windowed: Callable[[], Measured]
    nothing: Any
    lone: Callable[[int, Any], Any]
    gives: str
    by_ones: bool = False
    departs: bool = False
    lifetime_begins: Begin = field(init=False)
    windowed_begins: Begin = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lifetime_begins", beginning(self.lifetime))
        object.__setattr__(self, "windowed_begins", beginning(self.windowed))


def _one(_time: int, _payload: Any) -> int:
    return 1


def _itself(_time: int, payload: Any) -> Any:
    return payload


def _its_time(time: int, _payload: Any) -> int:
    return time


def _beat(time: int, _payload: Any) -> tuple[int, ...]:
    return (time,)


def _number(payload: Callable[[Any], Any] | None, lifetime: Any, windowed: Any) -> MeasureKind:
    return MeasureKind(payload, lifetime, windowed, 0, _one, NUMBER, by_ones=True)


def _untied(gives: str, payload: Callable[[Any], Any], lifetime: Any, windowed: Any, *, departs: bool = False) -> MeasureKind:
    return MeasureKind(payload, lifetime, windowed, None, _itself, gives, departs=departs)


def _instant(lifetime: Any, windowed: Any) -> MeasureKind:
    return MeasureKind(None, lifetime, windowed, None, _its_time, DATE, departs=True)


MEASURES: Mapping[MeasureName, MeasureKind] = {
    "count": _number(None, lifetime.Tally, sliding.RecentTimes),
    "sum": _untied(NUMBER, amount, lifetime.Total, sliding.RecentAmounts),
    "avg": _untied(NUMBER, amount, lifetime.Mean, sliding_measures.RecentMean),
    "min": _untied(NUMBER, amount, lifetime.Lowest, sliding_measures.RecentLowest),
    "max": _untied(NUMBER, amount, lifetime.Highest, sliding_measures.RecentHighest),
    "first": _untied(ANY_TYPE, anything, lifetime.FirstValue, sliding_measures.RecentFirst),
    "last": _untied(ANY_TYPE, anything, lifetime.LastValue, sliding_measures.RecentLast, departs=True),
    "distinct": _number(distinct_key, lifetime.Values, sliding.RecentValues),
    "most_frequent": _untied(ANY_TYPE, anything, distributions.Frequencies, sliding_distributions.RecentFrequencies),
    "percentile": _untied(NUMBER, amount, distributions.Quantiles, sliding_distributions.RecentQuantiles),
    "first_time": _instant(lifetime.Earliest, sliding_measures.RecentFirstTime),
    "last_time": _instant(lifetime.Latest, sliding_measures.RecentLatest),
    "days": _number(None, distributions.Days, sliding_measures.RecentDays),
}
PLAIN: tuple[MeasureName, ...] = ("count", "first_time", "last_time")
"""Those that are written as text alone."""
FIRST = MeasureKind(None, lifetime.Earliest, lifetime.Earliest, None, _its_time, "date")
"""What `first_time` asks: the window is the question's, so that the very first match is kept for ever."""
BEATS = MeasureKind(None, Beats, Beats, (), _beat, NUMBER, departs=True)
"""What `regularly` asks."""


def kind_of(measure: Measure) -> MeasureKind:
    """The measure's kind; a percentile's keeps its rank with its data."""
    kind = MEASURES[measure.name]
    if measure.q is None:
        return kind
    lifetime, windowed = partial(distributions.Quantiles, measure.q), partial(sliding_distributions.RecentQuantiles, measure.q)
    return MeasureKind(kind.payload, lifetime, windowed, kind.nothing, kind.lone, kind.gives)


def quotient(above: Any, below: Any) -> float | None:
    """The value of a ratio, of the values of its two sides; None without one of them, and where it is not a finite double."""
    if above is None or not below:
        return None
    ratio = float(above / below)
    return ratio if isfinite(ratio) else None
