"""Pure core: dates of users to epoch milliseconds, and back to local calendar days.

A text without offset is local time of the segment's timezone; a bare date is the start of that day. A time that a clock change
skips or repeats is read with the earlier offset.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_ONE_DAY = timedelta(days=1)
_DAY_MS = 86_400_000
_DATE_LENGTH = 10
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
# One day inside datetime's range, so that no timezone exceeds it.
_EARLIEST_MS = (datetime(1, 1, 2, tzinfo=UTC) - EPOCH) // _MS
LAST_MS = (datetime(9999, 12, 30, tzinfo=UTC) - EPOCH) // _MS


def to_ms(moment: datetime) -> int:
    """Return the epoch ms of an aware datetime."""
    since = moment - EPOCH  # a division by a timedelta takes longer
    return since.days * _DAY_MS + since.seconds * 1000 + since.microseconds // 1000


def local(ms: int, zone: ZoneInfo) -> datetime:
    """Return the local time in `zone`, limited to the first and last supported day."""
    return (EPOCH + timedelta(milliseconds=min(max(ms, _EARLIEST_MS), LAST_MS))).astimezone(zone)


def read_instant(value: object, zone: ZoneInfo) -> int | None:
    """Return the epoch ms of ISO 8601 text or of epoch milliseconds (a fraction is dropped); None, a missing value, otherwise."""
    if type(value) is str:
        span = read_span(value, zone)
        return None if span is None else span[0]
    if type(value) is int or type(value) is float:
        return int(value // 1) if _EARLIEST_MS <= value <= LAST_MS else None
    return None


@lru_cache(maxsize=4096)
def read_span(text: str, zone: ZoneInfo) -> tuple[int, int] | None:
    """Return `[start, end)` in epoch ms: one millisecond for an instant, the whole local day for a bare date."""
    try:
        if len(text) == _DATE_LENGTH and _DATE.fullmatch(text):
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
    """Return the anniversaries that a duration from `now` can reach, at the same local time, ascending, epoch ms.

    29 February is moved to the 28th in other years.
    """
    then, year = local(instant, zone), local(now, zone).year
    return [to_ms(_in_year(then, y)) for y in range(max(year - 1, 2), min(year + 5, 9998))]


def _in_year(moment: datetime, year: int) -> datetime:
    try:
        return moment.replace(year=year, fold=0)
    except ValueError:
        return moment.replace(year=year, day=28, fold=0)


def midnight(day: date, zone: ZoneInfo) -> int:
    """Return the first instant of a local day, epoch ms."""
    return to_ms(datetime(day.year, day.month, day.day, tzinfo=zone))
