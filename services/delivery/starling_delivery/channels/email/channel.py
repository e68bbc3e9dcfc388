"""Adapter: the email channel: one mail a message, at most once."""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aiosmtplib import SMTP, SMTPDataError, SMTPException, SMTPRecipientRefused, SMTPResponseException, SMTPServerDisconnected

from starling_common.http.outbound.addresses import AddressRefused
from starling_common.http.outbound.lookups import Lookups
from starling_common.security.tls import tls_context
from starling_delivery.channel import AT_MOST_ONCE, Again, Answer, Bounced, Delivered, Impossible, Message, Park, Unknown
from starling_delivery.channels.email.callbacks import provider_headers
from starling_delivery.channels.email.connections import Connection, Connections, Guard
from starling_delivery.channels.email.rendering import Mail, MailLinks, MailRefused, OtherPage, is_unsubscribable, mail_of
from starling_delivery.channels.email.signing import KeyRefused, Signer
from starling_delivery.channels.email.tracking import Tracking
from starling_delivery.messages.definitions import Definitions, KnownTarget
from starling_delivery.settings import EmailSettings
from starling_messages.links import Links

_CLOSING: Final = 421
_MOST_DETAIL: Final = 300
_OF_SERVER: Final = frozenset({3, 4, 7})
"""The subjects of enhanced codes (RFC 3463) that are no matter of one message: mail system, network, policy."""

_ENHANCED: Final = re.compile(r"\b([245])\.(\d{1,3})\.(\d{1,3})\b")

NO_LINK: Final = Park(
    "neither STARLING_EMAIL__TRACKER_URL nor STARLING_EMAIL__UNSUBSCRIBE_URL is set, and every mail that is not transactional "
    "needs a link to unsubscribe",
    "no_unsubscribe_url",
)


@dataclass(eq=False)
class _Attempt:
    """How far an attempt is. `in_data`: the server may have the whole mail."""

    in_data: bool = False


