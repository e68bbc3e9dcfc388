"""Pure core: what is known of a user's matches, and the published value -> whether the value is right.

The values are finished here: sums by `math.fsum`, which rounds once like the language, and ratios.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import fsum, isclose, isfinite
from typing import Any, Final, NamedTuple

from starling_segments.language.tree import Ago, Measure, Within
from starling_spark.jobs.trait_verify.measures import HIGH, LOW, MOVING, RECENT, WIDE
from starling_spark.jobs.trait_verify.windows import EXACT

EQUAL: Final = "equal"
WITHIN_ERROR: Final = "within the error"
"""An approximate value, which the documented error allows."""
UNCLEAR: Final = "approximate"
"""An approximate value for which no bound is known."""
IN_MOTION: Final = "in motion"
"""Events or ends of windows have come since the value was published."""
DIFFERENT: Final = "different"

_DISTINCT_ERROR: Final = 0.05
"""Four standard errors of the sketch."""
_ROUNDING: Final = 1e-9
_MUCH_BYTES: Final = 64 << 10
"""The language keeps fewer values one by one where they are larger than about three times this."""
_COUNTS: Final = frozenset({"count", "distinct", "days"})
_ONE_SIDED: Final = frozenset({"count", "days", "distinct", "min", "max"})
"""Measures of which further matches change the value in one direction."""

Fact = Mapping[str, Any]
"""A value of `measures.FACT`."""


class Finding(NamedTuple):
    """The result for one user. `computed`: the value as JSON; None: no value."""

    state: str
    computed: str | None


def finding(sides: Sequence[Measure], published: str | None, facts: Sequence[Fact]) -> Finding:
    """Compare the published value (JSON; None: no value) with the computed one."""
    found = {(fact["side"], fact["view"]): fact for fact in facts}
    value = None if published is None else json.loads(published)
    computed = _value(sides, LOW, found)
    return Finding(_state(sides, value, computed, found), None if computed is None else json.dumps(computed, ensure_ascii=False))


def _state(sides: Sequence[Measure], value: Any, computed: Any, found: Mapping[tuple[int, str], Fact]) -> str:
    if any(_is_same(sides, value, one) for one in (computed, _value(sides, HIGH, found))):
        return EQUAL
    if any((side, MOVING) in found for side in range(len(sides))):
        return IN_MOTION
    if not any(_is_approximate(measure, side, found) for side, measure in enumerate(sides)):
        return DIFFERENT
    return _within_error(sides, value, found)


def _value(sides: Sequence[Measure], view: str, found: Mapping[tuple[int, str], Fact]) -> Any:
    own = [_side(measure, found.get((side, view))) for side, measure in enumerate(sides)]
    return own[0] if len(own) == 1 else _ratio(*own)


def _ratio(above: Any, below: Any) -> float | None:
    if above is None or not below:
        return None
    try:
        ratio = float(above / below)
    except OverflowError:
        return None
    return ratio if isfinite(ratio) else None


def _side(measure: Measure, fact: Fact | None) -> Any:
    if fact is None:
        return 0 if measure.name in _COUNTS else None
    if measure.name == "sum":
        return fsum(fact["amounts"])
    if measure.name == "avg":
        return fsum(fact["amounts"]) / len(fact["amounts"])
    return json.loads(fact["value"])


def _is_same(sides: Sequence[Measure], value: Any, computed: Any) -> bool:
    """Return whether two values are equal. A count of 0 is not published to a user who never had another value."""
    if len(sides) == 1 and sides[0].name in _COUNTS and not value and not computed:
        return True
    return _same(value, computed)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(_kept(one) == _kept(other))


def _kept(value: Any) -> Any:
    """Return the value as the language keeps it: an integer beyond 64 bits as a double."""
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def _is_approximate(measure: Measure, side: int, found: Mapping[tuple[int, str], Fact]) -> bool:
    fact = found.get((side, RECENT))
    if fact is None:
        return False
    if measure.name in {"percentile", "distinct", "most_frequent"} and (fact["keys"] or fact["matches"]) > EXACT:
        return True
    is_sliding = isinstance(measure.window, Within | Ago)
    is_much = (is_sliding or measure.name == "most_frequent") and (fact["bytes"] or 0) > _MUCH_BYTES
    return is_much or (is_sliding and fact["matches"] > EXACT)


def _within_error(sides: Sequence[Measure], value: Any, found: Mapping[tuple[int, str], Fact]) -> str:
    limits = _limits(sides, found)
    if limits is None:
        return UNCLEAR
    least, most = limits
    if not _is_number(value):
        return DIFFERENT
    # The sum of a pane is rounded.
    is_in = least <= value <= most or any(isclose(value, one, rel_tol=_ROUNDING) for one in limits)
    return WITHIN_ERROR if is_in else DIFFERENT


def _limits(sides: Sequence[Measure], found: Mapping[tuple[int, str], Fact]) -> tuple[float, float] | None:
    """Return the least and the most that the value may be; None where no bound is known."""
    bounds = [_bounds(measure, found.get((side, LOW)), found.get((side, WIDE))) for side, measure in enumerate(sides)]
    known = [one for one in bounds if one is not None]
    if len(known) < len(sides):
        return None
    if len(sides) == 1:
        return known[0]
    corners = [_ratio(*pair) for pair in product(*known)]
    numbers = [one for one in corners if one is not None]
    return (min(numbers), max(numbers)) if len(numbers) == len(corners) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bounds(measure: Measure, low: Fact | None, wide: Fact | None) -> tuple[float, float] | None:
    """Return the limits of one side."""
    if isinstance(measure.window, Ago):
        return None  # matches may also enter late
    if measure.name == "percentile":
        amounts = [*_amounts(low), *_amounts(wide)]
        return (min(amounts), max(amounts)) if amounts else None
    if measure.name == "first_time":
        return None  # a full window may report a later match of the same part
    values = [_side(measure, low), _side(measure, wide)]
    if (0 if low is None else low["matches"]) == (0 if wide is None else wide["matches"]):
        least = most = values[0]
    elif measure.name in _ONE_SIDED and None not in values:
        least, most = min(values), max(values)
    else:
        return None
    if not _is_number(least) or (measure.name in {"first", "last", "most_frequent"}):
        return None
    return (least * (1 - _DISTINCT_ERROR), most * (1 + _DISTINCT_ERROR)) if measure.name == "distinct" else (least, most)


def _amounts(fact: Fact | None) -> Iterator[float]:
    yield from () if fact is None else fact["amounts"]
