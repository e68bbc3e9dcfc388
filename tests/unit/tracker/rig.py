"""The tracker's application without a server and a broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography.x509 import Certificate
from prometheus_client import CollectorRegistry

from starling_common.http.rate_limits import Rate
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import CONSENT, DELIVERY
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_messages.links import Link, LinkKind, Links
from starling_tracker.app import App, AppDependencies
from starling_tracker.callbacks.certificates import NotReached
from starling_tracker.callbacks.endpoint import CallbackDependencies
from starling_tracker.callbacks.receiver import Receiver
from starling_tracker.callbacks.report import Unauthorised
from starling_tracker.callbacks.targets import CallbackTarget, TargetKey
from starling_tracker.records import Outgoing

LINKS = Links({"first": b"1" * 32})
LINK = Link("acme", "ada", "d-1", "email", "smtp", "win-back", "marketing")
MAIL_CLIENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Thunderbird/140.0"


@dataclass
class Published:
    """What the application has published."""

    outcomes: list[Mapping[str, object]] = field(default_factory=list)
    consents: list[Mapping[str, object]] = field(default_factory=list)
    records: list[Outgoing] = field(default_factory=list)
    """Everything that waited for the broker."""
    is_down: bool = False

    def outcome(self, _link: Link, record: Mapping[str, object], dropped: Callable[[], None]) -> None:
        if self.is_down:
            dropped()
        else:
            self.outcomes.append(record)

    async def publish(self, records: Sequence[Outgoing]) -> None:
        if self.is_down:
            raise BrokerUnavailable("down")
        self.records += records
        self.consents += [one.record for one in records if one.topic == CONSENT]
        self.outcomes += [one.record for one in records if one.topic == DELIVERY]

    def of(self, topic: str) -> list[Mapping[str, Any]]:
        return [one.record for one in self.records if one.topic == topic]


@dataclass
class Response:
    """One response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class _Exchange:
    sent: bytes
    response: Response = field(default_factory=Response)

    async def __call__(self) -> bytes:
        return self.sent

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.sent), 1_000):
            yield self.sent[start : start + 1_000]

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.response = Response(status, dict(headers), body)


@dataclass
class _Scope:
    method: str
    path: str
    headers: dict[str, str]
    query_string: str = ""
    client: str = "192.0.2.1:50000"


@dataclass
class Fetched:
    """Certificates by URL in place of SNS; a URL without one leads to none."""

    certificates: dict[str, Certificate] = field(default_factory=dict)
    confirmed: list[str] = field(default_factory=list)
    is_away: bool = False

    async def certificate(self, url: str, _workspace: str) -> Certificate:
        if self.is_away:
            raise NotReached("away")
        if url not in self.certificates:
            raise Unauthorised("SigningCertURL leads to no certificate")
        return self.certificates[url]

    async def confirm(self, url: str, _workspace: str) -> None:
        if self.is_away:
            raise NotReached("away")
        self.confirmed.append(url)


@dataclass
class Site:
    """An application with what it has published."""

    rate: Rate = field(default_factory=lambda: Rate(1_000, 2_000))
    published: Published = field(default_factory=Published)
    metrics: Metrics = field(default_factory=lambda: Metrics(CollectorRegistry()))
    targets: dict[TargetKey, CallbackTarget] = field(default_factory=dict)
    fetched: Fetched = field(default_factory=Fetched)
    links: Links = LINKS
    public_url: str | None = "https://t.example.com"

    def __post_init__(self) -> None:
        receiver = Receiver(self.links, self.fetched, wall_clock_micros)
        callbacks = CallbackDependencies(receiver, 262_144, self.public_url)
        exposition = lambda: ("text/plain", b"")  # noqa: E731
        self.app = App(AppDependencies(self.links, callbacks, self.rate, 1.0, self.metrics, exposition, dict, dict))
        self.app.open(self.published, self.targets.get)

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, query: str = ""
    ) -> Response:
        """Return the response. In names of headers `_` stands for `-`."""
        named = {"user-agent": MAIL_CLIENT} | {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        exchange: Any = _Exchange(body)
        asyncio.run(self.app.__rsgi__(_Scope(method, path, named, query), exchange))
        response: Response = exchange.response
        return response


def path_of(kind: LinkKind, link: Link = LINK) -> str:
    return f"/{kind}/{LINKS.token(kind, link)}"
