"""Edge: the HTTP application, on granian's RSGI protocol."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, Protocol

import msgspec

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import INGEST_KINDS
from starling_common.outcome import Done, Outcome, Refused
from starling_common.telemetry.health import Checks, checks_answer
from starling_common.telemetry.logs import log
from starling_common.telemetry.traces import EDGE, Span, Traces
from starling_common.wire import PROTOBUF, Receipt
from starling_ingest import answers
from starling_ingest.answers import Answer
from starling_ingest.bodies import SlowBodies
from starling_ingest.counts import Counts
from starling_ingest.limits import OverRate, RateLimits
from starling_ingest.publishing.intake import Intake, Origin, QueueFull
from starling_ingest.requests import request
from starling_ingest.requests.accept import ParsedBody, accept_batch, accept_single, body_write_key
from starling_ingest.requests.identifiers import Identifiers
from starling_ingest.requests.messages import accept_batch_message, accept_single_message, message_write_key
from starling_ingest.write_keys import Grant, WriteKeys

BROKER_RETRY_SECONDS: Final = 5
QUEUE_RETRY_SECONDS: Final = 1
_DRAINED_BYTES: Final = 4 * 2**20
"""Most bytes of a refused body that are read and discarded. A client that is still writing would not see the response."""

_POST: Final = "POST, OPTIONS"
_GET: Final = "GET, HEAD, OPTIONS"
_BROWSER_SETTINGS: Final = re.compile(r"/v1/projects/([^/]+)/settings")
_SOURCE_CONFIG: Final = frozenset({"/sourceConfig", "/sourceConfig/"})
_CLIENT_METRICS: Final = "/v1/m"
"""Segment's browser client posts its own metrics to this path, without a write key."""
_HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_NO_KEY: Final = Refused(
    "unknown_write_key",
    "no write key: send it as the user name of HTTP Basic, as X-Write-Key, as ?writeKey= or as writeKey in the body",
)
_UNKNOWN_KEY: Final = Refused("unknown_write_key", "unknown write key: check the key in the client's configuration")


_KEYS_UNREAD: Final = Refused("not_ready", "this process has not read the write keys yet: send the same request again")


class Scope(Protocol):
    """A request's metadata, as granian passes it."""

    method: str
    path: str
    query_string: str
    scheme: str
    client: str
    authority: str | None

    @property
    def headers(self) -> request.Headers: ...  # noqa: D102


class Exchange(Protocol):
    """The body of one request, and the method that sends the response."""

    def __call__(self) -> Awaitable[bytes]: ...  # noqa: D102
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...  # noqa: D102


class Route(msgspec.Struct, frozen=True):
    """A path that accepts items. `kind` is None if the body is a batch; `name` is the long form, for metrics and dead letters.

    `scope` is what a write key needs for it.
    """

    name: str
    kind: str | None
    scope: str
    imported: bool = False


class AppDependencies(msgspec.Struct, frozen=True):
    """The dependencies of `App`. `edge` is the name of this process; `traces` is None while they are off."""

    write_keys: WriteKeys
    edge: str
    limits: RateLimits
    bodies: SlowBodies
    counts: Counts
    alive: Checks
    ready: Checks
    traces: Traces | None = None


def _routes() -> dict[str, Route]:
    routes = {f"/v1/{kind}": Route(f"/v1/{kind}", kind, kind) for kind in INGEST_KINDS}
    routes["/v1/batch"] = Route("/v1/batch", None, "batch")
    # Segment's browser client uses the first letter of each path.
    routes |= {f"/v1/{path[4]}": route for path, route in routes.items()}
    # RudderStack's browser client sends to the first path on unload; Jitsu's clients send to the others.
    routes["/beacon/v1/batch"] = routes["/v1/batch"]
    for kind in INGEST_KINDS:
        routes[f"/api/s/{kind}"] = routes[f"/api/s/s2s/{kind}"] = routes[f"/v1/{kind}"]
    return routes | {"/v1/import": Route("/v1/import", None, "import", imported=True)}


ROUTES: Final = _routes()


