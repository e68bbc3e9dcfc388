"""Adapter: the certificates of Amazon SNS, and the confirmation of subscriptions: GET at hosts that `ses.py` has pinned."""

import asyncio
import time
from typing import Final, TypeVar

import httpcore
import httpx
from cryptography.x509 import Certificate, load_pem_x509_certificate

from starling_common.http.outbound.addresses import AddressRefused
from starling_common.http.outbound.connections import WORKSPACE, guarded_client
from starling_tracker.callbacks.report import Unauthorised

V = TypeVar("V")

_TIMEOUT_SECONDS: Final = 5.0
_CONNECTIONS: Final = 4
_MOST_BYTES: Final = 65_536
_MOST_CERTIFICATES: Final = 32
_FORGET_SECONDS: Final = 60.0
"""How long a URL that led to no certificate is not requested again."""


class NotReached(Exception):
    """The provider's host did not answer: the same callback can be taken later."""


class Certificates:
    """Fetches and keeps certificates. For one event loop only."""

    def __init__(self, client: httpx.AsyncClient | None = None) -> None:
        """`client`: for tests; by default one that connects to public addresses only and follows no redirect."""
        self._client = client or guarded_client(
            timeout_seconds=_TIMEOUT_SECONDS, lookup_seconds=_TIMEOUT_SECONDS, connections=_CONNECTIONS, allow_private=False
        )
        self._known: dict[str, Certificate] = {}
        self._refused: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def certificate(self, url: str, workspace: str) -> Certificate:
        """Return the certificate of a URL. Raises: NotReached; Unauthorised if the URL leads to none."""
        if found := self._known.get(url):
            return found
        async with self._lock:  # of several callbacks with a new certificate one fetches it
            if found := self._known.get(url):
                return found
            if self._refused.get(url, 0.0) > time.monotonic():
                raise Unauthorised("SigningCertURL leads to no certificate")
            status, body = await self._get(url, workspace)
            try:
                found = load_pem_x509_certificate(body) if status == httpx.codes.OK else None
            except ValueError:
                found = None
            if found is None:
                _keep(self._refused, url, time.monotonic() + _FORGET_SECONDS)
                raise Unauthorised("SigningCertURL leads to no certificate")
            _keep(self._known, url, found)
            return found

    async def confirm(self, url: str, workspace: str) -> None:
        """Confirm a subscription. Raises: NotReached."""
        status, _ = await self._get(url, workspace)
        if status != httpx.codes.OK:
            raise NotReached(f"SNS answered {status} to the confirmation of the subscription")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _get(self, url: str, workspace: str) -> tuple[int, bytes]:
        WORKSPACE.set(workspace)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._client.stream("GET", url) as answer:
                body = b""
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        return answer.status_code, b""
                return answer.status_code, body
        except (httpx.HTTPError, httpcore.NetworkError, httpcore.TimeoutException, AddressRefused, OSError, TimeoutError) as error:
            raise NotReached(f"{httpx.URL(url).host}: {type(error).__name__}: {error}") from error


def _keep(kept: dict[str, V], url: str, value: V) -> None:
    if len(kept) >= _MOST_CERTIFICATES:
        del kept[next(iter(kept))]
    kept[url] = value
