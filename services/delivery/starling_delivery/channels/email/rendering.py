"""Pure core: the mail of a message: headers and MIME parts, as bytes in lines that end with CRLF."""

import re
from dataclasses import dataclass
from datetime import datetime
from email.errors import MessageError
from email.utils import format_datetime, parseaddr
from typing import Final, Protocol
from urllib.parse import urlencode

import idna

from starling_delivery.channel import Message
from starling_delivery.channels.email.callbacks import NO_PROVIDER, ProviderHeaders
from starling_delivery.channels.email.mime import content, recipient_header, sender_header, subject_header
from starling_delivery.channels.email.signing import Signer
from starling_policy import TRANSACTIONAL

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[^\s@<>()\[\],:;\\\"\x00-\x20\x7f]{1,253}\Z")
"""The names of RFC 5322 without quotes. Others need servers with SMTPUTF8, or are a mistake."""

_MOST_LINE_BYTES: Final = 998


class MailRefused(Exception):
    """The message cannot become a mail, now or later."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail, ready to send. `sender` and `recipient` are those of the envelope."""

    sender: str
    recipient: str
    data: bytes


def is_unsubscribable(purpose: str | None) -> bool:
    """Return whether a mail of the purpose offers to unsubscribe: every one that is not transactional."""
    return purpose != TRANSACTIONAL


class MailLinks(Protocol):
    """The links of mails."""

    def unsubscribe_link(self, message: Message) -> str:
        """Return the link by which the person of a message unsubscribes."""

    def html(self, message: Message, html: str) -> str:
        """Return the HTML part as it is sent."""


@dataclass(frozen=True)
class OtherPage:
    """A page of the installation's own. `base_url`: what the link to unsubscribe begins with; nothing is tracked."""

    base_url: str

    def unsubscribe_link(self, message: Message) -> str:
        """Return the base with the workspace, the delivery and the purpose; of a test, whose reader is another, the base alone."""
        if message.is_test:
            return self.base_url
        query = urlencode({"workspace": message.workspace, "delivery": message.delivery_id, "purpose": message.purpose or ""})
        return f"{self.base_url}{'&' if '?' in self.base_url else '?'}{query}"

    def html(self, _message: Message, html: str) -> str:
        """Return the HTML part unchanged."""
        return html


def mail_of(
    message: Message,
    from_address: str,
    links: MailLinks | None,
    at: datetime,
    signer: Signer | None,
    provider: ProviderHeaders = NO_PROVIDER,
) -> Mail:
    """Return the mail of a message. `at`: its date, with a time zone. Without `links` only a transactional mail can be sent.

    Its `Message-ID` depends on the delivery alone. Raises: MailRefused.
    """
    sender_name, sender = parseaddr(from_address)
    sender, recipient = checked_address(sender), checked_address(message.address)
    try:
        addressed = [
            sender_header(sender_name, sender), recipient_header(recipient), subject_header(message.content.get("subject", ""))
        ]  # fmt: skip
    except (ValueError, MessageError) as error:
        raise MailRefused(f"a header is invalid: {error}") from error
    html = message.content.get("html")
    if html is not None and links is not None:
        html = links.html(message, html)
    described, body = content(message.content.get("text"), html, f"=_{message.delivery_id}")
    head = [
        (b"Message-ID", f" <{message.delivery_id}@{sender.partition('@')[2]}>".encode()),
        (b"Date", f" {format_datetime(at)}".encode()),
        *_unsubscribe_headers(message, links),
    ]
    headers = [*head, *provider.headers, *addressed, *described]
    if any(len(line) > _MOST_LINE_BYTES for _, value in headers for line in value.split(b"\r\n")):
        raise MailRefused(f"a header has a line of more than {_MOST_LINE_BYTES} bytes")
    signed = [header for header in headers if header[0].lower() not in provider.replaced]
    signature = b"" if signer is None else signer.header(signed, body)
    lines = b"".join(name + b":" + value + b"\r\n" for name, value in headers)
    return Mail(sender, recipient, signature + lines + b"\r\n" + body)


def _unsubscribe_headers(message: Message, links: MailLinks | None) -> list[tuple[bytes, bytes]]:
    """Return the headers by which a mail client unsubscribes; none of a transactional mail. Raises: MailRefused without links."""
    if not is_unsubscribable(message.purpose):
        return []
    if links is None:
        raise MailRefused("a mail that is not transactional needs a link to unsubscribe")
    # Not by the email package, which encodes a long word.
    return [
        (b"List-Unsubscribe", f" <{links.unsubscribe_link(message)}>".encode("ascii")),
        (b"List-Unsubscribe-Post", b" List-Unsubscribe=One-Click"),
    ]


def checked_address(address: str) -> str:
    """Return an address with its domain in ASCII. Raises: MailRefused for one that no header or command can contain."""
    found = _ADDRESS.match(address.strip())
    if found is None:
        raise MailRefused("no_address: the address is not one of the form name@example.com in ASCII")
    name, _, domain = address.strip().rpartition("@")
    if domain.isascii():
        return f"{name}@{domain}"
    try:
        return f"{name}@{idna.encode(domain, uts46=True).decode()}"
    except idna.IDNAError as error:
        raise MailRefused(f"no_address: the domain of the address is invalid: {error}") from error
