"""Pure core: conversion between ISO 8601 and epoch numbers. The last two functions read the wall clock."""

import time
from datetime import UTC, datetime
from functools import lru_cache

from starling_common.values import EpochMicros, EpochMs

LATEST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the latest valid time; a later one is a mistake of its sender."""

EARLIEST_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z, the earliest instant that can be written as a date."""

LONGEST_APPEND_MS = 12_000
"""The longest time from `received_at` to the append with which a record is ordered by its `received_at`.

A record that is appended later is ordered by the append. The watermark of a source does not pass a record in that time, unless the
broker has answered.
"""

MAX_EDGE_AHEAD_MS = 5 * 60_000
"""Most time by which the clock of an edge may be ahead of the broker's; an item received later than that is refused."""


def parse_instant(text: str) -> EpochMs:
    """Return the epoch milliseconds of an ISO 8601 date or date-time; the default offset is UTC.

    Raises: ValueError that names the expected form.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as cause:
        raise ValueError(f"{text!r} is no ISO 8601 time such as 2026-01-31T09:00:00Z") from cause
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return EpochMs((delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000)


def record_timestamp_ms(received_at: int, now_ms: int) -> EpochMs:
    """Return the timestamp in Kafka of a record for an arrival (µs).

    It is the arrival, or the present if that is no past time since 1970. The broker refuses other timestamps, and a dead letter
    that it refuses would be written again without end.
    """
    return EpochMs(min(received_at // 1000, now_ms) if received_at >= 0 else now_ms)


def format_instant(ms: int) -> str:
    """Return ISO 8601 in UTC with milliseconds and `Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    # The instants of a record, and of those beside it, are often in one second.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def wall_clock_ms() -> EpochMs:
    """Return the wall clock in milliseconds. Windows must not use it: they use stream time."""
    return EpochMs(time.time_ns() // 1_000_000)


def wall_clock_micros() -> EpochMicros:
    """Return the wall clock in microseconds."""
    return EpochMicros(time.time_ns() // 1000)
