"""Pure core: the keys of targets, and the tokens that they sign."""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key, load_pem_private_key

from starling_delivery.messages.definitions import KnownTarget

VAPID_SECONDS: Final = 12 * 3_600
"""How long a VAPID token is valid. RFC 8292 allows a day; clocks differ."""
_MOST_ORIGINS: Final = 256
_RAW_KEY_BYTES: Final = 32
PROVIDER_TOKEN_SECONDS: Final = 2_400
"""The age at which a token for APNs is made again. APNs refuses one of an hour, and a change within 20 minutes of the last."""
LEAST_TOKEN_SECONDS: Final = 1_200
ASSERTION_SECONDS: Final = 3_600
FCM_SCOPE: Final = "https://www.googleapis.com/auth/firebase.messaging"

_BASE64URL: Final = re.compile(r"([A-Za-z0-9_-]*)={0,2}")

T = TypeVar("T")


class KeyRefused(Exception):
    """The private key of a target is none of the required kind."""


class PerTarget(Generic[T]):
    """One value for each target, made again when the target has a new version."""

    def __init__(self, make: Callable[[Mapping[str, Any]], T]) -> None:
        """`make` returns the value of the settings of a target."""
        self._make = make
        self._made: dict[tuple[str, str], tuple[int, T]] = {}

    def of(self, target: KnownTarget) -> T:
        """Return the value of a target that is not archived. Raises: KeyRefused."""
        assert target.target is not None  # noqa: S101 - the channel has compared it
        version, found = self._made.get((target.workspace, target.key), (0, None))
        if found is None or version != target.version:
            found = self._make(target.target.settings)
            self._made[target.workspace, target.key] = target.version, found
        return found


class VapidKey:
    """The key of an application server (RFC 8292). Its tokens are signed once for each push service."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of a target `webpush`. Raises: KeyRefused."""
        self._subject = settings["subject"]
        self._key = _vapid_key(settings["private_key"])
        self.public = base64url(self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))
        self._headers: dict[str, tuple[int, str]] = {}

    def header(self, origin: str, now_s: int) -> str:
        """Return the value of `Authorization` for the push service with that origin, such as `https://push.example`."""
        until, header = self._headers.get(origin, (0, ""))
        if until <= now_s:
            claims = {"aud": origin, "exp": now_s + VAPID_SECONDS, "sub": self._subject}
            header = f"vapid t={jwt.encode(claims, self._key, 'ES256')},k={self.public}"
            if len(self._headers) >= _MOST_ORIGINS:  # addresses are input of users
                self._headers.clear()
            self._headers[origin] = now_s + VAPID_SECONDS // 2, header
        return header


class ProviderToken:
    """The token that authenticates a team at APNs."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of a target `apns`. Raises: KeyRefused."""
        self._team_id, self._key_id = settings["team_id"], settings["key_id"]
        self._key = _pem_key(settings["private_key"])
        if not isinstance(self._key, ec.EllipticCurvePrivateKey) or not isinstance(self._key.curve, ec.SECP256R1):
            raise KeyRefused("the private_key of the target is no key of APNs, which is an EC key of P-256 (a .p8 file)")
        self._issued_at = 0
        self._token = ""

    def value(self, now_s: int) -> str:
        """Return the token, at most 40 minutes old."""
        if now_s - self._issued_at >= PROVIDER_TOKEN_SECONDS:
            self._renew(now_s)
        return self._token

    def replaced(self, expired: str, now_s: int) -> str | None:
        """Return a token to use after APNs called one expired; None if that one is too young to be replaced."""
        if self._token == expired:
            if now_s - self._issued_at < LEAST_TOKEN_SECONDS:
                return None
            self._renew(now_s)
        return self._token

    def _renew(self, now_s: int) -> None:
        claims = {"iss": self._team_id, "iat": now_s}
        self._token = jwt.encode(claims, self._key, "ES256", headers={"kid": self._key_id})
        self._issued_at = now_s


class ServiceAccount:
    """The service account of a project of Firebase."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those of a target `fcm`. Raises: KeyRefused."""
        self.project_id: str = settings["project_id"]
        self._email = settings["client_email"]
        self._key = _pem_key(settings["private_key"])
        if not isinstance(self._key, rsa.RSAPrivateKey):
            raise KeyRefused("the private_key of the target is no RSA key, as the JSON file of a service account has one")

    def assertion(self, audience: str, now_s: int) -> str:
        """Return what the token endpoint exchanges for an access token (RFC 7523). `audience`: its address."""
        claims = {"iss": self._email, "scope": FCM_SCOPE, "aud": audience, "iat": now_s, "exp": now_s + ASSERTION_SECONDS}
        return jwt.encode(claims, self._key, "RS256")


def base64url(data: bytes) -> str:
    """Return bytes in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Return the bytes of a text in base64url, with or without padding. Raises: ValueError."""
    found = _BASE64URL.fullmatch(text)
    if found is None or len(found[1]) % 4 == 1:
        raise ValueError("the text is no base64url")
    return base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4))


def _vapid_key(text: str) -> ec.EllipticCurvePrivateKey:
    try:
        data = from_base64url(text)
        key = (
            ec.derive_private_key(int.from_bytes(data), ec.SECP256R1())
            if len(data) == _RAW_KEY_BYTES
            else load_der_private_key(data, None)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyRefused("the private_key of the target is no key of VAPID: 32 bytes, or PKCS 8, in base64url") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise KeyRefused("the private_key of the target is no EC key of P-256, as VAPID needs it")
    return key


def _pem_key(text: str) -> Any:
    try:
        return load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyRefused("the private_key of the target is no private key in PEM without a password") from error