class EmailChannel:
    """Sends mails through the SMTP server of the target."""

    name = "email"
    semantics = AT_MOST_ONCE

    def __init__(
        self,
        definitions: Definitions,
        connections: Connections,
        *,
        deadline_seconds: float = 15.0,
        links: MailLinks | None = None,
        callbacks: Links | None = None,
        passed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`passed`: called at failpoints. `deadline_seconds` bounds a whole attempt. `callbacks`: writes tokens of callbacks."""
        self._definitions = definitions
        self._connections = connections
        self._deadline_seconds = deadline_seconds
        self._links = links
        self._callbacks = callbacks
        self._passed = passed
        self._signers: dict[tuple[str, str], tuple[int, Signer]] = {}

    @classmethod
    def open(cls, settings: EmailSettings, definitions: Definitions, passed: Callable[[str], None]) -> "EmailChannel":
        """Return a channel with its own connections. Raises: OSError, SSLError for the file of certificates."""
        email = settings.email
        guard = Guard(Lookups(settings.lookup_timeout_seconds), settings.allow_private_addresses or email.allow_private_addresses)
        connections = Connections(
            guard,
            tls_context(email.ca_file, None, check_hostname=True),
            email.hostname or socket.getfqdn(),
            email.connections_per_target,
            settings.timeout_seconds,
        )
        keys = settings.link_keys
        return cls(
            definitions,
            connections,
            deadline_seconds=settings.timeout_seconds,
            links=_links(settings),
            callbacks=Links(keys) if keys else None,
            passed=passed,
        )

    def hold(self, message: Message) -> Park | None:
        """Return why no such mail is sent by this process: without a link to unsubscribe only transactional ones are."""
        return NO_LINK if self._links is None and is_unsubscribable(message.purpose) else None

    def unsubscribe_link(self, message: Message) -> str | None:
        """Return the link of a message, as its headers have it; None of a transactional one."""
        return self._links.unsubscribe_link(message) if self._links is not None and is_unsubscribable(message.purpose) else None

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result. Only `Again` allows another one: the server surely has not taken the mail."""
        target = self._definitions.find(message.workspace, message.target_key)
        if target.target is None:
            return Impossible("target_archived")
        attempt = _Attempt()
        try:
            mail = self._mail(message, target)
            async with asyncio.timeout(self._deadline_seconds), self._connections.slot(target.workspace, target.key):
                return await self._attempt(target, mail, attempt)
        except MailRefused as refused:
            return Impossible(str(refused))
        except (KeyRefused, AddressRefused) as refused:
            return Again(str(refused))
        except Exception as error:  # noqa: BLE001 - whatever the failure, what counts is whether the mail may have been taken
            return _failed(error, attempt, self._deadline_seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _mail(self, message: Message, target: KnownTarget) -> Mail:
        assert target.target is not None  # noqa: S101 - `send` has compared it
        settings = target.target.settings
        provider = provider_headers(message, settings.get("callbacks"), self._callbacks)
        return mail_of(message, settings["from"], self._links, datetime.now(UTC), self._signer(target), provider)

    def _signer(self, target: KnownTarget) -> Signer | None:
        assert target.target is not None  # noqa: S101 - `send` has compared it
        dkim = target.target.settings.get("dkim")
        if dkim is None:
            return None
        version, signer = self._signers.get((target.workspace, target.key), (0, None))
        if signer is None or version != target.version:
            signer = Signer.of(dkim["domain"], dkim["selector"], dkim["private_key"])
            self._signers[target.workspace, target.key] = target.version, signer
        return signer

    async def _attempt(self, target: KnownTarget, mail: Mail, attempt: _Attempt) -> Answer:
        assert target.target is not None  # noqa: S101 - `send` has compared it
        key = (target.workspace, target.key, target.version)
        connection = await self._connections.take(key, target.target.settings)
        try:
            return await self._sent(connection, key, mail, attempt)
        except (SMTPServerDisconnected, ConnectionError):
            if connection.is_fresh or attempt.in_data:
                raise
        # The server has closed the connection while it was idle.
        return await self._sent(await self._connections.take(key, target.target.settings, fresh=True), key, mail, attempt)

    async def _sent(self, connection: Connection, key: tuple[str, str, int], mail: Mail, attempt: _Attempt) -> Answer:
        try:
            answer = await self._transact(connection.smtp, mail, attempt)
        except BaseException:
            connection.close()
            raise
        self._connections.give_back(key, connection)
        return answer

    async def _transact(self, smtp: SMTP, mail: Mail, attempt: _Attempt) -> Answer:
        """Send one mail. The connection is ready for the next one if this returns."""
        await smtp.mail(mail.sender)
        try:
            await smtp.rcpt(mail.recipient)
        except SMTPRecipientRefused as refused:
            if refused.code == _CLOSING:
                raise
            await _reset(smtp)
            return recipient_refused(refused.code, refused.message)
        attempt.in_data = True
        self._passed("in_send")
        try:
            response = await smtp.data(mail.data)
        except SMTPDataError as refused:
            attempt.in_data = False  # an answer: the server has not taken the mail
            if refused.code == _CLOSING:
                raise
            await _reset(smtp)
            return data_refused(refused.code, refused.message)
        self._passed("after_send")
        return Delivered(response.code)


def _links(settings: EmailSettings) -> MailLinks | None:
    email = settings.email
    if email.tracker_url is not None:
        return Tracking(str(email.tracker_url).rstrip("/"), Links(settings.link_keys))
    return None if email.unsubscribe_url is None else OtherPage(str(email.unsubscribe_url))


async def _reset(smtp: SMTP) -> None:
    """End the mail in progress. A connection on which that fails is not used again."""
    try:
        await smtp.rset()
    except (SMTPException, OSError):
        smtp.close()


def recipient_refused(code: int, text: str) -> Answer:
    """Return the result of a refused recipient: 5xx bounces, unless its enhanced code is about policy, and 4xx is tried again.

    X.7.Y refuses the sender, such as `5.7.1 relaying denied`: another recipient would be refused too. X.2.Y is a state of the
    mailbox, such as a full one, which may end.
    """
    why, subject = _detail(code, text), _subject(text)
    if code < 500:
        return Again(why, code, is_of_target=subject in _OF_SERVER)
    if subject == 7:
        return Again(why, code)
    return Bounced(why, code, is_hard=subject != 2)


def data_refused(code: int, text: str) -> Answer:
    """Return the result of refused content: 4xx is tried again, 5xx ends the message."""
    why = _detail(code, text)
    return Again(why, code, is_of_target=_subject(text) in _OF_SERVER) if code < 500 else Impossible(why, code)


def _failed(error: Exception, attempt: _Attempt, deadline_seconds: float) -> Answer:
    """Return the result of an attempt that ended with an exception."""
    if attempt.in_data:
        return Unknown(f"{type(error).__name__}: {error}")
    if isinstance(error, SMTPResponseException):
        return Again(_detail(error.code, error.message), error.code)
    if isinstance(error, TimeoutError):
        return Again(f"the server did not take the mail within {deadline_seconds:g} s")
    if isinstance(error, SMTPException | OSError | ssl.SSLError):
        return Again(f"{type(error).__name__}: {error}"[:_MOST_DETAIL])
    return Impossible(f"{type(error).__name__}: {error}"[:_MOST_DETAIL])


def _detail(code: int, text: str) -> str:
    return f"{code} {' '.join(text.split())}"[:_MOST_DETAIL].encode("utf-8", "replace").decode()


def _subject(text: str) -> int | None:
    """Return the subject of the enhanced status code (RFC 3463), such as 7 of `5.7.1`; None without one."""
    found = _ENHANCED.search(text)
    return int(found[2]) if found else None
