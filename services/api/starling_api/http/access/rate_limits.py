"""Edge: middleware for the rate limits of each workspace, token and client address in this process.

Reads and writes have separate buckets, so a busy reader never stops a change. A request without a known token counts for its
address, in the buckets of reads. Health, metrics, and preflights, which the CORS middleware answers, are not limited.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from fastapi.security.utils import get_authorization_scheme_param
from starlette.types import ASGIApp, Receive, Scope, Send

from starling_api.http.access.auth import Caller, Tokens
from starling_api.http.problems import problem_response
from starling_api.http.telemetry import PROBES
from starling_common.http.rate_limits import RETRY_AFTER, Bucket, Buckets, Quota, Rate, quota_of
from starling_common.http.server import network
from starling_common.telemetry.metrics import Metrics

_MOST_SENDERS: Final = 10_000
"""Most buckets of each kind; the addresses of a flood have no other bound."""
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_READING_POST: Final = re.compile(r"/v1/(?:memberships/lookup|policy/check|segments/preview|segments/[^/]+/diff)")
"""These operations have a body and change nothing: the role viewer may call them."""


class Rates(msgspec.Struct, frozen=True):
    """The limits in requests."""

    workspace_reads: Rate = Rate.of(1000)
    workspace_writes: Rate = Rate.of(200)
    token_reads: Rate = Rate.of(500)
    token_writes: Rate = Rate.of(100)
    address: Rate = Rate.of(100)


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about one request. `wait_seconds` is 0 if it passes; `scope` is the empty bucket's otherwise."""

    quota: Quota
    wait_seconds: int = 0
    scope: str = ""


class RateLimits:
    """The buckets of this process. Used from one event loop only."""

    def __init__(self, rates: Rates, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self._now = now_seconds
        self._address = Buckets(rates.address, _MOST_SENDERS)
        self._workspace = {
            False: Buckets(rates.workspace_reads, _MOST_SENDERS),
            True: Buckets(rates.workspace_writes, _MOST_SENDERS),
        }
        self._token = {False: Buckets(rates.token_reads, _MOST_SENDERS), True: Buckets(rates.token_writes, _MOST_SENDERS)}

    def take(self, caller: Caller | None, address: str, *, writes: bool) -> Admission:
        """Take one request of the caller, or of the address if the caller is unknown. A refused request takes nothing."""
        now = self._now()
        buckets = self._of(caller, address, now, writes=writes)
        waits = {scope: bucket.wait(1, now) for scope, bucket in buckets.items()}
        scope = max(waits, key=waits.__getitem__)
        if waits[scope]:
            return Admission(quota_of(tuple(buckets.values()), now), waits[scope], scope)
        for bucket in buckets.values():
            bucket.take(1, now)
        return Admission(quota_of(tuple(buckets.values()), now))

    def _of(self, caller: Caller | None, address: str, now: float, *, writes: bool) -> dict[str, Bucket]:
        if caller is None:
            return {"address": self._address.of(network(address), now)}
        return {
            "workspace": self._workspace[writes].of(caller.workspace, now),
            "token": self._token[writes].of(f"{caller.workspace}/{caller.name}", now),
        }


class RateLimiting:
    """ASGI middleware that refuses requests over a rate limit before their body is read. `Telemetry` sends the quota."""

    def __init__(self, app: ASGIApp, limits: RateLimits, tokens: Tokens, metrics: Metrics) -> None:
        self._app = app
        self._limits = limits
        self._tokens = tokens
        self._refused = metrics.counter("starling_api_rate_limited_total")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        writes = not is_read(scope["method"], scope["path"])
        found = self._limits.take(self._caller(scope), (scope.get("client") or ("",))[0], writes=writes)
        scope["state"]["quota"] = found.quota
        if not found.wait_seconds:
            await self._app(scope, receive, send)
            return
        kind = "write" if writes else "read"
        self._refused.labels(found.scope, kind).inc()
        message = f"this {found.scope} is over its rate limit of {kind}s: send the request again after Retry-After"
        refused = problem_response(429, "rate_limited", message)
        refused.headers[RETRY_AFTER] = str(found.wait_seconds)
        await refused(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | None:
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, token = get_authorization_scheme_param(sent.decode("latin-1"))
        return self._tokens.caller(token) if scheme.lower() == "bearer" else None


def is_read(method: str, path: str) -> bool:
    """Return whether a request changes nothing."""
    return method in _READS or (method == "POST" and _READING_POST.fullmatch(path) is not None)
