"""Pure core: detect message ids that a profile received within the duplicates window, in stream time."""

import hashlib
import struct
from typing import Final

import msgspec

DEFAULT_WINDOW_MS: Final = 7 * 24 * 3_600_000

MAX_SEEN: Final = 4_096
"""Most ids kept for one profile, 48 KiB. Only an automated sender exceeds it; the oldest ids are dropped."""

_MINUTE_MS: Final = 60_000
_HASH: Final = struct.Struct(">Q")
_MINUTE: Final = struct.Struct(">I")


class SeenMessages(msgspec.Struct, array_like=True):
    """Hashes of message ids in the order in which they were seen, 8 bytes each, and the minute of each, 4 bytes.

    Minutes are counted from 1970 in stream time; four bytes contain the year 9999. Both are packed as big-endian numbers: a profile
    with 4,096 ids is read, extended and written in 0.04 ms, and in 1 ms with one number for each id.
    """

    hashes: bytes = b""
    minutes: bytes = b""


class SeenBefore(msgspec.Struct, array_like=True):
    """The ids as stored in format 1: hash -> milliseconds after `since_ms`, in the order in which they were seen."""

    since_ms: int = 0
    ages: dict[int, int] = {}


def message_hash(message_id: str) -> int:
    """Return an 8-byte hash that is stable across processes and versions: it is part of the stored state."""
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=8).digest(), "big")


def is_duplicate(seen: SeenMessages, message: int, now_ms: int, window_ms: int) -> bool:
    """Return whether the id was seen within the window before `now_ms`, a stream time; the window ends with a whole minute."""
    place = _place(seen.hashes, _HASH.pack(message))
    return place is not None and now_ms // _MINUTE_MS - _minute(seen, place) <= window_ms // _MINUTE_MS


def remember(seen: SeenMessages, message: int, now_ms: int, window_ms: int) -> None:
    """Record the id as seen at `now_ms`; drop ids beyond the window and the limit. Changes `seen` in place."""
    minute = now_ms // _MINUTE_MS
    count = len(seen.hashes) // _HASH.size
    gone = max(0, count + 1 - MAX_SEEN)
    while gone < count and minute - _minute(seen, gone) > window_ms // _MINUTE_MS:
        gone += 1
    seen.hashes = seen.hashes[gone * _HASH.size :] + _HASH.pack(message)
    seen.minutes = seen.minutes[gone * _MINUTE.size :] + _MINUTE.pack(minute)


def from_format_1(before: SeenBefore) -> SeenMessages:
    """Return the ids of a profile that was stored in format 1."""
    minutes = [(before.since_ms + age_ms) // _MINUTE_MS for age_ms in before.ages.values()]
    count = len(minutes)
    return SeenMessages(struct.pack(f">{count}Q", *before.ages), struct.pack(f">{count}I", *minutes))


def to_format_1(seen: SeenMessages) -> SeenBefore:
    """Return the ids as format 1 stores them; their ages are whole minutes."""
    count = len(seen.hashes) // _HASH.size
    minutes = struct.unpack(f">{count}I", seen.minutes)
    since = minutes[0] if minutes else 0
    ages = [(minute - since) * _MINUTE_MS for minute in minutes]
    return SeenBefore(since * _MINUTE_MS, dict(zip(struct.unpack(f">{count}Q", seen.hashes), ages, strict=True)))


def _place(hashes: bytes, wanted: bytes) -> int | None:
    """Return the index of a message hash among the stored ones; None if it is missing."""
    # Hot: one search in C instead of a loop over the ids. A match across two hashes is passed over.
    at = hashes.find(wanted)
    while at >= 0 and at % _HASH.size:
        at = hashes.find(wanted, at + 1)
    return None if at < 0 else at // _HASH.size


def _minute(seen: SeenMessages, place: int) -> int:
    return int(_MINUTE.unpack_from(seen.minutes, place * _MINUTE.size)[0])
