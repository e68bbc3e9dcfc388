"""Adapter: sends the request of a test call through a guarded connection and describes the answer."""

import asyncio
import ssl
import time
from contextlib import suppress
from typing import Final, NamedTuple

import httpx

from starling_api.webhooks.example import Request
from starling_common.http.outbound.addresses import AddressRefused, checked_url
from starling_common.http.outbound.connections import WORKSPACE, guarded_client
from starling_common.http.outbound.lookups import LookupFailed
from starling_common.http.outbound.signatures import signed_headers
from starling_common.time.instants import wall_clock_ms

DEADLINE_SECONDS: Final = 15.0
"""As long as an attempt of delivery takes by default."""
MAX_ANSWER_BYTES: Final = 1000
_LOOKUP_SECONDS: Final = 5.0
_CONNECTIONS: Final = 64
_BODY_SHARE: Final = 0.1
"""The status is the result. The body is waited for during a tenth of the deadline."""


class Answer(NamedTuple):
    """The endpoint's answer, or the reason why there is none. `answer`: the first bytes of the body, as text."""

    delivered: bool
    status: int | None
    took_ms: int
    answer: str | None
    reason: str | None
    message: str | None


class WebhookSender:
    """Sends single requests to public addresses. Used from one event loop only."""

    def __init__(self, *, allow_private: bool = False, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        """The client is opened by the first request."""
        self._allow_private = allow_private
        self._deadline_seconds = deadline_seconds
        self._client: httpx.AsyncClient | None = None

    async def send(self, workspace: str, request: Request) -> Answer:
        """Make one attempt. Failures of the endpoint are results, not exceptions. Redirects are not followed."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                status, text = await self._attempt(workspace, request)
        except (TimeoutError, httpx.HTTPError, OSError, AddressRefused) as error:
            reason, message = self._described(error)
            return Answer(False, None, _since(begun), None, reason, message)
        delivered = 200 <= status < 300
        return Answer(delivered, status, _since(begun), text, None if delivered else "status", _advice(status))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _attempt(self, workspace: str, request: Request) -> tuple[int, str]:
        url = checked_url(request.url, allow_private=self._allow_private)
        WORKSPACE.set(workspace)
        signed = signed_headers(request.secrets, request.message_id, request.body, wall_clock_ms()) if request.secrets else {}
        # Each test opens a connection of its own, so that its result includes name, address and certificate.
        headers = {**request.headers, **signed, "connection": "close"}
        async with self._opened().stream("POST", url, content=request.body.encode(), headers=headers) as response:
            return response.status_code, await self._beginning(response)

    async def _beginning(self, response: httpx.Response) -> str:
        body = bytearray()
        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(self._deadline_seconds * _BODY_SHARE):
                # The raw bytes: a compressed response is never expanded.
                async for part in response.aiter_raw():
                    body += part[:MAX_ANSWER_BYTES]
                    if len(body) >= MAX_ANSWER_BYTES:
                        break
        return body[:MAX_ANSWER_BYTES].decode(errors="replace")

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = guarded_client(
                timeout_seconds=self._deadline_seconds,
                lookup_seconds=min(_LOOKUP_SECONDS, self._deadline_seconds),
                connections=_CONNECTIONS,
                allow_private=self._allow_private,
            )
        return self._client

    def _described(self, error: Exception) -> tuple[str, str]:
        """Return the reason and a message for an attempt without an answer."""
        if isinstance(error, AddressRefused):
            return "address_refused", str(error)
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return "timeout", f"the endpoint did not answer within {self._deadline_seconds:g} s"
        if (tls := _caused_by_tls(error)) is not None:
            return "tls_failed", f"the TLS connection failed: {tls}"
        if isinstance(error, LookupFailed | OSError):
            return "name_not_resolved", f"the host name could not be resolved: {error}"
        if isinstance(error, httpx.ConnectError):
            return "not_connected", f"the connection failed: {error}"
        return "no_http_answer", f"the answer is not HTTP, or the connection was closed: {error or type(error).__name__}"


def _caused_by_tls(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _advice(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"the endpoint answered {status}: redirects are not followed, so set the url to the final address"
    if status == 410:
        return "the endpoint answered 410 Gone: the same answer to a change would disable the webhook"
    return f"the endpoint answered {status}: a change would be sent again"


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
