"""Edge: the HTTP application, on granian's RSGI protocol."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from starling_common.http.rate_limits import RETRY_AFTER, Bucket, Rate
from starling_common.http.server import network
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.health import Checks, checks_answer
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_messages.links import Link, LinkKind, Links
from starling_tracker import answers, pages
from starling_tracker.answers import RETRY_SECONDS, Answer
from starling_tracker.callbacks.endpoint import PATH, CallbackDependencies, Callbacks, FindTarget, Request
from starling_tracker.machines import HeaderOf, is_machine
from starling_tracker.records import (
    CLICKED,
    ONE_CLICK,
    OPENED,
    PAGE,
    UNSUBSCRIBED,
    Outgoing,
    of_outcome,
    of_refusal,
    outcome,
    refusal,
)

_MAX_BODY_BYTES: Final = 4_096
_MOST_ADDRESSES: Final = 100_000
_ONE_CLICK_FIELD: Final = b"list-unsubscribe"
_HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_LINKS: Final = {f"/{kind}/": kind for kind in LinkKind}
_PREFIX: Final = 3
"""Characters before the token in the path of a link."""


class Headers(Protocol):
    """Request headers by lower-case name."""

    def get(self, key: str) -> str | None: ...  # noqa: D102 - as of a mapping


class Scope(Protocol):
    """A request's metadata, as granian passes it."""

    method: str
    path: str
    query_string: str
    client: str

    @property
    def headers(self) -> Headers: ...  # noqa: D102


class Exchange(Protocol):
    """The body of one request, and the method that sends the response."""

    def __call__(self) -> Awaitable[bytes]: ...  # noqa: D102
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...  # noqa: D102


