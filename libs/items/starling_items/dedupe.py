"""Pure core: which message ids a profile has seen in the last 24 hours of stream time."""

import hashlib
from typing import Final

import msgspec

WINDOW_MS: Final = 24 * 3_600_000

MAX_SEEN: Final = 4_096
"""Ids kept for one profile, about 60 KB. Who sends more than these in 24 hours is a machine; its oldest are forgotten first."""


class Seen(msgspec.Struct, array_like=True):
    """Hashes of message ids, in the order in which they were seen.

    `ages` are milliseconds after `since_ms`, which keeps an entry near 14 bytes when it is stored.
    """

    since_ms: int = 0
    ages: dict[int, int] = {}


def message_hash(message_id: str) -> int:
    """8 bytes of a hash that is the same in every process and for ever."""
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=8).digest(), "big")


def is_duplicate(seen: Seen, message: int, now_ms: int) -> bool:
    """Whether the id was seen less than 24 hours before `now_ms`, a stream time."""
    age = seen.ages.get(message)
    return age is not None and now_ms - (seen.since_ms + age) < WINDOW_MS


def remember(seen: Seen, message: int, now_ms: int) -> None:
    """Note the id as seen at `now_ms`, and let go of those that are too old or too many. Changes `seen` in place."""
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
