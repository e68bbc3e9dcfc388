"""Edge: middleware for the correlation id, the quota, the metrics, the log line and the 500 response of every request."""

import re
import time
import uuid
from collections.abc import Iterable, MutableMapping
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starling_api.http.problems import problem_response
from starling_common.http.rate_limits import RETRY_AFTER, Quota
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics

CORRELATION_HEADER: Final = b"x-correlation-id"
_SANE: Final = re.compile(rb"[\x21-\x7e]{1,100}")
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""A client can send any text as the method; without a bound each one would be a series."""


class Telemetry:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._requests = metrics.counter("starling_api_requests_total")
        self._seconds = metrics.histogram("starling_api_request_seconds")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        correlation_id = _correlation_id(scope)
        scope.setdefault("state", {})["correlation_id"] = correlation_id
        seen: dict[str, int] = {}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                sent = message.get("headers", [])
                message["headers"] = [*sent, (CORRELATION_HEADER, correlation_id.encode()), *_quota_fields(scope, sent)]
            await send(message)

        started = time.monotonic()
        with structlog.contextvars.bound_contextvars(correlation_id=correlation_id):
            try:
                await self._app(scope, receive, answer)
            except Exception:  # noqa: BLE001 - the client gets a response and the log an entry for any exception
                log(__name__).exception("request_failed", method=scope["method"], path=scope["path"])
                if "status" not in seen:
                    message = f"internal error; correlation id {correlation_id}"
                    await problem_response(500, "internal_error", message)(scope, receive, answer)
            self._record(scope, seen.get("status", 500), time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route).observe(seconds)
        if route not in PROBES:
            log(__name__).info("request_answered", method=scope["method"], route=route, status=status, ms=round(seconds * 1000, 1))


def _quota_fields(scope: Scope, sent: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the `RateLimit` fields of the response; none if the request was not limited."""
    quota: Quota | None = scope["state"].get("quota")
    if quota is None:
        return []
    retry_after = next((value.decode() for name, value in sent if name == RETRY_AFTER.encode()), None)
    return [(name.encode(), value.encode()) for name, value in quota.fields(retry_after)]


def _correlation_id(scope: MutableMapping[str, Any]) -> str:
    given = next((value for name, value in scope["headers"] if name == CORRELATION_HEADER), b"")
    return given.decode() if _SANE.fullmatch(given) else str(uuid.uuid4())
