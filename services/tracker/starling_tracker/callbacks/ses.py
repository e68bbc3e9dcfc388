"""Pure core: Amazon SES, whose events come as notifications of Amazon SNS: signature, confirmation of the topic, and reports."""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.x509 import Certificate

from starling_messages.links import CALLBACK_HEADER
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
    instant_of,
    json_of,
    object_at,
    text_at,
    token_of,
)

NOTIFICATION: Final = "Notification"
CONFIRMATION: Final = "SubscriptionConfirmation"
ENDED: Final = "UnsubscribeConfirmation"
_EXPECTED: Final = "the JSON of Amazon SNS: leave raw message delivery of the subscription off"

_SIGNED: Final[Mapping[str, tuple[str, ...]]] = {
    NOTIFICATION: ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    CONFIRMATION: ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    ENDED: ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
"""Type -> the fields that the signature covers, in its order."""

_HASHES: Final = {"1": SHA1, "2": SHA256}
_CERTIFICATE_PATH: Final = re.compile(r"/SimpleNotificationService-[A-Za-z0-9]{8,64}\.pem\Z")
_SOFT_BUT_OF_CONTENT: Final = frozenset({"MessageTooLarge", "ContentRejected", "AttachmentRejected"})

_PARTS: Final[Mapping[str, str]] = {
    "Bounce": "bounce", "Complaint": "complaint", "Delivery": "delivery", "Open": "open", "Click": "click", "Reject": "reject",
    "Rendering Failure": "failure", "Subscription": "subscription",
}  # fmt: skip
"""Kind of an event -> the field with its details. `Send` and `DeliveryDelay` change nothing."""


def envelope_of(body: bytes) -> Mapping[str, str]:
    """Return the fields of a message of SNS that are texts. Raises: Malformed."""
    found = json_of(body, _EXPECTED)
    if not isinstance(found, dict) or text_at(found, "Type") not in _SIGNED:
        raise Malformed(f"the body is no message of SNS: expected {_EXPECTED}")
    envelope = {name: value for name, value in found.items() if isinstance(value, str)}
    required = {*_SIGNED[envelope["Type"]], "Signature", "SignatureVersion", "SigningCertURL"} - {"Subject"}
    if missing := sorted(required - envelope.keys()):
        raise Malformed(f"the message of SNS has no {', '.join(missing)}: expected {_EXPECTED}")
    return envelope


def host_of(topic_arn: str) -> str:
    """Return the host of SNS in the region of a topic."""
    _, partition, _, region, *_ = topic_arn.split(":")
    return f"sns.{region}.amazonaws.com" + (".cn" if partition == "aws-cn" else "")


def certificate_url(envelope: Mapping[str, str], topic_arn: str) -> str:
    """Return the URL of the certificate. Raises: Unauthorised if the topic or the host is another one."""
    if envelope["TopicArn"] != topic_arn:
        raise Unauthorised("the message is of another topic than topic_arn of the target")
    url = envelope["SigningCertURL"]
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Unauthorised("SigningCertURL is no URL") from None
    host = host_of(topic_arn)
    if (parts.scheme, parts.netloc, parts.query, parts.fragment) != ("https", host, "", ""):
        raise Unauthorised(f"SigningCertURL does not lead to https://{host}")
    if not _CERTIFICATE_PATH.match(parts.path):
        raise Unauthorised("SigningCertURL names no certificate of SNS")
    return url


def confirmation_url(envelope: Mapping[str, str], topic_arn: str) -> str:
    """Return the URL that confirms the subscription. Raises: Unauthorised if it leads elsewhere or confirms something else."""
    url, host = envelope["SubscribeURL"], host_of(topic_arn)
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, max_num_fields=20)
    except ValueError:
        raise Unauthorised("SubscribeURL is no URL") from None
    if not url.isascii() or not url.isprintable() or (parts.scheme, parts.netloc) != ("https", host):
        raise Unauthorised(f"SubscribeURL does not lead to https://{host}")
    if (query.get("Action"), query.get("TopicArn")) != (["ConfirmSubscription"], [topic_arn]):
        raise Unauthorised("SubscribeURL does not confirm the subscription of the topic")
    return url


