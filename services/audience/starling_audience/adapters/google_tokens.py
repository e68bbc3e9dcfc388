"""Adapter: access tokens of Google for service accounts (RFC 7523), requested through the guarded client."""

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from starling_audience.adapters.adapter import Again, AudienceRequest, Ended, Response, text_of
from starling_audience.adapters.google import DEFAULT_TOKEN_URL, SCOPE
from starling_audience.adapters.http import Exchange

_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_SECONDS: Final = 3_600
_EARLY_SECONDS: Final = 300
"""An access token is replaced so long before its end."""
_LEAST_SECONDS: Final = 30
_REFUSING: Final = frozenset({400, 401, 403})


class KeyRefused(Exception):
    """The private key of a target is none of a service account."""


class GoogleToken:
    """The access token of one target. For one batch at a time."""

    def __init__(self, workspace: str, settings: Mapping[str, Any]) -> None:
        """`settings`: those of the target, with plain secrets."""
        self._workspace = workspace
        self._url = settings.get("token_url") or DEFAULT_TOKEN_URL
        self._email = settings["client_email"]
        self._private_key = settings["private_key"]
        self._token = ""
        self._until = 0.0

    def drop(self) -> None:
        """Forget the token: Google has refused it."""
        self._token, self._until = "", 0.0

    async def value(self, exchange: Exchange) -> str | Again | Ended:
        """Return an access token, or why there is none."""
        if time.monotonic() < self._until:
            return self._token
        try:
            assertion = self._assertion(int(time.time()))
        except KeyRefused as error:
            return Ended(str(error))
        body = urlencode({"grant_type": _GRANT, "assertion": assertion}).encode()
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await exchange.exchange(self._workspace, AudienceRequest("POST", self._url, headers, body, ()))
        if not isinstance(answer, Response):
            return answer
        found = answer.json()
        found = found if isinstance(found, dict) else {}
        token, seconds = found.get("access_token"), found.get("expires_in")
        if answer.status != 200 or not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            detail = text_of(found.get("error_description") or found.get("error")) or "no access token"
            why = f"the token endpoint answered {answer.status}: {detail}"
            return Ended(why) if answer.status in _REFUSING else Again(why, answer.retry_after_seconds)
        lasts = seconds if type(seconds) is int else _ASSERTION_SECONDS
        self._token, self._until = token, time.monotonic() + max(_LEAST_SECONDS, lasts - _EARLY_SECONDS)
        return token

    def _assertion(self, now_s: int) -> str:
        try:
            key = load_pem_private_key(self._private_key.encode(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise KeyRefused("the private_key of the target is no private key in PEM without a password") from error
        if not isinstance(key, rsa.RSAPrivateKey):
            raise KeyRefused("the private_key of the target is no RSA key, as the JSON file of a service account has one")
        claims = {"iss": self._email, "scope": SCOPE, "aud": self._url, "iat": now_s, "exp": now_s + _ASSERTION_SECONDS}
        return jwt.encode(claims, key, "RS256")
