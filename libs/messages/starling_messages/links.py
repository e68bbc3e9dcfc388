"""Pure core: the tokens in links of messages: who got which message, encrypted and authenticated with AES-SIV (RFC 5297)."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

T = TypeVar("T")

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


CALLBACK_HEADER: Final = "X-Starling-Delivery"
"""The header of a mail with the token of its callbacks."""
CALLBACK_FIELD: Final = "starling"
"""The name of that token where a provider takes a value with a message, and repeats it in its callbacks."""
TEST: Final = "test"
"""In place of a token: the message is a test, and what becomes of it is not reported."""

_PUNCTUATION: Final = ("-", "_")
_LAST: Final = "0"
"""Follows a token that would end with punctuation, which programs that find links in plain text do not count to the link. No base64
text has such a length."""

_CALLBACK: Final = b"p"
_PROOF: Final = b"proof"


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


class Callback(NamedTuple):
    """The message that a provider reports about. `digest`: of its address, as that of a suppression."""

    link: Link
    digest: str


class Links:
    """Writes and reads tokens. The first key writes, all keys read.

    The same link has the same token, so that a mail that is rendered again has the same bytes.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """`keys`: id -> 32 bytes, the newest first, one at least."""
        self._ciphers = {_key_id(key): AESSIV(_derived(key)) for key in keys.values()}
        self._newest = next(iter(self._ciphers))

    def token(self, kind: LinkKind, link: Link) -> str:
        """Return the token of a link: URL-safe characters without padding. The last one is a letter or a digit."""
        return self._sealed(msgspec.msgpack.encode(link), kind.encode())

    def read(self, kind: LinkKind, token: str) -> Link | None:
        """Return the link of a token; None if the token was not written with one of the keys for this kind."""
        return _decoded(self._opened(token, kind.encode()), Link)

    def callback_token(self, callback: Callback) -> str:
        """Return the token that a message carries to its provider, which repeats it in callbacks."""
        return self._sealed(msgspec.msgpack.encode(callback), _CALLBACK)

    def read_callback(self, token: str) -> Callback | None:
        """Return the message of a token; None if the token was not written with one of the keys for callbacks."""
        return _decoded(self._opened(token, _CALLBACK), Callback)

    def proof(self, data: bytes) -> str:
        """Return a proof that this installation has accepted these bytes before."""
        return self._sealed(hashlib.sha256(data).digest(), _PROOF)

    def proves(self, proof: str, data: bytes) -> bool:
        """Return whether `proof` was written for these bytes with one of the keys."""
        return self._opened(proof, _PROOF) == hashlib.sha256(data).digest()

    def _sealed(self, plain: bytes, use: bytes) -> str:
        sealed = self._ciphers[self._newest].encrypt(plain, [use])
        token = base64.urlsafe_b64encode(self._newest + sealed).rstrip(b"=").decode()
        return token + _LAST if token.endswith(_PUNCTUATION) else token

    def _opened(self, token: str, use: bytes) -> bytes | None:
        if len(token) > MAX_TOKEN_CHARACTERS:
            return None
        if len(token) % 4 == 1 and token.endswith(_LAST) and token[:-1].endswith(_PUNCTUATION):
            token = token[:-1]
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        cipher = self._ciphers.get(data[:_KEY_ID_BYTES])
        if cipher is None or len(data) <= _KEY_ID_BYTES + _SIV_BYTES:
            return None
        try:
            return cipher.decrypt(data[_KEY_ID_BYTES:], [use])
        except InvalidTag:
            return None


def _decoded(plain: bytes | None, shape: type[T]) -> T | None:
    if plain is None:
        return None
    try:
        return msgspec.msgpack.decode(plain, type=shape)
    except msgspec.DecodeError:
        return None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(_PURPOSE_OF_KEY + key).digest()[:_KEY_ID_BYTES]


def _derived(key: bytes) -> bytes:
    return HKDF(SHA256(), 64, salt=None, info=_PURPOSE_OF_KEY).derive(key)
