"""Adapter: Firebase Cloud Messaging, HTTP v1.

The access token is requested through the guarded client of the channel. The transports of google-auth are synchronous, or clients
of their own: their requests would block the event loop, or have neither the guard nor the deadline of the attempt.
"""

import asyncio
import time
from typing import Any, Final
from urllib.parse import urlencode

from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Bounced, Delivered, Impossible, Message, Unknown
from starling_delivery.channels.http import HttpAnswer, HttpClient, MaybeSent, NotSent
from starling_delivery.channels.push.keys import KeyRefused, PerTarget, ServiceAccount
from starling_delivery.channels.push.payloads import PayloadRefused, fcm_payload
from starling_delivery.messages.definitions import KnownTarget

_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EARLY_SECONDS: Final = 300
"""An access token is replaced so long before its end."""
_LEAST_SECONDS: Final = 30
_MOST_SECONDS: Final = 3_600
_MOST_DETAIL: Final = 200
_FCM_ERROR: Final = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
_THIRD_PARTY: Final = "THIRD_PARTY_AUTH_ERROR"
"""FCM itself is refused, by APNs or a push service. Its status is 401 too, but our token is valid."""


class TokenRefused(Exception):
    """There is no access token, so nothing is sent."""


class AccessToken:
    """The access token of one target. One request at a time asks for it, and the others wait."""

    def __init__(self, account: ServiceAccount) -> None:
        self.account = account
        self._lock = asyncio.Lock()
        self._token = ""
        self._until = 0.0

    async def value(self, http: HttpClient, url: str, refused: str | None = None) -> str:
        """Return an access token; another one than `refused`. `url`: the token endpoint. Raises: TokenRefused."""
        async with self._lock:
            if self._token == refused or time.monotonic() >= self._until:
                await self._renew(http, url)
            return self._token

    async def _renew(self, http: HttpClient, url: str) -> None:
        self._token, self._until = "", 0.0
        body = urlencode({"grant_type": _GRANT, "assertion": self.account.assertion(url, int(time.time()))})
        try:
            answer = await http.post(url, body, {"content-type": "application/x-www-form-urlencoded"})
        except (NotSent, MaybeSent) as error:
            raise TokenRefused(f"the token endpoint gave no answer: {error}") from error
        found = answer.json()
        found = found if isinstance(found, dict) else {}
        token, seconds = found.get("access_token"), found.get("expires_in")
        if not answer.ok or not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            detail = str(found.get("error_description") or found.get("error") or "no access token")[:_MOST_DETAIL]
            raise TokenRefused(f"the token endpoint answered {answer.status}: {detail}")
        lasts = seconds if isinstance(seconds, int) else _MOST_SECONDS
        self._token, self._until = token, time.monotonic() + max(_LEAST_SECONDS, min(lasts, _MOST_SECONDS) - _EARLY_SECONDS)


class Fcm:
    """Sends to apps that use Firebase."""

    def __init__(self, http: HttpClient, tokens: HttpClient, url: str, token_url: str) -> None:
        """`tokens`: the client for access tokens. `url`: FCM, `token_url`: the token endpoint of Google."""
        self._http = http
        self._tokens = tokens
        self._url = url.rstrip("/")
        self._token_url = token_url
        self._accounts = PerTarget(lambda settings: AccessToken(ServiceAccount(settings)))

    async def send(self, message: Message, target: KnownTarget) -> Answer:
        """Make one attempt and return its result."""
        try:
            body, access = fcm_payload(message, wall_clock_ms()), self._accounts.of(target)
            token = await access.value(self._tokens, self._token_url)
            answer = await self._post(access, token, body)
            if answer.status == 401 and _error(answer)[0] != _THIRD_PARTY:
                token = await access.value(self._tokens, self._token_url, refused=token)
                answer = await self._post(access, token, body)
            return answer_of(answer)
        except PayloadRefused as refused:
            return Impossible(str(refused))
        except (KeyRefused, TokenRefused, NotSent) as refused:
            return Again(str(refused))
        except MaybeSent as error:
            return Unknown(str(error))

    async def _post(self, access: AccessToken, token: str, body: bytes) -> HttpAnswer:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json; charset=utf-8"}
        return await self._http.post(f"{self._url}/v1/projects/{access.account.project_id}/messages:send", body, headers)


def answer_of(answer: HttpAnswer) -> Answer:
    """Return the result of an answer of FCM.

    Only `UNREGISTERED` removes a device: FCM answers 404 for a project that does not exist, too.
    """
    if answer.ok:
        return Delivered(answer.status)
    code, detail = _error(answer)
    status, why = answer.status, f"FCM answered {answer.status} {code}: {detail}".rstrip(" :")
    if code == "UNREGISTERED":
        return Bounced(why, status, is_hard=False)
    if code in {"INVALID_ARGUMENT", "SENDER_ID_MISMATCH"} or status in {400, 413, 422} or 300 <= status < 400:
        return Impossible(why, status)
    if status >= 500 and status != 503:
        return Unknown(why)
    return Again(why, status, answer.retry_after)


def _error(answer: HttpAnswer) -> tuple[str, str]:
    """Return the error code and the message of an answer; empty texts without them."""
    body = answer.json()
    error: Any = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    details = error.get("details")
    codes = [
        one.get("errorCode")
        for one in (details if isinstance(details, list) else ())
        if isinstance(one, dict) and one.get("@type") == _FCM_ERROR
    ]
    code = next((one for one in codes if isinstance(one, str)), error.get("status"))
    return str(code or "")[:_MOST_DETAIL], str(error.get("message") or "")[:_MOST_DETAIL]
