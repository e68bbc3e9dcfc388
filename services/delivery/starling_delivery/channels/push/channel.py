"""Adapter: the push channel: one notification a device, at most once."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, Self

import h2  # noqa: F401 - httpcore imports it at the first connection: without it, the process ends at its start

from starling_common.http.outbound.connections import guarded_client
from starling_common.http.outbound.sessions import GuardedSession
from starling_delivery.channel import AT_MOST_ONCE, Answer, Impossible, Message, Park
from starling_delivery.channels.http import Http1Client, Http2Client, HttpClient
from starling_delivery.channels.push.apns import Apns
from starling_delivery.channels.push.fcm import Fcm
from starling_delivery.channels.push.web import WebPush
from starling_delivery.messages.definitions import Definitions, KnownTarget
from starling_delivery.settings import EmailSettings
from starling_messages.devices import APNS, FCM, WEBPUSH, is_reached

_KEEP_ALIVE_SECONDS: Final = 60.0
"""APNs asks for long connections, and takes many short ones for an attack."""


class Sender(Protocol):
    """Sends to the devices of one kind of target."""

    async def send(self, message: Message, target: KnownTarget) -> Answer:
        """Make one attempt and return its result."""


class PushChannel:
    """Sends notifications to browsers and apps. The target decides by which service."""

    name = "push"
    semantics = AT_MOST_ONCE

    def __init__(self, http: HttpClient, http2: HttpClient, definitions: Definitions, senders: Mapping[str, Sender]) -> None:
        """`senders`: the channel of a target -> what sends for it."""
        self._clients = http, http2
        self._definitions = definitions
        self._senders = senders

    @classmethod
    def open(cls, settings: EmailSettings, definitions: Definitions, passed: Callable[[str], None]) -> Self:
        """Return a channel with its own HTTP clients. Raises: OSError, SSLError for the file of certificates."""
        push, allow_private = settings.push, settings.allow_private_addresses
        session = GuardedSession(
            lookup_seconds=settings.lookup_timeout_seconds,
            connections=settings.max_in_flight,
            allow_private=allow_private,
            ca_file=push.ca_file,
            keepalive_seconds=_KEEP_ALIVE_SECONDS,
        )
        client = guarded_client(
            timeout_seconds=settings.timeout_seconds,
            lookup_seconds=settings.lookup_timeout_seconds,
            connections=settings.max_in_flight,
            allow_private=allow_private,
            http2=True,
            ca_file=push.ca_file,
            keepalive_seconds=_KEEP_ALIVE_SECONDS,
        )
        http = Http1Client(session, allow_private=allow_private, passed=passed)
        tokens = Http1Client(session, allow_private=allow_private)
        http2 = Http2Client(client, allow_private=allow_private, passed=passed)
        senders: dict[str, Sender] = {
            WEBPUSH: WebPush(http),
            FCM: Fcm(http, tokens, str(push.fcm_url), str(push.fcm_token_url)),
            APNS: Apns(http2, {"production": str(push.apns_url), "sandbox": str(push.apns_sandbox_url)}),
        }
        return cls(http, http2, definitions, senders)

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result. Only `Again` allows another one: the service surely has not taken the message."""
        target = self._definitions.find(message.workspace, message.target_key)
        if target.target is None:
            return Impossible("target_archived")
        sender = self._senders.get(target.target.channel)
        if sender is None or not is_reached(message.address, target.target.channel):
            return Impossible(f"a target of the channel {target.target.channel} does not reach this device")
        return await sender.send(message, target)

    def hold(self, _message: Message) -> Park | None:
        """Return None: every rendered message can be sent."""
        return None

    def unsubscribe_link(self, _message: Message) -> str | None:
        """Return None: notifications are switched off at the device."""
        return None

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.close()