class App:
    """The HTTP application. It answers 503 before `open` and after `close`."""

    def __init__(self, dependencies: AppDependencies) -> None:
        self.requests_open = 0
        self._dependencies = dependencies
        self._counts = dependencies.counts
        self._identifiers = Identifiers()
        self._intake: Intake | None = None
        self._drained: asyncio.Event | None = None

    def open(self, intake: Intake) -> None:
        """Start to accept items."""
        self._intake = intake

    async def close(self) -> None:
        """Stop accepting items; return when every open request has its response."""
        self._intake = None
        self._drained = asyncio.Event()
        if self.requests_open:
            await self._drained.wait()

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        # A request that arrives after `close` gets 503 and is not counted: its sender could delay the stop without end.
        admitted = self._intake is not None
        self.requests_open += admitted
        try:
            await self._serve(scope, exchange)
        except Exception:  # noqa: BLE001 - an unexpected error must not leave the client without a response
            log(__name__).exception("request_failed", path=scope.path)
            answer = answers.failed(500, "internal_error", "internal error: send the same request again", "none")
            exchange.response_bytes(answer.status, answer.headers, answer.body)
            self._counts.answered("other", "500", None)
        finally:
            self.requests_open -= admitted
            if self._drained is not None and not self.requests_open:
                self._drained.set()

    async def _serve(self, scope: Scope, exchange: Exchange) -> None:
        route = ROUTES.get(scope.path)
        if route is None or scope.method != "POST":
            name, answer = self._page(scope)
            if name == _CLIENT_METRICS:
                await _drain(exchange)
            exchange.response_bytes(answer.status, answer.headers, answer.body)
            self._counts.answered(name, str(answer.status), None)
            return
        answer, started = await self._items(route, scope, exchange)
        exchange.response_bytes(answer.status, answer.headers, answer.body)
        self._counts.answered(route.name, str(answer.status), time.perf_counter() - started)

    async def _items(self, route: Route, scope: Scope, exchange: Exchange) -> tuple[Answer, float]:
        headers = scope.headers
        correlation_id = request.correlation_id(headers, self._identifiers)
        key = request.write_key(headers, scope.query_string, self._dependencies.write_keys.listed)
        sender = None if key is None else self._granted(key, route)
        refused = isinstance(sender, Refused)
        try:
            packed = await self._dependencies.bodies.read(_drain(exchange) if refused else _packed(headers, exchange))
        except TimeoutError:
            return answers.body_timeout(correlation_id), time.perf_counter()
        started = time.perf_counter()
        if isinstance(sender, Refused):
            return _refused_key(sender, correlation_id), started
        body = request.too_large() if packed is None else request.unpack(packed, headers.get("content-encoding"))
        if not isinstance(body, Done):
            return answers.refused(_as_refused(body), correlation_id), started
        # Clients send JSON under any content type. A body that begins with `{` is JSON: no message begins with that byte.
        protobuf = body.value[:1] != b"{" and (headers.get("content-type") or "").startswith(PROTOBUF)
        if sender is None:
            sender = self._sender_in(body.value, route, protobuf=protobuf)
        if isinstance(sender, Refused):
            return _refused_key(sender, correlation_id), started
        receipt = self._receipt(sender.workspace, route, scope, correlation_id)
        span = self._span(route, receipt, headers)
        origin = Origin(receipt, route.name, self._traceparent(span, headers))
        try:
            answer = await self._limited(sender, route, body.value, origin, started, protobuf=protobuf)
            if span is not None:
                span.set("http.response.status_code", answer.status)
        finally:
            if span is not None:
                span.end()
        quota = self._dependencies.limits.requests_left(sender.identifier, sender.workspace, time.perf_counter())
        return answers.with_quota(answer, quota), started

    def _span(self, route: Route, receipt: Receipt, headers: request.Headers) -> Span | None:
        """Return the span of a request of a sampled trace. The trace context of a client is its parent."""
        traces = self._dependencies.traces
        if traces is None:
            return None
        attributes = {
            "http.request.method": "POST",
            "http.route": route.name,
            "starling.workspace": receipt.workspace,
            "starling.correlation_id": receipt.correlation_id,
        }
        return traces.begin(f"POST {route.name}", request.sent_traceparent(headers), EDGE, attributes)

    def _traceparent(self, span: Span | None, headers: request.Headers) -> str:
        if span is not None:
            return span.traceparent
        if self._dependencies.traces is None:
            return request.traceparent(headers, self._identifiers)
        # A later stage would otherwise record a trace without the span of its request.
        return request.sent_traceparent(headers) or f"{self._identifiers.traceparent()[:-2]}00"

    def _receipt(self, workspace: str, route: Route, scope: Scope, correlation_id: str) -> Receipt:
        user_agent = request.user_agent(scope.headers)
        return Receipt(workspace, route.imported, correlation_id, _address(scope.client), user_agent, self._dependencies.edge)

    def _granted(self, key: str, route: Route) -> Grant | Refused:
        """Return what the key may do, if that includes the route."""
        grant = self._dependencies.write_keys.grant(key)
        if grant is None:
            return _UNKNOWN_KEY if self._dependencies.write_keys.is_complete() else _KEYS_UNREAD
        return grant if route.scope in grant.scopes else _out_of_scope(grant, route)

    def _sender_in(self, body: bytes, route: Route, *, protobuf: bool) -> Grant | Refused:
        """Return what the key of the body may do."""
        in_body = message_write_key(body, route.kind) if protobuf else body_write_key(body)
        if not isinstance(in_body, Done):
            return _as_refused(in_body)
        return self._granted(in_body.value, route) if in_body.value else _NO_KEY

    async def _limited(
        self, sender: Grant, route: Route, body: bytes, origin: Origin, now_seconds: float, *, protobuf: bool
    ) -> Answer:
        """Return the response to a known sender. The rate limits are checked before the body is parsed."""
        correlation_id = origin.receipt.correlation_id
        over = self._dependencies.limits.take_request(sender.identifier, sender.workspace, len(body), now_seconds)
        if over is not None:
            message = "the write key or its workspace is over its rate limit: send it again after Retry-After"
            return self._over_rate(over, message, correlation_id)
        parsed = _parse(route, body, protobuf=protobuf)
        if not isinstance(parsed, Done):
            return answers.refused(_as_refused(parsed), correlation_id)
        return await self._take(parsed.value, origin, now_seconds)

    async def _take(self, parsed: ParsedBody, origin: Origin, now_seconds: float) -> Answer:
        correlation_id = origin.receipt.correlation_id
        if self._intake is None:
            return answers.try_later(503, "not_ready", "this process is starting or stopping", QUEUE_RETRY_SECONDS, correlation_id)
        count = len(parsed.items) + len(parsed.rejections)
        if over := self._dependencies.limits.take_items(origin.receipt.workspace, count, now_seconds):
            message = "the workspace is over its rate limit: send it again after Retry-After"
            return self._over_rate(over, message, correlation_id)
        try:
            await self._intake.take(parsed, origin)
        except QueueFull as full:
            self._counts.limited("queue")
            return answers.try_later(429, "queue_full", str(full), QUEUE_RETRY_SECONDS, correlation_id)
        except BrokerUnavailable as error:
            log(__name__).warning("not_acknowledged", correlation_id=correlation_id, reason=str(error))
            message = "the broker did not acknowledge every item: send the request again with the same messageIds"
            return answers.try_later(503, "broker_unavailable", message, BROKER_RETRY_SECONDS, correlation_id)
        self._counts.acknowledged(parsed)
        return _answer(parsed, correlation_id)

    def _over_rate(self, over: OverRate, message: str, correlation_id: str) -> Answer:
        self._counts.limited(over.limit)
        return answers.try_later(429, "rate_limited", message, over.wait_seconds, correlation_id)

    def _page(self, scope: Scope) -> tuple[str, Answer]:
        correlation_id = request.correlation_id(scope.headers, self._identifiers)
        path = scope.path
        name = _page_name(path)
        if name is None:
            return "other", answers.failed(404, "no_such_path", "unknown path: send to /v1/batch or to /v1/<kind>", correlation_id)
        posted = path in ROUTES or path == _CLIENT_METRICS
        allow = _POST if posted else _GET
        if scope.method == "OPTIONS":
            return name, answers.preflight(allow, request.requested_headers(scope.headers))
        if scope.method not in (("POST",) if posted else ("GET", "HEAD")):
            return name, answers.wrong_method(allow, correlation_id)
        if posted:
            return name, answers.accepted(correlation_id)
        if path in _HEALTH_PATHS:
            return name, self._health(path)
        return name, self._document(path, scope, correlation_id)

    def _health(self, path: str) -> Answer:
        if path == "/metrics":
            return answers.plain(200, *self._counts.exposition())
        return answers.plain(*checks_answer(self._dependencies.alive() if path == "/healthz" else self._dependencies.ready()))

    def _document(self, path: str, scope: Scope, correlation_id: str) -> Answer:
        """Return the settings document that a browser client fetches before it sends events."""
        found = _BROWSER_SETTINGS.fullmatch(path)
        keys = self._dependencies.write_keys
        key = found[1] if found else request.write_key(scope.headers, scope.query_string, keys.listed)
        if not key:
            return answers.refused(_NO_KEY, correlation_id)
        if keys.grant(key) is None:
            return _refused_key(_UNKNOWN_KEY if keys.is_complete() else _KEYS_UNREAD, correlation_id)
        if found is None:
            return answers.source_config(key)
        name = request.host(scope.headers, scope.authority)
        if name is None:
            return answers.failed(400, "bad_host", "the Host header is no host name", correlation_id)
        scheme = "https" if scope.headers.get("x-forwarded-proto") == "https" else scope.scheme
        return answers.browser_settings(key, f"{name}/v1", scheme)


