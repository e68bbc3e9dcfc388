"""Pure core: the instants of the matches that count in a window at an instant, as `[first, end)` in epoch ms."""

from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from starling_segments.language.tree import Ago, Calendar, Fixed, Unit, Window, Within

EXACT: Final = 256
"""The language is exact up to this number of matches in a window; above that a match may leave late, by a part of the window."""
_THINNED: Final = 16
"""The smallest number of parts of a window, for measures that keep much."""
_ALWAYS: Final = 1 << 62


class Span(NamedTuple):
    """`[first, end)` in epoch ms."""

    first: int
    end: int


def span(window: Window | None, now_ms: int) -> Span:
    """Return the span of a window at an instant."""
    match window:
        case None:
            return Span(-_ALWAYS, _ALWAYS)
        case Within(length):
            return Span(now_ms - length + 1, now_ms + 1)
        case Ago(older, newer):
            return Span(now_ms - older + 1, now_ms - newer + 1)
        case Fixed(after, before):
            return Span(-_ALWAYS if after is None else after, _ALWAYS if before is None else before)
        case Calendar(unit, back, zone):
            return _period(unit, back, ZoneInfo(zone), now_ms)


def wider(window: Window | None, now_ms: int, *, is_much: bool) -> Span:
    """Return the span with the matches that may leave late. `is_much`: the measure keeps more than a number for each match."""
    found = span(window, now_ms)
    if not isinstance(window, Within | Ago):
        return found
    length = window.length_ms if isinstance(window, Within) else window.older_ms
    return Span(found.first - (length // (_THINNED if is_much else EXACT) + 1), found.end)


def recent(window: Window | None, now_ms: int) -> Span:
    """Return the span of the matches that decide whether a sliding window was ever above `EXACT` in what it still keeps."""
    match window:
        case Within(length) | Ago(length, _):
            return Span(now_ms - 2 * length + 1, now_ms + 1)
        case _:
            return span(window, now_ms)


def _period(unit: Unit, back: int, zone: ZoneInfo, now_ms: int) -> Span:
    first = _first_day(unit, (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms)).astimezone(zone).date())
    for _ in range(back):
        first = _first_day(unit, first - timedelta(days=1))
    return Span(_midnight(first, zone), _midnight(_first_day(unit, first + _LONGER[unit]), zone))


_LONGER: Final = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=31), "year": timedelta(days=366)}
"""Added to the first day of a period, it is a day of the next one."""


def _first_day(unit: Unit, day: date) -> date:
    match unit:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "year":
            return day.replace(month=1, day=1)


def _midnight(day: date, zone: ZoneInfo) -> int:
    moment = datetime(day.year, day.month, day.day, tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    return moment // timedelta(milliseconds=1)