def check_signature(envelope: Mapping[str, str], certificate: Certificate, now: datetime) -> None:
    """Raise Unauthorised unless the certificate is valid now and has signed the message."""
    algorithm, key = _HASHES.get(envelope["SignatureVersion"]), certificate.public_key()
    if algorithm is None or not isinstance(key, RSAPublicKey):
        raise Unauthorised("the signature is of an unknown version: SNS has 1 and 2")
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise Unauthorised("the certificate of the signature is not valid now")
    fields = [name for name in _SIGNED[envelope["Type"]] if name in envelope]
    signed = "".join(f"{name}\n{envelope[name]}\n" for name in fields).encode("utf-8", "surrogatepass")
    try:
        key.verify(base64.b64decode(envelope["Signature"], validate=True), signed, PKCS1v15(), algorithm())
    except (InvalidSignature, binascii.Error, ValueError):
        raise Unauthorised("the signature is invalid") from None


def now_utc() -> datetime:
    """Return the wall clock."""
    return datetime.now(UTC)


def reports_of(envelope: Mapping[str, str], body: bytes) -> Parsed:
    """Return the report of a notification: one at most. A text that is no event of SES, such as a test of the topic, has none."""
    if envelope["Type"] != NOTIFICATION:
        return Parsed([])
    try:
        event = json_of(envelope["Message"].encode("utf-8", "surrogatepass"), "an event of SES")
    except Malformed:
        event = None
    kind = text_at(event, "eventType") or text_at(event, "notificationType") if isinstance(event, Mapping) else ""
    if not isinstance(event, Mapping) or kind not in _PARTS:
        return Parsed([], 1)
    part = object_at(event, _PARTS[kind])
    name = f"{kind}:{text_at(part, 'feedbackId') or envelope['MessageId']}"
    report = Report(body, name, token=_token(event), at_ms=instant_of(text_at(part, "timestamp") or envelope["Timestamp"]))
    found = _read(kind, part, report)
    return Parsed([], 1) if found is None else Parsed([found])


def _read(kind: str, part: Mapping[str, Any], report: Report) -> Report | None:
    found: Report | None
    match kind:
        case "Bounce":
            found = _bounce(part, report)
        case "Complaint":
            detail = detail_of(text_at(part, "complaintFeedbackType"))
            found = report._replace(outcome=COMPLAINED, detail=detail, effect=Effect.COMPLAINT)
        case "Delivery":
            response = text_at(part, "smtpResponse")
            found = report._replace(outcome=DELIVERED, detail=detail_of(response), status_code=reply_code(response))
        case "Open" | "Click":
            found = report._replace(outcome=OPENED if kind == "Open" else CLICKED)
        case "Subscription":
            has_left = object_at(part, "newTopicPreferences").get("unsubscribeAll") is True
            found = report._replace(outcome=UNSUBSCRIBED, effect=Effect.REFUSAL) if has_left else None
        case _:
            why = text_at(part, "reason") or text_at(part, "errorMessage")
            found = report._replace(outcome=FAILED, detail=detail_of(f"{kind}:", why))
    return found


def _bounce(part: Mapping[str, Any], report: Report) -> Report:
    kind, subtype = text_at(part, "bounceType"), text_at(part, "bounceSubType")
    recipients = part.get("bouncedRecipients")
    first = recipients[0] if isinstance(recipients, list) and recipients and isinstance(recipients[0], Mapping) else {}
    status, diagnosis = text_at(first, "status"), text_at(first, "diagnosticCode")
    effect = Effect.HARD_BOUNCE if kind == "Permanent" else Effect.SOFT_BOUNCE
    if effect is Effect.SOFT_BOUNCE and subtype in _SOFT_BUT_OF_CONTENT:
        effect = Effect.NONE
    detail = detail_of(f"{kind}/{subtype}", status, diagnosis)
    return report._replace(outcome=BOUNCED, detail=detail, status_code=reply_code(diagnosis), effect=effect)


def _token(event: Mapping[str, Any]) -> str | None:
    headers = object_at(event, "mail").get("headers")
    for header in headers if isinstance(headers, list) else []:
        if isinstance(header, Mapping) and text_at(header, "name").lower() == CALLBACK_HEADER.lower():
            return token_of(text_at(header, "value"))
    return None
