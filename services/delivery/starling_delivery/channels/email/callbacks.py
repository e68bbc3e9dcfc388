"""Pure core: the headers by which a provider's callbacks name the message, and those that the provider replaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starling_campaigns.definitions.targets import SENDGRID, SES
from starling_delivery.channel import Message
from starling_delivery.channels.email.signing import Header
from starling_delivery.messages.callback import callback_token
from starling_messages.links import CALLBACK_FIELD, CALLBACK_HEADER, Links

_EMAIL: Final = "email"
_LINE_CHARACTERS: Final = 700
"""A line of a header has at most 998 bytes. The tracker ignores white space in a token."""

_REPLACED: Final[Mapping[str, frozenset[bytes]]] = {
    SES: frozenset({b"x-ses-configuration-set", b"message-id", b"date"}),
    SENDGRID: frozenset({b"x-smtpapi"}),
}
"""Provider -> the headers that it removes or replaces. A signature that covers one of them would be invalid at the receiver."""


@dataclass(frozen=True, slots=True)
class ProviderHeaders:
    """What a provider needs in a mail. `replaced`: lower-case names of the headers that no signature may cover."""

    headers: list[Header] = field(default_factory=list)
    replaced: frozenset[bytes] = frozenset()


NO_PROVIDER: Final = ProviderHeaders()


def provider_headers(message: Message, callbacks: Mapping[str, Any] | None, links: Links | None) -> ProviderHeaders:
    """Return the headers of a message. `callbacks`: those of the target. Without keys of links no callback names the message."""
    if callbacks is None:
        return NO_PROVIDER
    provider, headers = callbacks["provider"], list[Header]()
    if provider == SES and callbacks.get("configuration_set"):
        headers.append((b"X-SES-CONFIGURATION-SET", b" " + callbacks["configuration_set"].encode("ascii")))
    if links is not None:
        token = _folded(callback_token(message, _EMAIL, links))
        headers.append((CALLBACK_HEADER.encode(), b" " + token))
        if provider == SENDGRID:  # its events have no header of the mail
            headers.append((b"X-SMTPAPI", b' {"unique_args":\r\n {"%b":\r\n "%b"}}' % (CALLBACK_FIELD.encode(), token)))
    return ProviderHeaders(headers, _REPLACED.get(provider, frozenset()))


def _folded(token: str) -> bytes:
    lines = [token[at : at + _LINE_CHARACTERS] for at in range(0, len(token), _LINE_CHARACTERS)]
    return "\r\n ".join(lines).encode("ascii")
