"""Pure core: the rate limit of each workspace in this process, in items per second. Callers pass the time in seconds."""

import math

import msgspec


class TokenBucket(msgspec.Struct):
    """A token bucket: refilled at `per_second` up to `burst`; one token per item. Times come from one monotonic clock."""

    per_second: float
    burst: float
    left: float
    at_seconds: float

    def take(self, count: int, now_seconds: float) -> int:
        """Take `count` tokens and return 0; if there are too few, take none and return the whole seconds to wait."""
        self.left = min(self.burst, self.left + (now_seconds - self.at_seconds) * self.per_second)
        self.at_seconds = now_seconds
        if count <= self.left:
            self.left -= count
            return 0
        return max(1, math.ceil((min(count, self.burst) - self.left) / self.per_second))


class RateLimits:
    """One token bucket per workspace, created at the first request. The number of workspaces is bounded by the write keys."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, workspace: str, count: int, now_seconds: float) -> int:
        """Call `TokenBucket.take` on the workspace's bucket."""
        bucket = self._buckets.get(workspace)
        if bucket is None:
            bucket = self._buckets[workspace] = TokenBucket(self._per_second, self._burst, self._burst, now_seconds)
        return bucket.take(count, now_seconds)
