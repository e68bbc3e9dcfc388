"""Adapter: the base of channels over HTTP: a client that is guarded, bounded, and knows whether a request was sent."""

import asyncio
import base64
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp
import httpx

from starling_common.http.outbound.addresses import AddressRefused, checked_url
from starling_common.http.outbound.connections import WORKSPACE
from starling_common.http.outbound.retry_after import retry_after_seconds
from starling_common.http.outbound.sessions import GuardedSession
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Answer, Arrival, Impossible, Message, MessageChannel, Park, Unknown
from starling_delivery.messages.definitions import Definitions
from starling_delivery.settings import KitSettings

MAX_RESPONSE_BYTES: Final = 65_536
"""Bytes of a response that are read, so that its connection can be used again. A longer one ends its connection."""


_GRACE_SECONDS: Final = 1.0
"""The client ends a request at the deadline. A channel that is busy with something else is ended so much later."""

_BODY_SECONDS: Final = 1.5
"""How long the body of a response may take after its headers."""

_LAST_SECONDS: Final = 0.05
"""So much before the deadline the body is not awaited any more."""

_DEADLINE_SECONDS: Final = 15.0
"""The deadline of a request outside of an attempt of the kit."""

_SENDING: Final = (".send_request_headers.started", ".send_connection_init.started")
"""The first events of httpcore after which the receiver may have a part of the request."""

_MOST_DETAIL: Final = 300

_ENDS_AT: Final[ContextVar[float]] = ContextVar("ends_at")
"""The deadline of the attempt, by the clock of the event loop."""


class NotSent(Exception):
    """The receiver has nothing of the request: it can be repeated."""


