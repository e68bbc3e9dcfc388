"""Pure core: the format, the headers, the batches, the rate and the secrets of a webhook."""

import re
from collections.abc import Mapping
from typing import Any, Final

from starling_common.security.sealing import is_sealed
from starling_common.time.instants import format_instant
from starling_segments import FieldError

STANDARD: Final = "standard"
FORMATS: Final = (STANDARD, "segment-track", "segment-identify")
MAX_HEADERS: Final = 10
MAX_HEADER_CHARACTERS: Final = 1000
MASK: Final = "***"
"""Replaces the value of a header in responses. In a body it keeps the stored value."""
BATCH_LIMITS: Final[Mapping[str, tuple[int, int]]] = {"max_items": (1, 100), "max_wait_ms": (0, 1000)}
"""Field of `batch` -> the lowest and the highest value."""
BATCH_DEFAULTS: Final[Mapping[str, int]] = {"max_items": 100, "max_wait_ms": 200}
RATE_LIMITS: Final = (1, 10_000)
"""The lowest and the highest value of `rate`, in requests a second."""
OVERLAP_MS: Final = 24 * 3_600_000
"""How long messages are also signed with the previous secret after a rotation."""

PREVIOUS: Final = "previous_secret"
PREVIOUS_UNTIL: Final = "previous_secret_until_ms"
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
_OWN: Final = frozenset({
    "host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
    "trailer", "expect", "accept-encoding", "user-agent", "proxy-authorization", "proxy-connection",
})  # fmt: skip
"""Headers that the channel or the connection sets."""
_OWN_PREFIX: Final = "webhook-"


def format_errors(given: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the errors of the format."""
    if given.get("format") in (None, *FORMATS):
        return ()
    return (FieldError("/format", "wrong_type", "it is not a format", "one of " + ", ".join(FORMATS)),)


def header_errors(given: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the errors of the headers."""
    headers = given.get("headers")
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        return (FieldError("/headers", "wrong_type", "it is not an object", "an object of header names and values, or null"),)
    errors = [
        FieldError(f"/headers/{_escaped(name)}", "wrong_type", reason, expected)
        for name, value in headers.items()
        for reason, expected in _header_errors(name, value)
    ]
    if len(headers) > MAX_HEADERS:
        errors.append(FieldError("/headers", "wrong_type", f"it has {len(headers)} headers", f"at most {MAX_HEADERS}"))
    if len({name.lower() for name in headers}) < len(headers):
        errors.append(FieldError("/headers", "wrong_type", "two names differ in case only", "each header once"))
    return tuple(errors)


def batch_errors(given: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the errors of the batches."""
    batch = given.get("batch")
    if batch is None:
        return ()
    if not isinstance(batch, Mapping):
        return (FieldError("/batch", "wrong_type", "it is not an object", f"an object with {' and '.join(BATCH_LIMITS)}, or null"),)
    return tuple(error for name, value in batch.items() for error in _batch_field_errors(name, value))


def rate_errors(given: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return the errors of the rate."""
    rate, (lowest, highest) = given.get("rate"), RATE_LIMITS
    if rate is None or (isinstance(rate, int) and not isinstance(rate, bool) and lowest <= rate <= highest):
        return ()
    expected = f"requests a second, an integer from {lowest} to {highest}, or null"
    return (FieldError("/rate", "wrong_type", "the value is not a rate", expected),)


def _batch_field_errors(name: str, value: object) -> tuple[FieldError, ...]:
    pointer = f"/batch/{_escaped(name)}"
    if name not in BATCH_LIMITS:
        expected = "one of " + ", ".join(BATCH_LIMITS)
        return (FieldError(pointer, "unknown_field", f"{name!r} is not a field of the batches of a webhook", expected),)
    lowest, highest = BATCH_LIMITS[name]
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest):
        return ()
    return (FieldError(pointer, "wrong_type", "the value is not allowed", f"an integer from {lowest} to {highest}, or null"),)


def _header_errors(name: str, value: object) -> list[tuple[str, str]]:
    if not _NAME.match(name):
        return [("it is not the name of a header", "1 to 100 letters, digits and characters of !#$%&'*+.^_`|~-")]
    if name.lower() in _OWN or name.lower().startswith(_OWN_PREFIX):
        return [(f"{name} is set by Starling", "another header")]
    if value == MASK:
        return [(f"{MASK} stands for a stored value, and there is none", "the value of the header")]
    if is_sealed(value):
        return []
    if not isinstance(value, str) or len(value) > MAX_HEADER_CHARACTERS or not _VALUE.match(value):
        expected = f"1 to {MAX_HEADER_CHARACTERS} printable ASCII characters, without spaces at the ends"
        return [("it is not the value of a header", expected)]
    return []


def stored_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to store. A default is not stored, so that documents without these fields stay equal."""
    found: dict[str, Any] = {}
    if given.get("format") not in (None, STANDARD):
        found["format"] = given["format"]
    if given.get("headers"):
        found["headers"] = dict(given["headers"])
    if given.get("batch") is not None:
        found["batch"] = {
            name: default if given["batch"].get(name) is None else given["batch"][name] for name, default in BATCH_DEFAULTS.items()
        }
    if given.get("rate") is not None:
        found["rate"] = given["rate"]
    return found


def unmasked(document: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the document with the stored values of masked headers."""
    headers = document.get("headers")
    if before is None or not isinstance(headers, Mapping):
        return dict(document)
    stored = before.get("headers") or {}
    return {**document, "headers": {name: stored.get(name, value) if value == MASK else value for name, value in headers.items()}}


def with_previous_secret(kept: dict[str, Any], before: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the document with the secret that it replaces, which stays valid for a day, or with the one already kept."""
    if kept["secret"] != before["secret"]:
        return {**kept, PREVIOUS: before["secret"], PREVIOUS_UNTIL: now_ms + OVERLAP_MS}
    return {**kept, **{field: before[field] for field in (PREVIOUS, PREVIOUS_UNTIL) if field in before}}


def without_expired_secret(document: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the document without a previous secret that signs no more."""
    expired = PREVIOUS in document and now_ms >= document[PREVIOUS_UNTIL]
    return {field: value for field, value in document.items() if not expired or field not in {PREVIOUS, PREVIOUS_UNTIL}}


def secrets_of_webhook(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the path of each secret in the document of a webhook, such as `("headers", "Authorization")`."""
    headers = document.get("headers")
    found: list[tuple[str, ...]] = [(field,) for field in ("secret", PREVIOUS) if document.get(field) is not None]
    return [*found, *(("headers", name) for name in (headers if isinstance(headers, Mapping) else ()))]


def shown_webhook(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document for a response: without secrets, with masked headers and with defaults."""
    public = {field: value for field, value in document.items() if field not in {"secret", PREVIOUS, PREVIOUS_UNTIL}}
    return {
        **public,
        "format": document.get("format", STANDARD),
        "batch": document.get("batch"),
        "rate": document.get("rate"),
        "headers": dict.fromkeys(document.get("headers") or {}, MASK),
        "previous_secret_expires_at": previous_secret_expires_at(document),
    }


def previous_secret_expires_at(document: Mapping[str, Any]) -> str | None:
    """Return the instant until which the previous secret signs; None without one."""
    until_ms = document.get(PREVIOUS_UNTIL)
    return None if until_ms is None else format_instant(until_ms)


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
