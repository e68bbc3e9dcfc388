"""Adapter: the Apple Push Notification service: HTTP/2, with the token of a team."""

import time
from typing import Final

from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Bounced, Delivered, Impossible, Message, Unknown
from starling_delivery.channels.http import HttpAnswer, HttpClient, MaybeSent, NotSent
from starling_delivery.channels.push.keys import KeyRefused, PerTarget, ProviderToken
from starling_delivery.channels.push.payloads import PayloadRefused, apns_payload, remaining_seconds
from starling_delivery.messages.definitions import KnownTarget

_EXPIRED_TOKEN: Final = "ExpiredProviderToken"  # noqa: S105 - the name of an error
_OF_DEVICE: Final = "TooManyRequests"
"""Too many requests for one device. Every other 429 concerns the target."""
_OF_TARGET: Final = frozenset(
    {"BadTopic", "MissingTopic", "TopicDisallowed", "BadCertificate", "BadCertificateEnvironment", "InvalidPushType", "IdleTimeout"}
)
"""Reasons of 400 that every message of the target would get."""
_MOST_REASON: Final = 100


class Apns:
    """Sends to apps on devices of Apple."""

    def __init__(self, http: HttpClient, urls: dict[str, str]) -> None:
        """`http`: a client with HTTP/2. `urls`: environment -> its address."""
        self._http = http
        self._urls = {environment: url.rstrip("/") for environment, url in urls.items()}
        self._tokens = PerTarget(ProviderToken)

    async def send(self, message: Message, target: KnownTarget) -> Answer:
        """Make one attempt and return its result."""
        try:
            body, provider = apns_payload(message), self._tokens.of(target)
            token = provider.value(int(time.time()))
            answer = await self._post(message, target, token, body)
            if answer.status == 403 and _reason(answer) == _EXPIRED_TOKEN:
                another = provider.replaced(token, int(time.time()))
                if another is not None:
                    answer = await self._post(message, target, another, body)
            return answer_of(answer)
        except PayloadRefused as refused:
            return Impossible(str(refused))
        except (KeyRefused, NotSent) as refused:
            return Again(str(refused))
        except MaybeSent as error:
            return Unknown(str(error))

    async def _post(self, message: Message, target: KnownTarget, token: str, body: bytes) -> HttpAnswer:
        assert target.target is not None  # noqa: S101 - the channel has compared it
        settings, now_ms = target.target.settings, wall_clock_ms()
        headers = {
            "authorization": f"bearer {token}",
            "apns-id": message.delivery_id,
            "apns-expiration": str(now_ms // 1000 + remaining_seconds(message, now_ms)),
            "apns-push-type": "alert",
            "apns-priority": "10",
            "apns-topic": settings["topic"],
            "content-type": "application/json",
        }
        return await self._http.post(f"{self._urls[settings['environment']]}/3/device/{message.address}", body, headers)


def answer_of(answer: HttpAnswer) -> Answer:
    """Return the result of an answer of APNs."""
    if answer.ok:
        return Delivered(answer.status)
    reason = _reason(answer)
    status, why = answer.status, f"APNs answered {answer.status} {reason}".rstrip()
    if status == 410 or (status == 400 and reason == "BadDeviceToken"):
        return Bounced(why, status, is_hard=False)
    if status in {403, 429, 503} or (status == 400 and reason in _OF_TARGET):
        return Again(why, status, answer.retry_after, is_of_target=reason != _OF_DEVICE)
    return Unknown(why) if status >= 500 else Impossible(why, status)


def _reason(answer: HttpAnswer) -> str:
    body = answer.json()
    return str(body.get("reason") or "")[:_MOST_REASON] if isinstance(body, dict) else ""
