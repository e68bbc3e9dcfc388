"""Pure core: the event webhook of SendGrid: signature and reports."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from starling_messages.links import CALLBACK_FIELD
from starling_tracker.callbacks.diagnostics import reply_code
from starling_tracker.callbacks.report import (
    BOUNCED,
    CLICKED,
    COMPLAINED,
    DELIVERED,
    FAILED,
    OPENED,
    UNSUBSCRIBED,
    Effect,
    Malformed,
    Parsed,
    Report,
    Unauthorised,
    detail_of,
    json_of,
    seconds_of,
    text_at,
    token_of,
)

SIGNATURE: Final = "x-twilio-email-event-webhook-signature"
TIMESTAMP: Final = "x-twilio-email-event-webhook-timestamp"
TOLERANCE_SECONDS: Final = 300
"""How far the time of a signature may be from the wall clock."""

_EXPECTED: Final = "a JSON array of events, as the event webhook of SendGrid sends it"
_IGNORED: Final = frozenset({"processed", "deferred", "group_resubscribe"})
_SIMPLE: Final[Mapping[str, tuple[str, Effect]]] = {
    "delivered": (DELIVERED, Effect.NONE),
    "open": (OPENED, Effect.NONE),
    "click": (CLICKED, Effect.NONE),
    "spamreport": (COMPLAINED, Effect.COMPLAINT),
    "unsubscribe": (UNSUBSCRIBED, Effect.REFUSAL),
    "group_unsubscribe": (UNSUBSCRIBED, Effect.REFUSAL),
}
_DROPPED: Final[Mapping[str, Effect]] = {
    "Bounced Address": Effect.HARD_BOUNCE,
    "Invalid": Effect.HARD_BOUNCE,
    "Spam Reporting Address": Effect.COMPLAINT,
    "Unsubscribed Address": Effect.REFUSAL,
}
"""Why SendGrid did not send a message -> what it knows of the address."""


def check_signature(header: Callable[[str], str | None], body: bytes, public_key: str, now_seconds: float) -> None:
    """Raise Unauthorised unless the key has signed the body within the tolerance of now."""
    signature, timestamp = header(SIGNATURE), header(TIMESTAMP)
    if not signature or not timestamp:
        raise Unauthorised(f"{SIGNATURE} and {TIMESTAMP} are missing: switch the signature of the event webhook on")
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        raise Unauthorised(f"{TIMESTAMP} is no time in seconds")
    if abs(now_seconds - int(timestamp)) > TOLERANCE_SECONDS:
        raise Unauthorised(f"the signature is more than {TOLERANCE_SECONDS} s old or ahead")
    try:
        _key(public_key).verify(base64.b64decode(signature, validate=True), timestamp.encode() + body, ECDSA(SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        raise Unauthorised("the signature is invalid") from None


@lru_cache(maxsize=1024)
def _key(public_key: str) -> EllipticCurvePublicKey:
    try:
        found = load_der_public_key(base64.b64decode(public_key, validate=True))
    except (ValueError, UnsupportedAlgorithm):
        raise Unauthorised("callbacks.public_key of the target is no key of SendGrid: copy the verification key again") from None
    if not isinstance(found, EllipticCurvePublicKey):
        raise Unauthorised("callbacks.public_key of the target is no key of SendGrid: copy the verification key again")
    return found


def reports_of(body: bytes) -> Parsed:
    """Return the reports of a body. Raises: Malformed if it is no array; an event that cannot be read has a `problem`."""
    events = json_of(body, _EXPECTED)
    if not isinstance(events, list):
        raise Malformed(f"the body is no array: expected {_EXPECTED}")
    found = [_report(event) for event in events]
    reports = [report for report in found if report is not None]
    return Parsed(reports, len(found) - len(reports))


def _report(event: Any) -> Report | None:
    """Return the report of an event; None if it has no meaning here."""
    alone = json.dumps([event]).encode()
    fields: Mapping[str, Any] = event if isinstance(event, Mapping) else {}
    kind, name, reason = text_at(fields, "event"), text_at(fields, "sg_event_id"), text_at(fields, "reason")
    if kind in _IGNORED:
        return None
    meaning = _meaning(fields, kind)
    if not name or meaning is None:
        return Report(alone, name, problem=f"an event has no sg_event_id, or its kind {kind[:50]!r} is unknown")
    return Report(
        alone,
        f"{kind}:{name}",
        outcome=meaning[0],
        token=token_of(text_at(fields, CALLBACK_FIELD)),
        at_ms=seconds_of(fields.get("timestamp")),
        detail=detail_of(text_at(fields, "status"), reason) if reason else None,
        status_code=reply_code(reason),
        effect=meaning[1],
        by_machine=fields.get("sg_machine_open") is True,
    )


def _meaning(event: Mapping[str, Any], kind: str) -> tuple[str, Effect] | None:
    """Return the outcome and the effect of an event; None for an unknown kind."""
    if kind == "bounce":
        # `blocked`: refused for now, such as by a list of bad senders.
        return BOUNCED, Effect.SOFT_BOUNCE if text_at(event, "type") == "blocked" else Effect.HARD_BOUNCE
    if kind == "dropped":
        return FAILED, _DROPPED.get(text_at(event, "reason"), Effect.NONE)
    return _SIMPLE.get(kind)
