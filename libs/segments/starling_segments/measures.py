"""Pure core: the measures, by name. A new measure is one entry here (and its accumulator)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from starling_segments.accumulators import (
    Accumulator,
    Earliest,
    RecentAmounts,
    RecentTimes,
    RecentValues,
    Tally,
    Total,
    Values,
)  # fmt: skip
from starling_segments.operators.table import NUMBER, NUMBER_TYPES

MAX_MAGNITUDE = 1e290
"""A larger number is not summed: a sum of that many could leave what a double can hold."""
_LONGEST_KEPT = 64


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """What a measure keeps and says.

    `payload(property value)`: what is folded, None to ignore the match (None instead of a function: it reads no
    property). `nothing`: its value without a match. `gives`: the type that its operators must fit. `by_ones`: it is a
    whole number that falls by one with each departure.
    """

    payload: Callable[[Any], Any] | None
    lifetime: Callable[[], Accumulator]
    windowed: Callable[[], Accumulator]
    nothing: int | None
    gives: str
    by_ones: bool


def amount(value: Any) -> float | None:
    """A finite number as a float; None for anything else."""
    if type(value) in NUMBER_TYPES and -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        return float(value)
    return None


def distinct_key(value: Any) -> str | None:
    """Text that is equal for equal values only: `1` and `1.0` are one value, `1`, `"1"` and `true` are three."""
    if type(value) is str:
        text = "t" + value
    elif value is None:
        return None
    else:
        text = "j" + json.dumps(_normal(value), sort_keys=True, separators=(",", ":"))
    if len(text) <= _LONGEST_KEPT:
        return text
    return "h" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _normal(value: Any) -> Any:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is list:
        return [_normal(item) for item in value]
    if type(value) is dict:
        return {key: _normal(item) for key, item in value.items()}
    return value


MEASURES: Mapping[str, MeasureKind] = {
    "count": MeasureKind(None, Tally, RecentTimes, 0, NUMBER, by_ones=True),
    "sum": MeasureKind(amount, Total, RecentAmounts, None, NUMBER, by_ones=False),
    "distinct": MeasureKind(distinct_key, Values, RecentValues, 0, NUMBER, by_ones=True),
}
FIRST = MeasureKind(None, Earliest, Earliest, None, "date", by_ones=False)
"""What `first_time` asks: the window is the question's, so that the very first match is kept for ever."""

LATER_MEASURES = frozenset(
    {"avg", "min", "max", "first", "last", "most_frequent", "percentile", "first_time", "last_time", "ratio", "days"}
)
"""Part of the language, not built yet."""
