"""Pure core: how many items a second a workspace may send through this process. Time is handed in, in seconds."""

import math

import msgspec


class TokenBucket(msgspec.Struct):
    """Fills at `per_second` up to `burst`; each item takes one. Times come from one monotonic clock."""

    per_second: float
    burst: float
    left: float
    at_seconds: float

    def take(self, count: int, now_seconds: float) -> int:
        """0 when the items may pass; else nothing is taken, and the answer is how many whole seconds to wait."""
        self.left = min(self.burst, self.left + (now_seconds - self.at_seconds) * self.per_second)
        self.at_seconds = now_seconds
        if count <= self.left:
            self.left -= count
            return 0
        return max(1, math.ceil((min(count, self.burst) - self.left) / self.per_second))


class RateLimits:
    """One bucket a workspace, made when the workspace is first seen; the workspaces are those of the write keys."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, workspace: str, count: int, now_seconds: float) -> int:
        """As `TokenBucket.take`, of that workspace's bucket."""
        bucket = self._buckets.get(workspace)
        if bucket is None:
            bucket = self._buckets[workspace] = TokenBucket(self._per_second, self._burst, self._burst, now_seconds)
        return bucket.take(count, now_seconds)