class Publishing(Protocol):
    """What the application publishes through."""

    def outcome(self, link: Link, record: Mapping[str, object], dropped: Callable[[], None]) -> None:
        """Publish an outcome in the background."""

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Publish records, and wait for the broker. Raises: BrokerUnavailable."""


@dataclass(frozen=True)
class AppDependencies:
    """The dependencies of `App`. `rate`: requests of one address; `body_seconds`: the longest time of a body."""

    links: Links
    callbacks: CallbackDependencies
    rate: Rate
    body_seconds: float
    metrics: Metrics
    exposition: Callable[[], tuple[str, bytes]]
    """Content type and text of the metrics."""
    alive: Checks
    ready: Checks


class App:
    """The HTTP application. Links answer before `open` too; what they count is dropped until then."""

    def __init__(self, dependencies: AppDependencies) -> None:
        self.requests_open = 0
        self._dependencies = dependencies
        self._publisher: Publishing | None = None
        self._callbacks = Callbacks(dependencies.callbacks, dependencies.metrics.counter("starling_tracker_callback_reports_total"))
        self._drained: asyncio.Event | None = None
        self._buckets: dict[str, Bucket] = {}
        metrics = dependencies.metrics
        self._requests = metrics.counter("starling_tracker_requests_total")
        self._outcomes = metrics.counter("starling_tracker_outcomes_total")
        self._dropped = metrics.counter("starling_tracker_dropped_total")

    def open(self, publisher: Publishing, target: FindTarget) -> None:
        """Start to publish, and to take callbacks."""
        self._publisher = publisher
        self._callbacks.open(publisher.publish, target)

    async def close(self) -> None:
        """Return when every open request has its response."""
        self._drained = asyncio.Event()
        if self.requests_open:
            await self._drained.wait()

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        self.requests_open += 1
        name = "other"
        try:
            name, answer = await self._answer(scope, exchange)
        except Exception:  # noqa: BLE001 - an unexpected error must not leave the client without a response
            log(__name__).exception("request_failed", path=scope.path[:_PREFIX])
            answer = answers.plain(500, "internal error: send the same request again")
        finally:
            self.requests_open -= 1
            if self._drained is not None and not self.requests_open:
                self._drained.set()
        body = b"" if scope.method == "HEAD" else answer.body
        exchange.response_bytes(answer.status, answer.headers, body)
        self._requests.labels(name, str(answer.status)).inc()

    async def _answer(self, scope: Scope, exchange: Exchange) -> tuple[str, Answer]:
        path = scope.path
        if path in _HEALTH_PATHS:
            return path, self._health(path)
        if path.startswith(PATH):
            return PATH, await self._called_back(scope, exchange)
        kind = _LINKS.get(path[:_PREFIX])
        if kind is None:
            return "other", answers.plain(404, "not found")
        return path[:_PREFIX], self._refused(kind, scope) or await self._followed(kind, scope, exchange)

    def _refused(self, kind: LinkKind, scope: Scope) -> Answer | None:
        """Return the answer to a request that is not looked at; None for one that is."""
        if answer := self._limited(scope):
            return answer
        allowed = ("GET", "HEAD", "POST") if kind is LinkKind.UNSUBSCRIBE else ("GET", "HEAD")
        if scope.method not in allowed:
            return answers.plain(405, "method not allowed", ("allow", ", ".join(allowed)))
        return None

    def _limited(self, scope: Scope) -> Answer | None:
        wait = self._over_rate(scope)
        return answers.plain(429, "too many requests from this address", (RETRY_AFTER, str(wait))) if wait else None

    async def _followed(self, kind: LinkKind, scope: Scope, exchange: Exchange) -> Answer:
        header: HeaderOf = scope.headers.get
        link = self._dependencies.links.read(kind, scope.path[_PREFIX:])
        if kind is LinkKind.UNSUBSCRIBE:
            tongue = pages.language(header("accept-language"))
            if link is None:
                return answers.page(404, pages.invalid(tongue))
            if scope.method == "POST":
                return await self._unsubscribed(link, tongue, exchange)
            return answers.page(200, pages.question(tongue, link.channel, link.purpose))
        if link is None:
            return answers.plain(404, "not found")
        is_click = kind is LinkKind.CLICK
        if scope.method == "GET":
            self._count(link, CLICKED if is_click else OPENED, machine=is_machine(header))
        return answers.redirect(link.url) if is_click else answers.pixel()

    def _health(self, path: str) -> Answer:
        if path == "/metrics":
            return answers.text(200, *self._dependencies.exposition())
        return answers.text(*checks_answer(self._dependencies.alive() if path == "/healthz" else self._dependencies.ready()))

    def _over_rate(self, scope: Scope) -> int:
        """Return the whole seconds until the address may send again; 0 if it may now, and then take one request."""
        address, now = network(scope.client.rpartition(":")[0].strip("[]")), time.monotonic()
        if len(self._buckets) > _MOST_ADDRESSES:
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.empty_seconds(now) > 0}
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = Bucket(self._dependencies.rate)
        wait = bucket.wait(1, now)
        if not wait:
            bucket.take(1, now)
        return wait

    def _count(self, link: Link, name: str, *, machine: bool) -> None:
        """Publish an open or a click in the background: a person must not wait for the broker."""

        def dropped() -> None:
            self._dropped.labels(name).inc()

        if self._publisher is None:
            dropped()
            return
        self._publisher.outcome(link, outcome(link, name, wall_clock_micros(), machine=machine), dropped)
        self._outcomes.labels(name, str(machine).lower()).inc()

    async def _unsubscribed(self, link: Link, tongue: str, exchange: Exchange) -> Answer:
        """Store the refusal, and answer once the broker has it. No cookie is needed, and no field of the form (RFC 8058)."""
        body = await self._body(exchange, _MAX_BODY_BYTES)
        if isinstance(body, Answer):
            return body
        source = ONE_CLICK if body.lower().startswith(_ONE_CLICK_FIELD) else PAGE
        retry = (RETRY_AFTER, str(RETRY_SECONDS))
        if self._publisher is None:
            return answers.page(503, pages.failed(tongue), retry)
        now = wall_clock_micros()
        try:
            refused = of_refusal(link, refusal(link, source, now))
            await self._publisher.publish([refused, of_outcome(link, outcome(link, UNSUBSCRIBED, now))])
        except BrokerUnavailable as error:
            log(__name__).warning("not_acknowledged", delivery_id=link.delivery_id, reason=str(error))
            return answers.page(503, pages.failed(tongue), retry)
        self._outcomes.labels(UNSUBSCRIBED, "false").inc()
        return answers.page(200, pages.done(tongue, link.channel, link.purpose))

    async def _body(self, exchange: Exchange, most: int) -> bytes | Answer:
        """Return the body, or the answer to one that is too large or too slow."""
        try:
            async with asyncio.timeout(self._dependencies.body_seconds):
                body = await _read(exchange, most)
        except TimeoutError:
            return answers.plain(408, "the body took too long: send it at once", ("connection", "close"))
        return answers.plain(413, f"a body has at most {most} bytes") if body is None else body

    async def _called_back(self, scope: Scope, exchange: Exchange) -> Answer:
        if answer := self._limited(scope):
            return answer
        if scope.method != "POST":
            return answers.plain(405, "method not allowed", ("allow", "POST"))
        body = partial(self._body, exchange)
        return await self._callbacks.answer(Request(scope.path, scope.query_string, scope.headers.get, body))


async def _read(exchange: Exchange, most: int) -> bytes | None:
    """Return the body; None for one that is too large, of which the rest is read and discarded."""
    parts: list[bytes] = []
    size = 0
    async for chunk in exchange:
        size += len(chunk)
        if size <= most:
            parts.append(chunk)
    return b"".join(parts) if size <= most else None
