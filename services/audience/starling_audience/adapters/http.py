"""Adapter: requests to other systems: guarded, bounded in time and size."""

import asyncio
from typing import Final, Protocol

import httpx

from starling_audience.adapters.adapter import Again, AudienceRequest, Ended, Response
from starling_common.http.outbound.addresses import AddressRefused, checked_url
from starling_common.http.outbound.connections import WORKSPACE, guarded_client
from starling_common.http.outbound.retry_after import retry_after_seconds
from starling_common.time.instants import wall_clock_ms

MAX_RESPONSE_BYTES: Final = 1_048_576
"""The errors of 10,000 items are about as long."""
_MOST_DETAIL: Final = 200


class Exchange(Protocol):
    """Makes requests."""

    async def exchange(self, workspace: str, request: AudienceRequest) -> Response | Again | Ended:
        """Return the answer to one request, or why there is none."""


class HttpExchange:
    """Makes requests. No connection reaches a private network, and redirects are not followed."""

    def __init__(self, client: httpx.AsyncClient, *, allow_private: bool, timeout_seconds: float) -> None:
        """`client`: a guarded one. `timeout_seconds` bounds a whole request."""
        self._client = client
        self._allow_private = allow_private
        self._timeout_seconds = timeout_seconds

    @classmethod
    def open(cls, *, allow_private: bool, timeout_seconds: float, lookup_seconds: float, connections: int) -> "HttpExchange":
        """Return an exchange with its own client."""
        client = guarded_client(
            timeout_seconds=timeout_seconds,
            lookup_seconds=lookup_seconds,
            connections=connections,
            allow_private=allow_private,
            keepalive_seconds=30.0,
        )
        return cls(client, allow_private=allow_private, timeout_seconds=timeout_seconds)

    async def exchange(self, workspace: str, request: AudienceRequest) -> Response | Again | Ended:
        """As `Exchange.exchange`. A lost answer is `Again`: every request can be repeated."""
        WORKSPACE.set(workspace)
        try:
            url = checked_url(request.url, allow_private=self._allow_private)
            async with asyncio.timeout(self._timeout_seconds):
                return await self._answer(url, request)
        except TimeoutError:
            return Again(f"no answer within {self._timeout_seconds:g} s")
        except AddressRefused as refused:
            return Ended(f"{refused}: correct the address of the target")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Again(f"{type(error).__name__}: {error}"[:_MOST_DETAIL])

    async def _answer(self, url: str, request: AudienceRequest) -> Response:
        headers = {"accept-encoding": "identity", "user-agent": "Starling/1", **request.headers}
        async with self._client.stream(request.method, url, content=request.body, headers=headers) as response:
            found = bytearray()
            # The raw bytes: a compressed response is never expanded.
            async for part in response.aiter_raw():
                found += part[: MAX_RESPONSE_BYTES - len(found)]
                if len(found) >= MAX_RESPONSE_BYTES:
                    break
            return Response(
                response.status_code, bytes(found), retry_after_seconds(response.headers.get("retry-after"), wall_clock_ms())
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
