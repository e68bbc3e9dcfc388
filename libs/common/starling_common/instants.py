"""Pure core: times in, epoch numbers out. The two functions that read the wall clock are at the end."""

import time
from datetime import UTC, datetime

from starling_common.values import EpochMicros, EpochMs

LATEST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z; anything later is no date that a person meant."""


def parse_instant(text: str) -> EpochMs:
    """ISO 8601 date or date-time to epoch milliseconds; without an offset it is UTC.

    Raises: ValueError that says what was expected.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as cause:
        raise ValueError(f"{text!r} is no ISO 8601 time such as 2026-01-31T09:00:00Z") from cause
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return EpochMs((delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000)


def format_instant(ms: int) -> str:
    """Epoch milliseconds to ISO 8601 in UTC with milliseconds and `Z`."""
    seconds, rest = divmod(ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:03d}Z"


def wall_clock_ms() -> EpochMs:
    """The wall clock; only for what is about the present, never for windows (those use stream time)."""
    return EpochMs(time.time_ns() // 1_000_000)


def wall_clock_micros() -> EpochMicros:
    """The wall clock in microseconds."""
    return EpochMicros(time.time_ns() // 1000)
