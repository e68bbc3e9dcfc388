"""An edge with nothing real behind it: requests are made up, records end in a list."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from starling_common.headers import Headers
from starling_common.http.rate_limits import Rate
from starling_common.kafka.topics import INGEST_KINDS
from starling_common.outcome import Done
from starling_common.records.credentials import (
    Credential,
    Credentials,
    Secret,
    digest_of,
    fold_credentials,
    revocation_key,
    revocation_record,
    secret_key,
    secret_record,
)
from starling_common.telemetry.traces import Traces
from starling_common.wire import Codec, ReceivedEncoder
from starling_ingest.app import App, AppDependencies
from starling_ingest.bodies import SlowBodies
from starling_ingest.counts import Counts
from starling_ingest.limits import RateLimits, Rates
from starling_ingest.publishing.intake import ArrivalClock, Intake, Outgoing
from starling_ingest.write_keys import WriteKeys

NOW = 1_700_000_000_000_000
RECEIVED = Codec("IngestReceived", 7, lambda _id: "")
DEAD = Codec("DeadLetter", 8, lambda _id: "")
UNLIMITED = Rates(Rate.of(1e9), Rate.of(1e12))
DEFAULT_HEADERS = {"x-write-key": "key", "host": "edge.example"}


@dataclass
class MemoryLog:
    """A fake broker that stores records, or fails as configured."""

    records: list[Outgoing] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    full: Exception | None = None
    away: Exception | None = None
    held: asyncio.Event | None = None

    def __call__(self, workspace: str, records: Sequence[Outgoing], headers: Headers, received_at: int) -> Awaitable[None]:
        if self.full is not None:
            raise self.full
        return self._acknowledge(list(records), headers)

    async def _acknowledge(self, records: list[Outgoing], headers: Headers) -> None:
        if self.held is not None:
            await self.held.wait()
        if self.away is not None:
            raise self.away
        self.records += records
        self.headers.append(headers)


@dataclass
class Request:
    """Return the scope of a request as the server passes it; `chunked` omits its length."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_HEADERS))
    query_string: str = ""
    scheme: str = "http"
    client: str = "10.1.2.3:40000"
    authority: str | None = None


@dataclass
class Exchange:
    body: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""
    bytes_read: int = 0

    async def __call__(self) -> bytes:
        self.bytes_read = len(self.body)
        return self.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.body), 65_536):
            chunk = self.body[start : start + 65_536]
            self.bytes_read += len(chunk)
            yield chunk

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        assert self.status == 0, "a request is answered once"
        self.status, self.headers, self.answer = status, dict(headers), body

    def json(self) -> Any:
        return msgspec.json.decode(self.answer)


@dataclass
class MemoryKeys:
    """The created keys, as far as a thread has read them."""

    known: Credentials = field(default_factory=Credentials)
    unread: bool = False

    def value(self) -> Credentials:
        return self.known

    def is_read(self) -> bool:
        return not self.unread

    def add(self, text: str, scopes: tuple[str, ...], expires_at_ms: int | None = None) -> Credential:
        """Create a key of the workspace `shop` with that secret."""
        secret = Secret(digest_of(text), text[:8], text[-4:], 1, expires_at_ms)
        made = Credential("shop", f"key_{text}", "web", None, scopes, 1, "admin-1", (secret,))
        assert fold_credentials(self.known, secret_key(made, secret), secret_record(made, secret, (1, "c"))) == Done(self.known)
        return made

    def revoke(self, key: Credential) -> None:
        assert fold_credentials(self.known, revocation_key(key), revocation_record(key, 2, (2, "c"))) == Done(self.known)


class NeverSent(Exchange):
    """A client that opens a request and never sends its body."""

    def __init__(self) -> None:
        super().__init__(b"")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


@dataclass
class Edge:
    """An app, and what it wrote."""

    log: MemoryLog = field(default_factory=MemoryLog)
    limits: RateLimits = field(default_factory=lambda: RateLimits(UNLIMITED, UNLIMITED))
    bodies: SlowBodies = field(default_factory=lambda: SlowBodies(3600))
    ready: dict[str, str | None] = field(default_factory=lambda: {"start": None})
    lapsed: Exception | None = None
    created: MemoryKeys = field(default_factory=MemoryKeys)
    traces: Traces | None = None

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        counts = Counts(self.registry, lambda: len(self.log.records))
        keys = WriteKeys({"key": "acme", "id:secret": "other"}, self.created, lambda: NOW // 1000)
        self.app = App(
            AppDependencies(
                keys, "edge-0", self.limits, self.bodies, counts, lambda: {"producer": None}, lambda: self.ready, self.traces
            )
        )

    def open(self) -> "Edge":
        encoder = ReceivedEncoder(dict.fromkeys(INGEST_KINDS, RECEIVED))
        self.app.open(Intake(encoder, DEAD, self.log, ArrivalClock(lambda: NOW), self._check))
        return self

    def _check(self) -> None:
        if self.lapsed is not None:
            raise self.lapsed

    def ask(self, method: str, path: str, body: Any = b"", *, chunked: bool = False, **more: Any) -> Exchange:
        """Send one request and return what came back."""
        return asyncio.run(self.answer(method, path, body, chunked=chunked, **more))

    async def answer(self, method: str, path: str, body: Any = b"", *, chunked: bool = False, **more: Any) -> Exchange:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method, path, raw, **more)
        if not chunked:
            request.headers = {**request.headers, "content-length": str(len(raw))}
        exchange = Exchange(raw)
        await self.app.__rsgi__(request, exchange)
        return exchange

    def received(self) -> list[dict[str, Any]]:
        return [RECEIVED.decode(record.value) for record in self.log.records if record.topic != "ingest.dlq"]

    def dead(self) -> list[dict[str, Any]]:
        return [DEAD.decode(record.value) for record in self.log.records if record.topic == "ingest.dlq"]
