"""Adapter: the webhook channel, signed as Standard Webhooks 1.0 says (contract, part 6)."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from standardwebhooks.webhooks import Webhook

from starling_common.instants import wall_clock_ms
from starling_delivery.addresses import AddressRefused, resolve
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Message
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets

LONGEST_WISH_SECONDS = 3600.0
"""A Retry-After beyond this is not believed: a typo at the other side must not silence it for a day."""


class WebhookChannel:
    """POSTs JSON. 2xx is delivered, 410 switches the webhook off, anything else is tried again; redirects are not followed."""

    name = "webhook"

    def __init__(self, client: httpx.AsyncClient, targets: Targets, *, allow_private: bool) -> None:
        """`targets` has the secrets, looked up at each attempt so that a new secret takes effect at once."""
        self._client = client
        self._targets = targets
        self._allow_private = allow_private

    @classmethod
    def open(cls, settings: Settings, targets: Targets) -> "WebhookChannel":
        """A channel with a client of its own."""
        limits = httpx.Limits(max_connections=settings.max_in_flight, max_keepalive_connections=settings.max_in_flight)
        client = httpx.AsyncClient(timeout=settings.timeout_seconds, limits=limits, follow_redirects=False, trust_env=False)
        return cls(client, targets, allow_private=settings.allow_private_addresses)

    async def send(self, message: Message) -> Answer:
        """One attempt."""
        target = self._targets.find(message.workspace, message.target_key)
        if target is None:
            return Impossible("the webhook was archived")
        try:
            place = await resolve(message.address, allow_private=self._allow_private)
            headers = signed_headers(target.secret, message) | {"host": place.host_header}
            response = await self._client.post(
                place.url, content=message.payload.encode(), headers=headers, extensions={"sni_hostname": place.host}
            )
        except AddressRefused as refused:
            return Impossible(str(refused))
        except (httpx.HTTPError, OSError) as error:
            return Again(f"{type(error).__name__}: {error}")
        return answer_of(response)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def signed_headers(secret: str, message: Message) -> dict[str, str]:
    """The headers of one attempt; the timestamp is that of the attempt, the id that of the membership change."""
    now_seconds = wall_clock_ms() // 1000
    signature = Webhook(secret).sign(message.message_id, datetime.fromtimestamp(now_seconds, UTC), message.payload)
    return {
        "content-type": "application/json",
        "user-agent": "Starling-Webhooks/1",
        "webhook-id": message.message_id,
        "webhook-timestamp": str(now_seconds),
        "webhook-signature": signature,
    }


def answer_of(response: httpx.Response) -> Answer:
    """What a status means."""
    status = response.status_code
    if response.is_success:
        return Delivered(status)
    if status == 410:
        return Gone("the endpoint answered 410 Gone", status)
    return Again(f"the endpoint answered {status}", status, _wish_seconds(response.headers.get("retry-after")))


def _wish_seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        wish = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - wall_clock_ms() / 1000
    except (TypeError, ValueError):
        return None
    return min(max(wish, 0.0), LONGEST_WISH_SECONDS)
