"""Pure core: rate limits as token buckets, and the `RateLimit` fields that report them. Callers pass the time in seconds.

A bucket has the form of the generic cell rate algorithm (ITU-T I.371): one number, the instant at which it is full again. The
fields are those of draft-ietf-httpapi-ratelimit-headers-06, which clients read. Later drafts replace them by one structured field.
"""

import math
from dataclasses import dataclass
from typing import Final

_BURST_SECONDS: Final = 2.0
_ROUNDING_SECONDS: Final = 1e-6

LIMIT: Final = "ratelimit-limit"
REMAINING: Final = "ratelimit-remaining"
RESET: Final = "ratelimit-reset"
RETRY_AFTER: Final = "retry-after"
EXPOSED: Final = ("Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
"""The fields that browsers must be allowed to read."""


@dataclass(frozen=True)
class Rate:
    """Units per second, and the most units at once."""

    per_second: float
    burst: float

    @classmethod
    def of(cls, per_second: float, least_burst: float = 1.0) -> "Rate":
        """Return a rate whose burst is the quantity of two seconds, but at least `least_burst`."""
        return cls(per_second, max(per_second * _BURST_SECONDS, least_burst))


class Bucket:
    """The units that one sender may still use."""

    __slots__ = ("_full_at", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._full_at = 0.0

    def wait(self, count: float, now_seconds: float) -> int:
        """Return the whole seconds until `count` units pass; 0 if they pass now. Takes nothing.

        A quantity over the burst passes when the bucket is full: waiting longer would not help its sender.
        """
        rate = self.rate
        seconds = max(self._full_at, now_seconds) + (min(count, rate.burst) - rate.burst) / rate.per_second - now_seconds
        return math.ceil(seconds) if seconds > _ROUNDING_SECONDS else 0

    def take(self, count: float, now_seconds: float) -> None:
        """Take `count` units."""
        self._full_at = max(self._full_at, now_seconds) + count / self.rate.per_second

    def empty_seconds(self, now_seconds: float) -> float:
        """Return the seconds until the bucket is full; 0 or less if it is full."""
        return self._full_at - now_seconds

    def left(self, now_seconds: float) -> float:
        """Return the units that are left; below 0 after a quantity over the burst."""
        rate = self.rate
        return rate.burst - max(self._full_at - now_seconds, 0.0) * rate.per_second


@dataclass(frozen=True)
class Quota:
    """The state of a bucket as a response reports it. `reset_seconds`: until the bucket is full."""

    limit: int
    remaining: int
    reset_seconds: int

    def fields(self, retry_after: str | None) -> list[tuple[str, str]]:
        """Return the response fields. With a `Retry-After` nothing remains, and both name the same instant."""
        remaining, reset = (str(self.remaining), str(self.reset_seconds)) if retry_after is None else ("0", retry_after)
        return [(LIMIT, str(self.limit)), (REMAINING, remaining), (RESET, reset)]


def quota_of(buckets: tuple[Bucket, ...], now_seconds: float) -> Quota:
    """Return the state of the bucket with the fewest units left."""
    least, left = buckets[0], buckets[0].left(now_seconds)
    for bucket in buckets[1:]:
        if (units := bucket.left(now_seconds)) < left:
            least, left = bucket, units
    rate = least.rate
    rounding = _ROUNDING_SECONDS * rate.per_second  # as in `wait`
    return Quota(int(rate.burst + rounding), max(int(left + rounding), 0), max(math.ceil(least.empty_seconds(now_seconds)), 0))


class Buckets:
    """The buckets of many senders, at most `most`; a sender without one has a full one."""

    def __init__(self, rate: Rate, most: int) -> None:
        self._rate = rate
        self._most = most
        self._by_sender: dict[str, Bucket] = {}

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._by_sender)

    def of(self, sender: str, now_seconds: float) -> Bucket:
        """Return the sender's bucket. Beyond the most, full buckets are dropped, then those that were created first."""
        found = self._by_sender.get(sender)
        if found is None:
            if len(self._by_sender) >= self._most:
                self._make_room(now_seconds)
            found = self._by_sender[sender] = Bucket(self._rate)
        return found

    def _make_room(self, now_seconds: float) -> None:
        kept = {sender: bucket for sender, bucket in self._by_sender.items() if bucket.empty_seconds(now_seconds) > 0}
        # A part is removed at once, so that a flood of senders does not copy the table for each of them.
        beyond = max(len(kept) - self._most * 3 // 4, 0)
        for sender in list(kept)[:beyond]:
            del kept[sender]
        self._by_sender = kept
