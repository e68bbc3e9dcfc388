"""Pure core: compute the event time of a call (contract, part 3)."""

from typing import Final

from starling_common.outcome import Refused
from starling_common.time.instants import LATEST_MS, parse_instant
from starling_common.values import EpochMs

MAX_AHEAD_MS: Final = 5 * 60_000
"""Most time that a corrected event time may lie after its receipt; a later one indicates a wrong clock."""


def event_time(timestamp: str | None, sent_at: str | None, received_ms: int, *, as_sent: bool) -> EpochMs | Refused:
    """Return the sender's `timestamp`, corrected for the skew of the sender's clock; `received_ms` if it is missing.

    `as_sent` (imported history, and the event clock): the timestamp is not corrected, and `sent_at` is ignored.
    """
    if timestamp is None:
        return EpochMs(received_ms)
    happened = _instant("timestamp", timestamp)
    if as_sent or isinstance(happened, Refused):
        return happened
    corrected = _corrected(happened, sent_at, received_ms)
    if not isinstance(corrected, Refused) and corrected > received_ms + MAX_AHEAD_MS:
        return EpochMs(received_ms)
    return corrected


def _corrected(happened_ms: int, sent_at: str | None, received_ms: int) -> EpochMs | Refused:
    if sent_at is None:
        return EpochMs(happened_ms)
    sent = _instant("sentAt", sent_at)
    if isinstance(sent, Refused):
        return sent
    corrected = received_ms - (sent - happened_ms)
    if corrected < 0:
        return Refused("bad_timestamp", "timestamp: is before 1970 after correction by sentAt: send both from the same clock")
    return EpochMs(corrected)


def _instant(place: str, text: str) -> EpochMs | Refused:
    try:
        instant = parse_instant(text)
    except ValueError as error:
        return Refused("bad_timestamp", f"{place}: {str(error)[:200]}")
    if not 0 <= instant <= LATEST_MS:
        return Refused("bad_timestamp", f"{place}: {text!r} is not between the years 1970 and 9999: send the event's time")
    return instant
