"""Pure core: the encryption of a payload for the subscription of a browser: RFC 8291, with the content coding of RFC 8188.

By the primitives of `cryptography`: the package http-ece, on which every library for web push relies, has no wheel. An image that
installed it would fetch its build backend without hashes. The tests decrypt with it.
"""

import os
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from starling_delivery.channels.push.keys import from_base64url
from starling_messages.devices import Subscription

RECORD_BYTES: Final = 4_096
"""The size that the header states. The payload is one record, as RFC 8291 requires it."""
_AUTH_BYTES: Final = 16
_SALT_BYTES: Final = 16
_LAST_RECORD: Final = b"\x02"


class SubscriptionRefused(Exception):
    """The keys or the address of the subscription cannot be used, now or later."""


def encrypted(
    payload: bytes, subscription: Subscription, own: ec.EllipticCurvePrivateKey | None = None, salt: bytes | None = None
) -> bytes:
    """Return the body of a request, `aes128gcm`. `own`, `salt`: of this message alone; None: random ones.

    Raises: SubscriptionRefused.
    """
    receiver, receiver_bytes, secret = _keys(subscription)
    own = ec.generate_private_key(ec.SECP256R1()) if own is None else own
    salt = os.urandom(_SALT_BYTES) if salt is None else salt
    own_bytes = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    shared = own.exchange(ec.ECDH(), receiver)
    material = _derived(shared, secret, b"WebPush: info\x00" + receiver_bytes + own_bytes, 32)
    key = _derived(material, salt, b"Content-Encoding: aes128gcm\x00", 16)
    nonce = _derived(material, salt, b"Content-Encoding: nonce\x00", 12)
    header = salt + RECORD_BYTES.to_bytes(4) + len(own_bytes).to_bytes(1) + own_bytes
    return header + AESGCM(key).encrypt(nonce, payload + _LAST_RECORD, None)


def _keys(subscription: Subscription) -> tuple[ec.EllipticCurvePublicKey, bytes, bytes]:
    """Return the public key of the browser, its bytes, and the secret."""
    try:
        public, secret = from_base64url(subscription.p256dh), from_base64url(subscription.auth)
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
    except ValueError as error:
        raise SubscriptionRefused(f"the keys of the subscription are invalid: {error}") from error
    if len(secret) != _AUTH_BYTES:
        raise SubscriptionRefused(f"the keys of the subscription are invalid: `auth` has {len(secret)} bytes, not {_AUTH_BYTES}")
    return key, key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint), secret


def _derived(material: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(material)
