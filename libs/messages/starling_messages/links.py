"""Pure core: the tokens in links of messages: who got which message, encrypted and authenticated with AES-SIV (RFC 5297)."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAX_TOKEN_CHARACTERS: Final = 8_192
"""A longer token is not decoded."""

_KEY_ID_BYTES: Final = 4
_SIV_BYTES: Final = 16
_PURPOSE_OF_KEY: Final = b"starling links of messages, version 1"


class LinkKind(StrEnum):
    """What a link does, as in the path of the tracker. A token of one kind is invalid as one of another."""

    OPEN = "o"
    CLICK = "c"
    UNSUBSCRIBE = "u"


class Link(NamedTuple):
    """The message of a link. `url`: of a click, where it leads; else empty."""

    workspace: str
    user_id: str
    delivery_id: str
    channel: str
    target_key: str
    campaign: str | None
    purpose: str | None
    url: str = ""


class Links:
    """Writes and reads tokens. The first key writes, all keys read.

    The same link has the same token, so that a mail that is rendered again has the same bytes.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """`keys`: id -> 32 bytes, the newest first, one at least."""
        self._ciphers = {_key_id(key): AESSIV(_derived(key)) for key in keys.values()}
        self._newest = next(iter(self._ciphers))

    def token(self, kind: LinkKind, link: Link) -> str:
        """Return the token of a link: URL-safe characters without padding."""
        sealed = self._ciphers[self._newest].encrypt(msgspec.msgpack.encode(link), [kind.encode()])
        return base64.urlsafe_b64encode(self._newest + sealed).rstrip(b"=").decode()

    def read(self, kind: LinkKind, token: str) -> Link | None:
        """Return the link of a token; None if the token was not written with one of the keys for this kind."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            return None
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        cipher = self._ciphers.get(data[:_KEY_ID_BYTES])
        if cipher is None or len(data) <= _KEY_ID_BYTES + _SIV_BYTES:
            return None
        try:
            return msgspec.msgpack.decode(cipher.decrypt(data[_KEY_ID_BYTES:], [kind.encode()]), type=Link)
        except (InvalidTag, msgspec.DecodeError):
            return None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(_PURPOSE_OF_KEY + key).digest()[:_KEY_ID_BYTES]


def _derived(key: bytes) -> bytes:
    return HKDF(SHA256(), 64, salt=None, info=_PURPOSE_OF_KEY).derive(key)
