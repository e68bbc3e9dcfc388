"""Pure core: the rate limits of each write key and workspace in this process. Callers pass the time in seconds.

A limit is a token bucket in the form of the generic cell rate algorithm (ITU-T I.371): one number per bucket, the instant at which
the bucket is full again.
"""

import math
from typing import Final

import msgspec

_BURST_SECONDS: Final = 2.0
_ROUNDING_SECONDS: Final = 1e-6


class Rate(msgspec.Struct, frozen=True):
    """Units per second, and the most units at once."""

    per_second: float
    burst: float

    @classmethod
    def of(cls, per_second: float, least_burst: float = 1.0) -> "Rate":
        """Return a rate whose burst is the quantity of two seconds, but at least `least_burst`."""
        return cls(per_second, max(per_second * _BURST_SECONDS, least_burst))


class Rates(msgspec.Struct, frozen=True):
    """The limits of one write key or of one workspace."""

    requests: Rate
    bytes: Rate
    items: Rate | None = None
    """None: only the workspace limits items."""


class Allowance(msgspec.Struct):
    """The buckets of one write key or workspace: for each the instant at which it is full again."""

    rates: Rates
    requests_full_at: float = 0.0
    bytes_full_at: float = 0.0
    items_full_at: float = 0.0

    def wait_for_request(self, size_bytes: int, now_seconds: float) -> float:
        """Return the seconds until a request of this size passes; 0 or less if it passes now. Takes nothing."""
        rates = self.rates
        return max(
            _wait(rates.requests, self.requests_full_at, 1, now_seconds),
            _wait(rates.bytes, self.bytes_full_at, size_bytes, now_seconds),
        )

    def take_request(self, size_bytes: int, now_seconds: float) -> None:
        """Take one request of this size."""
        rates = self.rates
        self.requests_full_at = max(self.requests_full_at, now_seconds) + 1 / rates.requests.per_second
        self.bytes_full_at = max(self.bytes_full_at, now_seconds) + size_bytes / rates.bytes.per_second


class RateLimits:
    """The allowances of all write keys and workspaces, each created at its first request. The write keys bound their number."""

    def __init__(self, key: Rates, workspace: Rates) -> None:
        self._key = key
        self._workspace = workspace
        self._keys: dict[str, Allowance] = {}
        self._workspaces: dict[str, Allowance] = {}

    def take_request(self, key: str, workspace: str, size_bytes: int, now_seconds: float) -> int:
        """Take a request with a body of `size_bytes` and return 0; if a bucket has too little, take nothing.

        The result is then the whole seconds to wait.
        """
        by_key = self._keys.get(key)
        if by_key is None:
            by_key = self._keys[key] = Allowance(self._key)
        by_workspace = self._of(workspace)
        wait = max(by_key.wait_for_request(size_bytes, now_seconds), by_workspace.wait_for_request(size_bytes, now_seconds))
        if wait > _ROUNDING_SECONDS:
            return math.ceil(wait)
        by_key.take_request(size_bytes, now_seconds)
        by_workspace.take_request(size_bytes, now_seconds)
        return 0

    def take_items(self, workspace: str, count: int, now_seconds: float) -> int:
        """Take `count` items of the workspace and return 0; if there are too few, take none and return the seconds to wait."""
        rate = self._workspace.items
        if rate is None:
            return 0
        allowance = self._of(workspace)
        wait = _wait(rate, allowance.items_full_at, count, now_seconds)
        if wait > _ROUNDING_SECONDS:
            return math.ceil(wait)
        allowance.items_full_at = max(allowance.items_full_at, now_seconds) + count / rate.per_second
        return 0

    def _of(self, workspace: str) -> Allowance:
        found = self._workspaces.get(workspace)
        if found is None:
            found = self._workspaces[workspace] = Allowance(self._workspace)
        return found


def _wait(rate: Rate, full_at: float, count: float, now_seconds: float) -> float:
    # A quantity over the burst passes when the bucket is full: waiting longer would not help its sender.
    count = min(count, rate.burst)
    return max(full_at, now_seconds) + (count - rate.burst) / rate.per_second - now_seconds
