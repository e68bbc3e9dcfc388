"""The tracker's application without a server and a broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from starling_common.http.rate_limits import Rate
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.metrics import Metrics
from starling_messages.links import Link, LinkKind, Links
from starling_tracker.app import App, AppDependencies

LINKS = Links({"first": b"1" * 32})
LINK = Link("acme", "ada", "d-1", "email", "smtp", "win-back", "marketing")
MAIL_CLIENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Thunderbird/140.0"


@dataclass
class Published:
    """What the application has published."""

    outcomes: list[Mapping[str, object]] = field(default_factory=list)
    consents: list[Mapping[str, object]] = field(default_factory=list)
    is_down: bool = False

    def outcome(self, _link: Link, record: Mapping[str, object], dropped: Callable[[], None]) -> None:
        if self.is_down:
            dropped()
        else:
            self.outcomes.append(record)

    async def unsubscribe(self, _link: Link, consent: Mapping[str, object], outcome: Mapping[str, object]) -> None:
        if self.is_down:
            raise BrokerUnavailable("down")
        self.consents.append(consent)
        self.outcomes.append(outcome)


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
    client: str = "192.0.2.1:50000"


@dataclass
class Site:
    """An application with what it has published."""

    rate: Rate = field(default_factory=lambda: Rate(1_000, 2_000))
    published: Published = field(default_factory=Published)
    metrics: Metrics = field(default_factory=lambda: Metrics(CollectorRegistry()))

    def __post_init__(self) -> None:
        self.app = App(AppDependencies(LINKS, self.rate, 1.0, self.metrics, lambda: ("text/plain", b""), dict, dict))
        self.app.open(self.published)

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Response:
        """Return the response. In names of headers `_` stands for `-`."""
        named = {"user-agent": MAIL_CLIENT} | {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        exchange: Any = _Exchange(body)
        asyncio.run(self.app.__rsgi__(_Scope(method, path, named), exchange))
        response: Response = exchange.response
        return response


def path_of(kind: LinkKind, link: Link = LINK) -> str:
    return f"/{kind}/{LINKS.token(kind, link)}"
