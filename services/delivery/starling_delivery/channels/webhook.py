"""Adapter: the webhook channel, signed according to Standard Webhooks 1.0."""

import asyncio
from contextlib import suppress

from aiohttp import ClientError, ClientResponse

from starling_common.http.outbound.addresses import AddressRefused, checked_url
from starling_common.http.outbound.connections import TRACEPARENT, WORKSPACE
from starling_common.http.outbound.retry_after import retry_after_seconds
from starling_common.http.outbound.sessions import GuardedSession
from starling_common.http.outbound.signatures import signed_headers
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Message
from starling_delivery.channels.http import MAX_RESPONSE_BYTES
from starling_delivery.settings import Settings
from starling_delivery.targets import Target, Targets


class WebhookChannel:
    """POSTs JSON. 2xx is delivered, 410 disables the webhook, any other response is retried. Redirects are not followed."""

    name = "webhook"

    def __init__(self, session: GuardedSession, targets: Targets, *, allow_private: bool, deadline_seconds: float = 15.0) -> None:
        """`targets`: source of the secrets, read at each attempt so that a new secret takes effect immediately.

        `deadline_seconds` bounds a whole attempt.
        """
        self._session = session
        self._targets = targets
        self._allow_private = allow_private
        self._deadline_seconds = deadline_seconds

    @classmethod
    def open(cls, settings: Settings, targets: Targets) -> "WebhookChannel":
        """Return a channel with its own HTTP client."""
        session = GuardedSession(
            lookup_seconds=settings.lookup_timeout_seconds,
            connections=settings.max_in_flight,
            allow_private=settings.allow_private_addresses,
        )
        return cls(session, targets, allow_private=settings.allow_private_addresses, deadline_seconds=settings.timeout_seconds)

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result."""
        target = self._targets.find(message.workspace, message.target_key)
        if target is None:
            return Impossible("the webhook is archived")
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await self._attempt(target, message)
        except TimeoutError:
            return Again(f"the endpoint did not answer within {self._deadline_seconds:g} s")
        except AddressRefused as refused:
            return Impossible(str(refused))
        except (ClientError, OSError) as error:
            return Again(f"{type(error).__name__}: {error}")

    async def _attempt(self, target: Target, message: Message) -> Answer:
        url = checked_url(message.address, allow_private=self._allow_private)
        WORKSPACE.set(message.workspace)
        now_ms = wall_clock_ms()
        headers = {**target.headers, **signed_headers(target.secrets(now_ms), message.message_id, message.payload, now_ms)}
        traceparent = TRACEPARENT.get()
        if traceparent is not None:
            headers["traceparent"] = traceparent
        async with self._session.post(url, message.payload.encode(), headers) as response:
            # The status decides. The body is read only for the sake of its connection, and never for long.
            with suppress(ClientError, OSError):
                async with asyncio.timeout(self._deadline_seconds / 10):
                    await _discard(response)
            return answer_of(response)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def _discard(response: ClientResponse) -> None:
    size_bytes = 0
    async for part in response.content.iter_any():
        size_bytes += len(part)
        if size_bytes > MAX_RESPONSE_BYTES:
            return


def answer_of(response: ClientResponse) -> Answer:
    """Return the result of a response."""
    status = response.status
    if 200 <= status < 300:
        return Delivered(status)
    if status == 410:
        return Gone("the endpoint answered 410 Gone", status)
    retry_after = retry_after_seconds(response.headers.get("retry-after"), wall_clock_ms())
    return Again(f"the endpoint answered {status}", status, retry_after)
