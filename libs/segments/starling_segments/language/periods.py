"""Pure core: calendar periods of a timezone as `[start, end)` in epoch ms, across clock changes."""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from starling_segments.language.dates import LAST_MS, local, midnight
from starling_segments.language.tree import Unit

Span = tuple[int, int]
END_MS = 253_402_300_800_000
"""The first instant of the year 10000, which datetime does not support: the last period of each unit ends here."""
_LAST_USED: dict[tuple[Unit, str], tuple[Span, ...]] = {}
"""The periods used last: usually the current one and its neighbours."""


def span_of(unit: Unit, zone: ZoneInfo, instant: int) -> Span:
    """Return the period of an instant; after the last period, each instant is a period of its own."""
    # Hot: stream time stays in one period for long; computing the period takes ten times as long as this lookup.
    last_used = _LAST_USED.get((unit, zone.key), ())
    for span in last_used:
        if span[0] <= instant < span[1]:
            return span
    if instant >= END_MS:
        return instant, instant + 1
    span = _span(unit, zone, local(instant, zone).date())
    _LAST_USED[unit, zone.key] = (span, *last_used[:3])
    return span


def day_number(instant: int, zone: ZoneInfo) -> int:
    """Return the local calendar day as days since the year 1."""
    return local(instant, zone).toordinal()


@lru_cache(maxsize=8192)
def _span(unit: Unit, zone: ZoneInfo, day: date) -> Span:
    first = _first_day(unit, day)
    if first == _first_day(unit, local(LAST_MS, zone).date()):
        return midnight(first, zone), END_MS
    return midnight(first, zone), midnight(_next_first_day(unit, first), zone)


def _first_day(unit: Unit, day: date) -> date:
    """Return the first day of the period; weeks start on Monday."""
    if unit == "day":
        return day
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)


def _next_first_day(unit: Unit, first: date) -> date:
    if unit == "day":
        return first + timedelta(days=1)
    if unit == "week":
        return first + timedelta(days=7)
    if unit == "year":
        return first.replace(year=first.year + 1)
    return (first + timedelta(days=31)).replace(day=1)