def _out_of_scope(grant: Grant, route: Route) -> Refused:
    message = f"this write key may not send to {route.name}: it has the scopes {', '.join(sorted(grant.scopes))}; use another key"
    return Refused("scope_missing", message)


def _refused_key(why: Refused, correlation_id: str) -> Answer:
    if why is _KEYS_UNREAD:
        return answers.try_later(503, why.code, why.message, QUEUE_RETRY_SECONDS, correlation_id)
    return answers.refused(why, correlation_id)


def _page_name(path: str) -> str | None:
    """Return the name of a path in metrics; None for an unknown path."""
    if path in ROUTES:
        return ROUTES[path].name
    if path in _SOURCE_CONFIG:
        return "/sourceConfig"
    if path in _HEALTH_PATHS or path == _CLIENT_METRICS:
        return path
    return "/v1/projects/{writeKey}/settings" if _BROWSER_SETTINGS.fullmatch(path) else None


async def _packed(headers: request.Headers, exchange: Exchange) -> bytes | None:
    """Read a body as sent; return None if it is over the limit."""
    length = headers.get("content-length")
    if length is not None and length.isdecimal() and int(length) <= request.MAX_WIRE_BYTES:
        return await exchange()
    parts: list[bytes] = []
    size = 0
    async for chunk in exchange:
        size += len(chunk)
        if size <= request.MAX_WIRE_BYTES:
            parts.append(chunk)
        elif size > _DRAINED_BYTES:
            return None
    return b"".join(parts) if size <= request.MAX_WIRE_BYTES else None


async def _drain(exchange: Exchange) -> None:
    """Read and discard a body: a client that is still writing would not see the response."""
    size = 0
    async for chunk in exchange:
        size += len(chunk)
        if size > _DRAINED_BYTES:
            return


def _parse(route: Route, body: bytes, *, protobuf: bool) -> Outcome[ParsedBody]:
    if protobuf:
        return accept_batch_message(body) if route.kind is None else accept_single_message(body, route.kind)
    return accept_batch(body) if route.kind is None else accept_single(body, route.kind)


def _answer(parsed: ParsedBody, correlation_id: str) -> Answer:
    if not parsed.rejections:
        return answers.accepted(correlation_id)
    if not parsed.items:
        return answers.none_accepted(parsed.rejections, correlation_id)
    return answers.partly_accepted(len(parsed.items), parsed.rejections, correlation_id)


def _address(client: str) -> str | None:
    return client.rpartition(":")[0].strip("[]") or None


def _as_refused(outcome: Outcome[Any]) -> Refused:
    if isinstance(outcome, Refused):
        return outcome
    raise TypeError(f"expected Done or Refused, got {outcome!r}")
