"""Pure core: what Twilio, and services with the same interface, call about: the status of messages, and texts of people."""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starling_messages.links import CALLBACK_FIELD
from starling_tracker.callbacks.report import (
    BOUNCED,
    DELIVERED,
    FAILED,
    OPENED,
    Effect,
    Malformed,
    Parsed,
    Reply,
    Report,
    Unauthorised,
    detail_of,
    token_of,
)

SIGNATURE: Final = "x-twilio-signature"
_MOST_FIELDS: Final = 200
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}

_STOPPED: Final = 21_610
_NO_NUMBER: Final = frozenset({21_211, 21_614, 30_005, 30_006})
"""Error codes of numbers that do not exist, or that no text message reaches."""
_UNREACHABLE: Final = frozenset({30_003})
"""Error codes of phones that are off or away."""

_RECEIVED: Final = "received"
_NUMBER: Final = re.compile(r"\+[0-9]{6,15}")
_STOP: Final = frozenset({"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"})
_START: Final = frozenset({"START", "UNSTOP"})
"""The words after which Twilio sends nothing more, or sends again. YES is none of them: it answers other questions too."""
_AROUND: Final = " \t\r\n.,!\"'"
"""What a person may write around a word."""


def fields_of(body: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form. Raises: Malformed."""
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except (ValueError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is no form: {error}: expected application/x-www-form-urlencoded") from error


def check_signature(signature: str | None, urls: Iterable[str], fields: Iterable[tuple[str, str]], auth_token: str) -> None:
    """Raise Unauthorised unless the token has signed one of the URLs with the fields.

    `urls`: what the address of the callback may have been outside of a proxy; the last one is that of the error.
    """
    if not signature:
        raise Unauthorised(f"{SIGNATURE} is missing")
    given = signature.encode("utf-8", "replace")
    values: dict[str, set[str]] = {}
    for name, value in fields:
        values.setdefault(name, set()).add(value)
    text = "".join(name + value for name in sorted(values) for value in sorted(values[name]))
    for url in [variant for one in urls for variant in _with_and_without_port(one)]:
        digest = hmac.new(auth_token.encode(), (url + text).encode("utf-8", "surrogatepass"), hashlib.sha1).digest()
        if hmac.compare_digest(base64.b64encode(digest), given):
            return
    raise Unauthorised("the signature is invalid: is STARLING_PUBLIC_URL the address that Twilio calls?")


def _with_and_without_port(url: str) -> list[str]:
    """Return the URL with and without its port: services differ in which one they sign."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return [url]
    host = f"[{host}]" if ":" in host else host
    default = _DEFAULT_PORTS.get(parts.scheme)
    bare = parts._replace(netloc=host).geturl()
    return [url, bare if port is not None else parts._replace(netloc=f"{host}:{default}").geturl()]


def reports_of(fields: list[tuple[str, str]], query: str, body: bytes) -> Parsed:
    """Return the report of a callback, or the text of a person: one at most. `query`: of its address, with the token.

    Raises: Malformed.
    """
    found = dict(fields)
    if "Body" in found and not found.get("MessageStatus") and found.get("SmsStatus", _RECEIVED) == _RECEIVED:
        return _text_of(found)
    message, status = found.get("MessageSid") or found.get("SmsSid"), found.get("MessageStatus") or found.get("SmsStatus")
    if not message or not status:
        raise Malformed("the form has no MessageSid or no MessageStatus: expected a status callback, or a message")
    report = Report(body, f"{message}:{status}", token=_token(query), detail=_detail(found))
    match status:
        case "delivered":
            return Parsed([report._replace(outcome=DELIVERED, detail=None)])
        case "read":
            return Parsed([report._replace(outcome=OPENED, detail=None)])
        case "undelivered" | "failed" | "canceled":
            return Parsed([_failed(report, found.get("ErrorCode", ""))])
    return Parsed([], 1)


def _text_of(fields: Mapping[str, str]) -> Parsed:
    """Return what a person has sent. Raises: Malformed."""
    message, address = fields.get("MessageSid") or fields.get("SmsSid"), fields.get("From", "").strip()
    if not message or not address:
        raise Malformed("the form has no MessageSid or no From: expected a message")
    # Twilio states what it has understood itself, if its own words were changed.
    word = (fields.get("OptOutType") or fields["Body"].strip(_AROUND)).upper()
    if not _NUMBER.fullmatch(address) or word not in _STOP | _START:
        return Parsed([], 1, is_text=True)
    return Parsed([], 0, Reply(message, address, word in _STOP), is_text=True)


def _failed(report: Report, code: str) -> Report:
    number = int(code) if code.isascii() and code.isdigit() and len(code) <= 6 else 0
    if number in _NO_NUMBER:
        return report._replace(outcome=BOUNCED, effect=Effect.HARD_BOUNCE)
    if number in _UNREACHABLE:
        return report._replace(outcome=BOUNCED, effect=Effect.SOFT_BOUNCE)
    return report._replace(outcome=FAILED, effect=Effect.STOP if number == _STOPPED else Effect.NONE)


def _detail(fields: Mapping[str, str]) -> str | None:
    return detail_of(fields.get("ErrorCode", ""), fields.get("ErrorMessage", ""))


def _token(query: str) -> str | None:
    try:
        return token_of(dict(parse_qsl(query, max_num_fields=_MOST_FIELDS)).get(CALLBACK_FIELD))
    except ValueError:
        return None