class MaybeSent(Exception):
    """The receiver may have taken the request: its answer is missing."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response. `body`: at most 64 KiB, as far as it came in time. `retry_after`: the requested delay in seconds."""

    status: int
    body: bytes = b""
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx. A redirect is none: it is never followed."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the body as JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class HttpClient(ABC):
    """Makes requests. No connection reaches a private network, and no request outlasts the deadline of its attempt."""

    errors: tuple[type[Exception], ...]
    """What the library raises if a request has no answer."""

    def __init__(self, *, allow_private: bool = False, passed: Callable[[str], None] = lambda _: None) -> None:
        """`passed`: called at failpoints."""
        self._allow_private = allow_private
        self._passed = passed

    async def post(
        self,
        url: str,
        content: str | bytes,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
    ) -> HttpAnswer:
        """Return the answer to one POST. `auth`: user name and password.

        Raises: NotSent, MaybeSent; AddressRefused for a URL that is not allowed, after which the kit ends the message.
        """
        body = content.encode() if isinstance(content, str) else content
        address, begun = checked_url(url, allow_private=self._allow_private), False
        ends_at = _ENDS_AT.get(asyncio.get_running_loop().time() + _DEADLINE_SECONDS)
        sent_headers = {"accept-encoding": "identity", "user-agent": "Starling/1", **_credentials(auth), **(headers or {})}

        def sending() -> None:
            nonlocal begun
            if not begun:
                begun = True
                self._passed("in_send")

        try:
            async with asyncio.timeout_at(ends_at):
                answer = await self._answer(address, body, sent_headers, sending, ends_at)
        except TimeoutError as error:
            raise (MaybeSent if begun else NotSent)("no answer in time") from error
        except self.errors as error:
            raise (MaybeSent if begun else NotSent)(f"{type(error).__name__}: {error}"[:_MOST_DETAIL]) from error
        self._passed("after_send")
        return answer

    @abstractmethod
    async def _answer(
        self, url: str, body: bytes, headers: Mapping[str, str], sending: Callable[[], None], ends_at: float
    ) -> HttpAnswer:
        """Return the answer. `sending`: called before the receiver may have a part of the request."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    async def _body(self, parts: AsyncIterator[bytes], ends_at: float) -> bytes:
        """Return what comes of a body in time, as it is: a compressed one is never expanded.

        The status decides: a body that drips neither delays it for long nor makes the answer unknown.
        """
        found = bytearray()
        with suppress(*self.errors):  # a timeout is an OSError
            async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + _BODY_SECONDS, ends_at - _LAST_SECONDS)):
                async for part in parts:
                    found += part[: MAX_RESPONSE_BYTES - len(found)]
                    if len(found) >= MAX_RESPONSE_BYTES:
                        break
        return bytes(found)


class Http1Client(HttpClient):
    """Makes requests with HTTP/1.1, many of them at a time."""

    errors = (aiohttp.ClientError, OSError)

    def __init__(
        self, session: GuardedSession, *, allow_private: bool = False, passed: Callable[[str], None] = lambda _: None
    ) -> None:
        """`passed`: called at failpoints."""
        super().__init__(allow_private=allow_private, passed=passed)
        self._session = session

    async def _answer(
        self, url: str, body: bytes, headers: Mapping[str, str], sending: Callable[[], None], ends_at: float
    ) -> HttpAnswer:
        async with self._session.post(url, body, headers, sending) as response:
            found = await self._body(response.content.iter_any(), ends_at)
            return _answer_of(response.status, response.headers, found)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


class Http2Client(HttpClient):
    """Makes requests with HTTP/2, if the server takes it: many of them at a time in one connection."""

    errors = (httpx.HTTPError, httpx.InvalidURL, OSError)

    def __init__(
        self, client: httpx.AsyncClient, *, allow_private: bool = False, passed: Callable[[str], None] = lambda _: None
    ) -> None:
        """`client`: a guarded one. `passed`: called at failpoints."""
        super().__init__(allow_private=allow_private, passed=passed)
        self._client = client

    async def _answer(
        self, url: str, body: bytes, headers: Mapping[str, str], sending: Callable[[], None], ends_at: float
    ) -> HttpAnswer:
        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            if event.endswith(_SENDING):
                sending()

        async with self._client.stream("POST", url, content=body, headers=headers, extensions={"trace": trace}) as response:
            found = await self._body(response.aiter_raw(), ends_at)
            return _answer_of(response.status_code, response.headers, found)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _answer_of(status: int, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
    return HttpAnswer(status, body, retry_after_seconds(headers.get("retry-after"), wall_clock_ms()))


def _credentials(auth: tuple[str, str] | None) -> Mapping[str, str]:
    if auth is None:
        return {}
    return {"authorization": "Basic " + base64.b64encode(":".join(auth).encode()).decode()}


def end_attempt_in(seconds: float) -> None:
    """Set the deadline of the requests that this task makes."""
    _ENDS_AT.set(asyncio.get_running_loop().time() + seconds)


class HttpChannel(ABC):
    """A channel of campaigns whose messages are HTTP requests. A subclass has a name, semantics, and `send`."""

    name: str
    semantics: Arrival

    def __init__(self, http: HttpClient, definitions: Definitions) -> None:
        """`definitions`: where `settings_of` finds the targets."""
        self.http = http
        self._definitions = definitions

    @classmethod
    def open(cls, settings: KitSettings, definitions: Definitions, passed: Callable[[str], None]) -> Self:
        """Return a channel with its own HTTP client."""
        session = GuardedSession(
            lookup_seconds=settings.lookup_timeout_seconds,
            connections=settings.max_in_flight,
            allow_private=settings.allow_private_addresses,
        )
        return cls(Http1Client(session, allow_private=settings.allow_private_addresses, passed=passed), definitions)

    @abstractmethod
    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result."""

    def settings_of(self, message: Message) -> Mapping[str, Any] | None:
        """Return the settings of the target of a message, with plain secrets; None if it is archived."""
        target = self._definitions.find(message.workspace, message.target_key).target
        return None if target is None else target.settings

    def hold(self, _message: Message) -> Park | None:
        """Return None: every rendered message can be sent."""
        return None

    def unsubscribe_link(self, _message: Message) -> str | None:
        """Return None: the messages have no links of their own."""
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()


class BoundedChannel:
    """A channel of campaigns as the kit calls it: each attempt has a deadline and the workspace's share of the lookups."""

    def __init__(self, channel: MessageChannel, deadline_seconds: float) -> None:
        """`deadline_seconds` bounds a whole attempt."""
        self.name = channel.name
        self.semantics = channel.semantics
        self.hold = channel.hold
        self.unsubscribe_link = channel.unsubscribe_link
        self._channel = channel
        self._deadline_seconds = deadline_seconds

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result."""
        WORKSPACE.set(message.workspace)
        ends_at = asyncio.get_running_loop().time() + self._deadline_seconds
        _ENDS_AT.set(ends_at)
        try:
            async with asyncio.timeout_at(ends_at + _GRACE_SECONDS):
                return await self._channel.send(message)
        except TimeoutError:
            return Unknown(f"the attempt did not end within {self._deadline_seconds:g} s")
        except AddressRefused as refused:
            return Impossible(str(refused))

    async def close(self) -> None:
        """Close the connections."""
        await self._channel.close()
