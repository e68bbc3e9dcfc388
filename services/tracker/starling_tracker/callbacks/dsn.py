"""Pure core: delivery status notifications (RFC 3464) as the mail server's pipe posts them: authentication and reports."""

import email
import hashlib
import hmac
from collections.abc import Iterator
from email.message import Message
from typing import Final

from starling_messages.links import CALLBACK_HEADER
from starling_tracker.callbacks.diagnostics import effect_of_status, reply_code
from starling_tracker.callbacks.report import (
    BOUNCED,
    DELIVERED,
    Malformed,
    Parsed,
    Report,
    Unauthorised,
    detail_of,
    token_of,
)

_EXPECTED: Final = "a delivery status notification: multipart/report with a part message/delivery-status"
_SCHEME: Final = "bearer "
_MOST_DEPTH: Final = 8
_MOST_RECIPIENTS: Final = 100


def check_secret(authorization: str | None, secret: str) -> None:
    """Raise Unauthorised unless the header `Authorization` has the secret as a bearer token."""
    given = authorization or ""
    if given[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthorised("the header `Authorization: Bearer …` with callbacks.secret of the target is missing")
    if not hmac.compare_digest(given[len(_SCHEME) :].strip().encode("utf-8", "replace"), secret.encode()):
        raise Unauthorised("the secret is not callbacks.secret of the target")


def reports_of(body: bytes) -> Parsed:
    """Return a report for each recipient that a notification names. Raises: Malformed."""
    try:
        mail = email.message_from_bytes(body)
        parts = list(_parts(mail, 0))
        statuses = [part for part in parts if part.get_content_type() == "message/delivery-status"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # what the parser raises at broken MIME
        raise Malformed(f"the body is no mail: {error}: expected {_EXPECTED}") from error
    if not statuses:
        raise Malformed(f"the mail has no part message/delivery-status: expected {_EXPECTED}")
    blocks = [block for status in statuses for block in _blocks(status) if _text(block, "Action")]
    if not blocks:
        raise Malformed("the notification names no recipient: each needs `Action` and `Final-Recipient` (RFC 3464)")
    token, name = _token(parts), hashlib.sha256(body).hexdigest()
    found = [
        _report(block, Report(body, f"{name}:{number}", token=token)) for number, block in enumerate(blocks[:_MOST_RECIPIENTS])
    ]
    reports = [report for report in found if report is not None]
    return Parsed(reports, len(found) - len(reports))


def _report(block: Message, report: Report) -> Report | None:
    """Return the report of one recipient; None for an action that is not final."""
    status, diagnosis = _text(block, "Status"), _text(block, "Diagnostic-Code")
    detailed = report._replace(detail=detail_of(status, diagnosis), status_code=reply_code(diagnosis))
    match _text(block, "Action").lower():
        case "failed":
            return detailed._replace(outcome=BOUNCED, effect=effect_of_status(status))
        case "delivered":
            return detailed._replace(outcome=DELIVERED)
    return None


def _parts(mail: Message, depth: int) -> Iterator[Message]:
    yield mail
    payload = mail.get_payload()
    if isinstance(payload, list) and depth < _MOST_DEPTH:
        for part in payload:
            if isinstance(part, Message):
                yield from _parts(part, depth + 1)


def _blocks(status: Message) -> list[Message]:
    payload = status.get_payload()
    return [block for block in payload if isinstance(block, Message)] if isinstance(payload, list) else []


def _token(parts: list[Message]) -> str | None:
    """Return the token of the returned mail: its headers are a message, or the text of a part text/rfc822-headers."""
    for part in parts[1:]:
        if found := token_of(_text(part, CALLBACK_HEADER)):
            return found
        if part.get_content_type() == "text/rfc822-headers":
            text = part.get_payload(decode=True)
            headers = email.message_from_bytes(text if isinstance(text, bytes) else b"")
            if found := token_of(_text(headers, CALLBACK_HEADER)):
                return found
    return None


def _text(block: Message, name: str) -> str:
    # A header with bytes beyond ASCII is no text.
    return " ".join(str(block.get(name) or "").split())
