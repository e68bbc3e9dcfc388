"""Durations, clocks on the wall and hashes, written from the pages of the language and of delivery."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_ROUND_MASK = 0xFFFFFFFF


def duration(text: str) -> int:
    """Return the ms of `2h`."""
    return int(text[:-1]) * _UNITS[text[-1]]


def instant(text: str) -> int:
    """Return the epoch ms of an ISO 8601 text; UTC without an offset."""
    parsed = datetime.fromisoformat(text)
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1_000)


def is_zone(name: object) -> bool:
    """Return whether the value is an IANA name."""
    return isinstance(name, str) and _is_zone(name)


@cache
def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


@lru_cache(maxsize=1_000_000)
def wall_minute(zone: str, minute: int) -> int:
    """Return the minutes since the year 1 that a clock on the wall shows in the UTC minute `minute` since the epoch."""
    shown = datetime.fromtimestamp(minute * 60, ZoneInfo(zone))
    return shown.toordinal() * 1_440 + shown.hour * 60 + shown.minute


def is_quiet(zone: str, at: int, quiet_hours: dict[str, str]) -> bool:
    """Return whether the clock on the wall shows a time in `[from, to)`; `to` before `from` is on the next day."""
    shown = wall_minute(zone, at // MINUTE) % 1_440
    start, end = (int(quiet_hours[name][:2]) * 60 + int(quiet_hours[name][3:]) for name in ("from", "to"))
    return start <= shown < end if start <= end else shown >= start or shown < end


@lru_cache(maxsize=10_000)
def instant_of_local(zone: str, local: str) -> int:
    """Return the first instant at which the clock on the wall shows `local` or more: in a gap its end, ambiguous the first."""
    target = datetime.fromisoformat(local)
    wanted = target.toordinal() * 1_440 + target.hour * 60 + target.minute
    minute = earliest_instant_of_local(local) // MINUTE
    while wall_minute(zone, minute) < wanted:
        minute += 1
    return minute * MINUTE


def earliest_instant_of_local(local: str) -> int:
    """Return the instant of a local time in the earliest zone, UTC+14."""
    return instant((datetime.fromisoformat(local) - timedelta(hours=14)).isoformat())


def rank(salt: str, user_id: str) -> int:
    """Return the place of a user in hundredths of a percent: `murmur3_32(salt + ":" + user id) mod 10000`."""
    return murmur3_32(f"{salt}:{user_id}".encode()) % 10_000


def hundredths(percent: float) -> int:
    """Return a percentage with at most two decimals in the unit of a rank."""
    return round(percent * 100)


def murmur3_32(data: bytes) -> int:
    """Return the x86 variant with the seed 0, unsigned."""
    state, whole = 0, len(data) // 4 * 4
    for (block,) in struct.iter_unpack("<I", data[:whole]):
        state = (_rotated(state ^ _scrambled(block), 13) * 5 + 0xE6546B64) & _ROUND_MASK
    state ^= _scrambled(int.from_bytes(data[whole:], "little")) ^ len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = ((state ^ state >> shift) * factor) & _ROUND_MASK
    return state


def _scrambled(block: int) -> int:
    return _rotated(block * 0xCC9E2D51 & _ROUND_MASK, 15) * 0x1B873593 & _ROUND_MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _ROUND_MASK
