"""Pure core: dates as users write them, to epoch milliseconds and back to local calendar days.

A text without offset is local time of the segment's timezone; a bare date is the start of that day there. A time
that does not exist or exists twice there (a clock change) is read as the earlier offset has it.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_ONE_DAY = timedelta(days=1)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
# A day inside what datetime can hold, so that no timezone can push a value over the edge.
_EARLIEST_MS = (datetime(1, 1, 2, tzinfo=UTC) - EPOCH) // _MS
LAST_MS = (datetime(9999, 12, 30, tzinfo=UTC) - EPOCH) // _MS


def to_ms(moment: datetime) -> int:
    """Epoch ms of an aware moment."""
    return (moment - EPOCH) // _MS


def local(ms: int, zone: ZoneInfo) -> datetime:
    """The moment as the clocks of `zone` show it; before the first and after the last day there is, that day's."""
    return (EPOCH + timedelta(milliseconds=min(max(ms, _EARLIEST_MS), LAST_MS))).astimezone(zone)


def read_instant(value: object, zone: ZoneInfo) -> int | None:
    """ISO 8601 text or epoch milliseconds -> epoch ms, a fraction of one dropped; None for anything else (a missing value)."""
    if type(value) is str:
        span = read_span(value, zone)
        return None if span is None else span[0]
    if type(value) is int or type(value) is float:
        return int(value // 1) if _EARLIEST_MS <= value <= LAST_MS else None
    return None


@lru_cache(maxsize=4096)
def read_span(text: str, zone: ZoneInfo) -> tuple[int, int] | None:
    """ISO 8601 text -> `[start, end)` in epoch ms: one millisecond for an instant, the whole local day for a bare date."""
    try:
        if _DATE.fullmatch(text):
            start = midnight(date.fromisoformat(text), zone)
            end = midnight(date.fromisoformat(text) + _ONE_DAY, zone)
        elif _INSTANT.fullmatch(text):
            moment = datetime.fromisoformat(text.upper().replace(",", "."))
            start = to_ms(moment if moment.tzinfo else moment.replace(tzinfo=zone))
            end = start + 1
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return (start, end) if start >= _EARLIEST_MS and end <= LAST_MS else None


def anniversaries(instant: int, zone: ZoneInfo, now: int) -> list[int]:
    """The same local day and time in each year that a duration from `now` can reach, ascending, epoch ms.

    29 February falls on the 28th in a year that has no 29th.
    """
    then, year = local(instant, zone), local(now, zone).year
    return [to_ms(_in_year(then, y)) for y in range(max(year - 1, 2), min(year + 5, 9998))]


def _in_year(moment: datetime, year: int) -> datetime:
    try:
        return moment.replace(year=year, fold=0)
    except ValueError:
        return moment.replace(year=year, day=28, fold=0)


def midnight(day: date, zone: ZoneInfo) -> int:
    """The first instant of that local day, epoch ms."""
    return to_ms(datetime(day.year, day.month, day.day, tzinfo=zone))
