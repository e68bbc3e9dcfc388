"""Pure core: the rate of each target: a token bucket, of which this process has the share of its partitions.

The partitions of both consumer groups count. Each of them belongs to one process, so the shares of all processes add up to one at
most, and so do their rates.
"""

from collections.abc import Callable
from typing import Final

_BURST_SECONDS: Final = 0.1
"""Requests of so many seconds may be sent at once, one at least."""

_AHEAD_SECONDS: Final = 10.0
"""A lane has requests for so many seconds. Further messages are postponed until their turn."""

_LONGEST_TURN_SECONDS: Final = 86_400.0
"""Messages are given up after so many seconds by default. A turn is not later."""

_ALMOST_ONE: Final = 1 - 1e-9
"""A token, in spite of the rounding of its parts."""

_LEAST_WAITING: Final = 16
_NO_SHARE_SECONDS: Final = 1.0
"""A process without partitions looks again after so many seconds."""


class PartitionShare:
    """The share of the partitions of several consumer groups. One thread of each group writes, others may read."""

    def __init__(self, *groups: str) -> None:
        self._assigned = dict.fromkeys(groups, 0)
        self._total = dict.fromkeys(groups, 0)

    def assign(self, group: str, assigned: int, total: int) -> None:
        """Note how many of its partitions the group has given to this process. `total` 0: as before."""
        self._assigned[group], self._total[group] = assigned, total or self._total[group]

    def has_counted(self, group: str) -> bool:
        """Return whether the partitions of the group are known."""
        return self._total[group] > 0

    def __call__(self) -> float:
        """Return the share, between 0 and 1; 0 until the partitions of every group have been counted."""
        totals = list(self._total.values())
        return min(1.0, sum(self._assigned.values()) / sum(totals)) if all(totals) else 0.0


class Bucket:
    """The requests that one target may get from this process. Times are monotonic, in seconds."""

    def __init__(self, rate: float, share: Callable[[], float], since: float) -> None:
        """`rate`: requests a second of all processes. `since`: the time at which the bucket was empty."""
        self.rate = rate
        self._share = share
        self._tokens = 0.0
        self._at = since
        self._turn = since
        """The time at which the last postponed message has its turn."""

    @property
    def own_rate(self) -> float:
        """The requests a second of this process."""
        return self.rate * self._share()

    @property
    def most_waiting(self) -> int:
        """The maximum of requests that wait in the lane."""
        return max(_LEAST_WAITING, int(self.own_rate * _AHEAD_SECONDS))

    def wait(self, now: float) -> float:
        """Return the seconds until the next request may be sent; 0 if it may be sent now."""
        self._fill(now)
        if self._tokens >= _ALMOST_ONE:
            return 0.0
        rate = self.own_rate
        return (1 - self._tokens) / rate if rate else _NO_SHARE_SECONDS

    def take(self, now: float) -> None:
        """Count a request. It may be sent ahead of its time; others then wait longer."""
        self._fill(now)
        self._tokens -= 1

    def behind_seconds(self, now: float) -> float:
        """Return the seconds until the requests that were taken ahead are within the rate."""
        self._fill(now)
        rate = self.own_rate
        missing = max(0.0, -self._tokens)
        return missing / rate if rate else _NO_SHARE_SECONDS * bool(missing)

    def turn_seconds(self, now: float, waiting: float, size: float = 1.0) -> float:
        """Return the seconds until a postponed message has its turn: after `waiting` requests and those postponed before.

        `size`: its part of a request, below 1 in batches.
        """
        rate = self.own_rate or self.rate
        self._turn = min(max(self._turn, now + waiting / rate) + size / rate, now + _LONGEST_TURN_SECONDS)
        return self._turn - now

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is as if it had never been used."""
        self._fill(now)
        return self._tokens >= self._most() and self._turn <= now

    def _most(self) -> float:
        return max(1.0, self.own_rate * _BURST_SECONDS)

    def _fill(self, now: float) -> None:
        # Two threads never fill, and the clock never goes back. A smaller share takes away what it would not have gathered.
        self._tokens = min(self._most(), self._tokens + max(0.0, now - self._at) * self.own_rate)
        self._at = max(self._at, now)


class Rates:
    """The buckets of the targets that have a rate."""

    def __init__(self, share: Callable[[], float], now: float) -> None:
        """`now`: the start of the process, at which every bucket is empty: a process that restarts repeatedly sends no more."""
        self._share = share
        self._since = now
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def of(self, workspace: str, target: str, rate: float) -> Bucket:
        """Return the bucket of a target. A changed rate applies to what the bucket already has."""
        found = self._buckets.get((workspace, target))
        if found is None:
            found = self._buckets[workspace, target] = Bucket(rate, self._share, self._since)
        found.rate = rate
        return found

    def forget_full(self, now: float) -> None:
        """Drop the buckets that need not be remembered, so that the memory is bounded by the number of targets in use."""
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_full(now)}
