"""Pure core: detect message ids that a profile received in the last 24 hours of stream time."""

import hashlib
from typing import Final

import msgspec

WINDOW_MS: Final = 24 * 3_600_000

MAX_SEEN: Final = 4_096
"""Most ids kept for one profile, about 60 KB. Only an automated sender exceeds it in 24 hours; the oldest ids are dropped."""


class SeenMessages(msgspec.Struct, array_like=True):
    """Hashes of message ids, in the order in which they were seen.

    `ages` are milliseconds after `since_ms`, which keeps an entry near 14 bytes when it is stored.
    """

    since_ms: int = 0
    ages: dict[int, int] = {}


def message_hash(message_id: str) -> int:
    """Return an 8-byte hash that is stable across processes and versions: it is part of the stored state."""
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=8).digest(), "big")


def is_duplicate(seen: SeenMessages, message: int, now_ms: int) -> bool:
    """Return whether the id was seen less than 24 hours before `now_ms`, a stream time."""
    age = seen.ages.get(message)
    return age is not None and now_ms - (seen.since_ms + age) < WINDOW_MS


def remember(seen: SeenMessages, message: int, now_ms: int) -> None:
    """Record the id as seen at `now_ms`; drop ids beyond the window and the limit. Changes `seen` in place."""
    ages = seen.ages
    ages.pop(message, None)
    oldest_ms = now_ms - WINDOW_MS - seen.since_ms
    while ages:
        first = next(iter(ages))
        if ages[first] > oldest_ms and len(ages) < MAX_SEEN:
            break
        del ages[first]
    if not ages:
        seen.since_ms = now_ms
    ages[message] = now_ms - seen.since_ms
