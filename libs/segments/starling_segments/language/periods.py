"""Pure core: calendar periods of a timezone as `[start, end)` in epoch ms, through every change of its clocks."""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from starling_segments.language.dates import LAST_MS, local, midnight
from starling_segments.language.tree import Unit

Span = tuple[int, int]
END_MS = 253_402_300_800_000
"""The first instant of the year 10000, which no calendar here has: the last period of each kind ends with it."""
_AT_HAND: dict[tuple[Unit, str], tuple[Span, ...]] = {}
"""The periods last asked for: this one and its neighbours, as a rule."""


def span_of(unit: Unit, zone: ZoneInfo, instant: int) -> Span:
    """The period that the instant lies in; after the last one each instant is a period of its own."""
    # Hot: stream time stays in one period for long, and asking a clock which one costs ten times this look.
    at_hand = _AT_HAND.get((unit, zone.key), ())
    for span in at_hand:
        if span[0] <= instant < span[1]:
            return span
    if instant >= END_MS:
        return instant, instant + 1
    span = _span(unit, zone, local(instant, zone).date())
    _AT_HAND[unit, zone.key] = (span, *at_hand[:3])
    return span


def day_number(instant: int, zone: ZoneInfo) -> int:
    """The local calendar day, days since the year 1."""
    return local(instant, zone).toordinal()


@lru_cache(maxsize=8192)
def _span(unit: Unit, zone: ZoneInfo, day: date) -> Span:
    first = _first_day(unit, day)
    if first == _first_day(unit, local(LAST_MS, zone).date()):
        return midnight(first, zone), END_MS
    return midnight(first, zone), midnight(_next_first_day(unit, first), zone)


def _first_day(unit: Unit, day: date) -> date:
    """Weeks start on Monday."""
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
