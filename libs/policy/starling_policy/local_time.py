"""Pure core: the local time of a person, and quiet hours across midnight and clock changes.

Quiet hours go by what a clock on the wall shows. An hour that a clock change repeats is quiet twice. An end that a clock change
skips is the instant of that change.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from starling_policy.bounds import DAY_MS

_HOUR_MS: Final = 3_600_000
_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Two days inside the range of datetime, so that no local time exceeds it.
_EARLIEST_MS: Final = (datetime(1, 1, 3, tzinfo=UTC) - _EPOCH) // _MS
_LATEST_MS: Final = (datetime(9999, 12, 29, tzinfo=UTC) - _EPOCH) // _MS


class QuietHours(NamedTuple):
    """`[start, end)` of each local day, in milliseconds since midnight. An `end` before `start` is on the next day."""

    start_ms: int
    end_ms: int

    def contain(self, local_ms: int) -> bool:
        """Return whether a time of the day is quiet."""
        if self.start_ms < self.end_ms:
            return self.start_ms <= local_ms < self.end_ms
        return local_ms >= self.start_ms or local_ms < self.end_ms


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """Return the names of the tz database. A look-up in this set costs the same for a hostile name as for a real one."""
    return frozenset(available_timezones()) - {"localtime", "Factory"}


def is_timezone(name: object) -> bool:
    """Return whether the value is the name of a time zone."""
    return isinstance(name, str) and name in _zones()


def timezone_of(traits: Mapping[str, Any], otherwise: str) -> str:
    """Return the trait `timezone` if it names a time zone, else the workspace's."""
    zone = traits.get("timezone")
    return zone if isinstance(zone, str) and is_timezone(zone) else otherwise


class LocalTime(NamedTuple):
    """An instant beside quiet hours. `change_at`: the first instant after it at which they begin (`quiet` false) or end."""

    local_ms: int
    quiet: bool
    change_at: int


def local_time(hours: QuietHours, zone: str, at_ms: int) -> LocalTime:
    """Return the time of the local day, in milliseconds since midnight, whether it is quiet, and until when."""
    offset_ms, stretch_end_ms = _stretch(zone, at_ms)
    first_ms = local_ms = (at_ms + offset_ms) % DAY_MS
    quiet = hours.contain(local_ms)
    boundary_ms = hours.end_ms if quiet else hours.start_ms
    while True:
        found_ms = at_ms + (boundary_ms - local_ms) % DAY_MS
        if found_ms < stretch_end_ms:
            return LocalTime(first_ms, quiet, found_ms)
        at_ms = stretch_end_ms
        offset_ms, stretch_end_ms = _stretch(zone, at_ms)
        local_ms = (at_ms + offset_ms) % DAY_MS
        if hours.contain(local_ms) is not quiet:
            return LocalTime(first_ms, quiet, at_ms)


def local_day(zone: str, at_ms: int) -> int:
    """Return the local day of an instant, in days since 1970-01-01."""
    return (at_ms + _stretch(zone, at_ms)[0]) // DAY_MS


def first_allowed(hours: QuietHours | None, zone: str, at_ms: int) -> int:
    """Return the first instant from `at_ms` on, itself included, that is not in quiet hours."""
    if hours is None:
        return at_ms
    found = local_time(hours, zone, at_ms)
    return found.change_at if found.quiet else at_ms


def first_instant_of(local: str, zone: str) -> int:
    """Return the first instant, epoch ms, at which a clock in the zone shows a local time (ISO 8601 without offset) or a later one.

    A time that the clock shows twice means the first one; a time that it skips means the instant after the gap.
    """
    info, wanted = ZoneInfo(zone), datetime.fromisoformat(local)
    wanted_ms = int((wanted.replace(tzinfo=UTC) - _EPOCH) / _MS)
    first_ms = wanted_ms - int((wanted.replace(tzinfo=info, fold=0).utcoffset() or timedelta()) / _MS)
    if first_ms + _offset_ms(info, first_ms) == wanted_ms:
        return first_ms
    # In a gap: the offset changes between these two instants.
    before_ms, after_ms = first_ms - 2 * DAY_MS, first_ms
    while after_ms - before_ms > 1:
        middle_ms = (before_ms + after_ms) // 2
        if middle_ms + _offset_ms(info, middle_ms) >= wanted_ms:
            after_ms = middle_ms
        else:
            before_ms = middle_ms
    return after_ms


def _stretch(zone: str, at_ms: int) -> tuple[int, int]:
    """Return the offset from UTC at the instant, and the end of the part of the UTC day with that offset."""
    day = at_ms // DAY_MS
    end_ms = (day + 1) * DAY_MS
    for first_ms, offset_ms in _offsets(zone, day):
        if first_ms <= at_ms:
            return offset_ms, end_ms
        end_ms = first_ms
    raise AssertionError("the last part of a day begins with the day")


@lru_cache(maxsize=8192)
def _offsets(zone: str, day: int) -> tuple[tuple[int, int], ...]:
    """Return (first instant, offset) of each part of a UTC day between changes of the offset, the last part first.

    No zone changes its offset twice in an hour.
    """
    info, start_ms = ZoneInfo(zone), day * DAY_MS
    parts = [(start_ms, _offset_ms(info, start_ms))]
    for hour_ms in range(start_ms, start_ms + DAY_MS, _HOUR_MS):
        before_ms = parts[-1][1]
        low_ms, high_ms = hour_ms, hour_ms + _HOUR_MS
        if _offset_ms(info, high_ms) == before_ms:
            continue
        while high_ms - low_ms > 1:
            middle_ms = (low_ms + high_ms) // 2
            if _offset_ms(info, middle_ms) == before_ms:
                low_ms = middle_ms
            else:
                high_ms = middle_ms
        if high_ms < start_ms + DAY_MS:
            parts.append((high_ms, _offset_ms(info, high_ms)))
    return tuple(reversed(parts))


def _offset_ms(zone: ZoneInfo, at_ms: int) -> int:
    moment = _EPOCH + timedelta(milliseconds=min(max(at_ms, _EARLIEST_MS), _LATEST_MS))
    return (moment.astimezone(zone).utcoffset() or timedelta()) // _MS
