"""Adapter: web push (RFC 8030): a message encrypted for the subscription of a browser, posted to its push service.

The address of the push service comes from the browser, so anybody who has the write key can choose it. No failure of one counts as
a failure of the target, which would stop the messages to all other browsers.
"""

import time
from hashlib import blake2b
from typing import Final

from starling_common.http.web_address import parse_web_address
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Bounced, Delivered, Impossible, Message, Unknown
from starling_delivery.channels.http import HttpAnswer, HttpClient, MaybeSent, NotSent
from starling_delivery.channels.push.encryption import SubscriptionRefused, encrypted
from starling_delivery.channels.push.keys import KeyRefused, PerTarget, VapidKey, base64url
from starling_delivery.channels.push.payloads import PayloadRefused, remaining_seconds, web_payload
from starling_delivery.messages.definitions import KnownTarget
from starling_messages.devices import subscription_of

_TOPIC_BYTES: Final = 24
"""32 characters of base64url, the longest topic of RFC 8030."""


class WebPush:
    """Sends to browsers."""

    def __init__(self, http: HttpClient) -> None:
        """`http`: a guarded client."""
        self._http = http
        self._keys = PerTarget(VapidKey)

    async def send(self, message: Message, target: KnownTarget) -> Answer:
        """Make one attempt and return its result."""
        subscription = subscription_of(message.address)
        if subscription is None:
            return Impossible("the address is no subscription of a browser")
        try:
            body = encrypted(web_payload(message), subscription)
            authorization = self._keys.of(target).header(origin_of(subscription.endpoint), int(time.time()))
        except KeyRefused as refused:
            return Again(str(refused))
        except PayloadRefused as refused:
            return Impossible(str(refused))
        except SubscriptionRefused as refused:
            return Bounced(str(refused), is_hard=False)
        return await self._post(message, subscription.endpoint, authorization, body)

    async def _post(self, message: Message, endpoint: str, authorization: str, body: bytes) -> Answer:
        headers = {
            "authorization": authorization,
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(remaining_seconds(message, wall_clock_ms())),
            "topic": topic_of(message),
        }
        try:
            return answer_of(await self._http.post(endpoint, body, headers))
        except NotSent as error:
            return Again(str(error), is_of_target=False)
        except MaybeSent as error:
            return Unknown(str(error), is_of_target=False)


def origin_of(endpoint: str) -> str:
    """Return the origin of a push service, which is the audience of its tokens. Raises: SubscriptionRefused."""
    try:
        address = parse_web_address(endpoint)
    except ValueError as error:
        raise SubscriptionRefused(f"the endpoint of the subscription is invalid: {error}") from error
    return f"{address.scheme}://{address.host_header}"


def topic_of(message: Message) -> str:
    """Return the topic of a message. A browser that was away gets the newest message of a campaign alone."""
    return base64url(blake2b(f"{message.workspace}/{message.campaign}".encode(), digest_size=_TOPIC_BYTES).digest())


def answer_of(answer: HttpAnswer) -> Answer:
    """Return the result of an answer of a push service."""
    status, why = answer.status, f"the push service answered {answer.status}"
    if answer.ok:
        return Delivered(status)
    if status in {404, 410}:
        return Bounced(f"{why}: the subscription does not exist any more", status, is_hard=False)
    if status in {408, 425, 429, 503}:
        return Again(why, status, answer.retry_after, is_of_target=False)
    if status in {401, 403}:
        return Again(f"{why}: the subscription belongs to another key than that of the target", status, is_of_target=False)
    return Unknown(why, is_of_target=False) if status >= 500 else Impossible(why, status)
