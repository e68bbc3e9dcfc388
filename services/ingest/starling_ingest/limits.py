"""Pure core: the rate limits of each write key and workspace in this process. Callers pass the time in seconds."""

from dataclasses import dataclass

from starling_common.http.rate_limits import Bucket, Quota, Rate, quota_of


@dataclass(frozen=True)
class Rates:
    """The limits of one write key or of one workspace."""

    requests: Rate
    bytes: Rate
    items: Rate | None = None
    """None: only the workspace limits items."""


@dataclass(frozen=True)
class OverRate:
    """A request beyond a rate limit; it passes after `wait_seconds`. `limit` names the bucket, for the metrics."""

    limit: str
    wait_seconds: int


class Allowance:
    """The buckets of one write key or workspace."""

    __slots__ = ("bytes", "items", "requests")

    def __init__(self, rates: Rates) -> None:
        self.requests = Bucket(rates.requests)
        self.bytes = Bucket(rates.bytes)
        self.items = None if rates.items is None else Bucket(rates.items)


class RateLimits:
    """The allowances of all write keys and workspaces, each created at its first request. The write keys bound their number."""

    def __init__(self, key: Rates, workspace: Rates) -> None:
        self._key = key
        self._workspace = workspace
        self._keys: dict[str, Allowance] = {}
        self._workspaces: dict[str, Allowance] = {}

    def take_request(self, key: str, workspace: str, size_bytes: int, now_seconds: float) -> OverRate | None:
        """Take a request with a body of `size_bytes`; if a bucket has too little, take nothing and return the longest wait."""
        of_key, of_workspace = self._of_key(key), self._of_workspace(workspace)
        waits = (
            of_key.requests.wait(1, now_seconds),
            of_key.bytes.wait(size_bytes, now_seconds),
            of_workspace.requests.wait(1, now_seconds),
            of_workspace.bytes.wait(size_bytes, now_seconds),
        )
        if longest := max(waits):
            return OverRate(_LIMITS[waits.index(longest)], longest)
        for allowance in (of_key, of_workspace):
            allowance.requests.take(1, now_seconds)
            allowance.bytes.take(size_bytes, now_seconds)
        return None

    def take_items(self, workspace: str, count: int, now_seconds: float) -> OverRate | None:
        """Take `count` items of the workspace; if there are too few, take none and return the wait."""
        bucket = self._of_workspace(workspace).items
        if bucket is None:
            return None
        if wait_seconds := bucket.wait(count, now_seconds):
            return OverRate("workspace_items", wait_seconds)
        bucket.take(count, now_seconds)
        return None

    def requests_left(self, key: str, workspace: str, now_seconds: float) -> Quota:
        """Return the requests that are left to the key or to its workspace, whichever has fewer."""
        return quota_of((self._of_key(key).requests, self._of_workspace(workspace).requests), now_seconds)

    def _of_key(self, key: str) -> Allowance:
        found = self._keys.get(key)
        if found is None:
            found = self._keys[key] = Allowance(self._key)
        return found

    def _of_workspace(self, workspace: str) -> Allowance:
        found = self._workspaces.get(workspace)
        if found is None:
            found = self._workspaces[workspace] = Allowance(self._workspace)
        return found


_LIMITS = ("key_requests", "key_bytes", "workspace_requests", "workspace_bytes")
