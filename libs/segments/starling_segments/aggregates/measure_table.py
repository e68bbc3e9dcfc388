"""Pure core: the table of measures. A new measure is one entry here, and its accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any

from starling_segments.aggregates import distributions, lifetime, sliding, sliding_distributions, sliding_measures
from starling_segments.aggregates.accumulators import Beats, Measured
from starling_segments.aggregates.first_match import Initialiser, initialiser
from starling_segments.aggregates.values import amount, distinct_key, storable
from starling_segments.language.operators.table import DATE, NUMBER
from starling_segments.language.tree import Measure, MeasureName

ANY_TYPE = ""
"""The value type of a measure with values of any type: every operator applies."""


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """The accumulators and the value of a measure.

    `payload(property value)`: the payload of a match, None to ignore it (None instead of a function: no property is read).
    `default`: the value without a match; `single(time, payload)`: that of one match. `value_type`: its operators must apply to
    this type. `is_count`: a whole number that falls by one with each departure. `wakes_on_departure`: a timer is set for each
    departure from the window, whether it changes the truth or not.
    """

    payload: Callable[[Any], Any] | None
    lifetime: Callable[[], Measured]
    windowed: Callable[[], Measured]
    default: Any
    single: Callable[[int, Any], Any]
    value_type: str
    is_count: bool = False
    wakes_on_departure: bool = False
    lifetime_first: Initialiser = field(init=False)
    windowed_first: Initialiser = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lifetime_first", initialiser(self.lifetime))
        object.__setattr__(self, "windowed_first", initialiser(self.windowed))


def _one(_time: int, _payload: Any) -> int:
    return 1


def _itself(_time: int, payload: Any) -> Any:
    return payload


def _its_time(time: int, _payload: Any) -> int:
    return time


def _beat(time: int, _payload: Any) -> tuple[int, ...]:
    return (time,)


def _number(payload: Callable[[Any], Any] | None, lifetime: Any, windowed: Any) -> MeasureKind:
    return MeasureKind(payload, lifetime, windowed, 0, _one, NUMBER, is_count=True)


def _untied(
    value_type: str, payload: Callable[[Any], Any], lifetime: Any, windowed: Any, *, wakes_on_departure: bool = False
) -> MeasureKind:
    return MeasureKind(payload, lifetime, windowed, None, _itself, value_type, wakes_on_departure=wakes_on_departure)


def _instant(lifetime: Any, windowed: Any) -> MeasureKind:
    return MeasureKind(None, lifetime, windowed, None, _its_time, DATE, wakes_on_departure=True)


MEASURES: Mapping[MeasureName, MeasureKind] = {
    "count": _number(None, lifetime.Tally, sliding.SlidingCount),
    "sum": _untied(NUMBER, amount, lifetime.Total, sliding.SlidingSum),
    "avg": _untied(NUMBER, amount, lifetime.Mean, sliding_measures.SlidingMean),
    "min": _untied(NUMBER, amount, lifetime.Lowest, sliding_measures.SlidingMinimum),
    "max": _untied(NUMBER, amount, lifetime.Highest, sliding_measures.SlidingMaximum),
    "first": _untied(ANY_TYPE, storable, lifetime.FirstValue, sliding_measures.SlidingFirst),
    "last": _untied(ANY_TYPE, storable, lifetime.LastValue, sliding_measures.SlidingLast, wakes_on_departure=True),
    "distinct": _number(distinct_key, lifetime.Values, sliding.SlidingDistinct),
    "most_frequent": _untied(ANY_TYPE, storable, distributions.Frequencies, sliding_distributions.SlidingFrequencies),
    "percentile": _untied(NUMBER, amount, distributions.Quantiles, sliding_distributions.SlidingQuantiles),
    "first_time": _instant(lifetime.Earliest, sliding_measures.SlidingFirstTime),
    "last_time": _instant(lifetime.Latest, sliding_measures.SlidingLastTime),
    "days": _number(None, distributions.Days, sliding_measures.SlidingDays),
}
PLAIN: tuple[MeasureName, ...] = ("count", "first_time", "last_time")
"""The measures that are written as text."""
FIRST = MeasureKind(None, lifetime.Earliest, lifetime.Earliest, None, _its_time, "date")
"""`first_time`: the window is part of the test, so that the first match is stored permanently."""
BEATS = MeasureKind(None, Beats, Beats, (), _beat, NUMBER, wakes_on_departure=True)
"""`regularly`."""


def kind_of(measure: Measure) -> MeasureKind:
    """Return the measure's kind; the accumulators of a percentile contain its rank."""
    kind = MEASURES[measure.name]
    if measure.q is None:
        return kind
    lifetime, windowed = partial(distributions.Quantiles, measure.q), partial(sliding_distributions.SlidingQuantiles, measure.q)
    return MeasureKind(kind.payload, lifetime, windowed, kind.default, kind.single, kind.value_type)


def quotient(above: Any, below: Any) -> float | None:
    """Return the value of a ratio; None if a side is missing, the divisor is 0 or the result is not a finite double."""
    if above is None or not below:
        return None
    ratio = float(above / below)
    return ratio if isfinite(ratio) else None
