"""Callbacks as the providers send them, with keys and signatures of the test's own."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from starling_messages.links import Callback, Link
from starling_tracker.callbacks.targets import CallbackTarget, Provider, TargetKey
from tests.unit.tracker.rig import LINKS, Response, Site

DIGEST = "d" * 64
TOPIC = "arn:aws:sns:eu-central-1:123456789012:mails"
CERTIFICATE_URL = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
SECRET = "0123456789abcdef"
AUTH_TOKEN = "twilio-token"


def token(key: str, workspace: str = "acme", channel: str = "email", user_id: str = "ada") -> str:
    """Return the token of a message that was sent through that target."""
    return LINKS.callback_token(Callback(Link(workspace, user_id, "d-1", channel, key, "win-back", "marketing"), DIGEST))


def _certificate(key: RSAPrivateKey, days: int) -> x509.Certificate:
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")]), datetime.now(UTC)
    build = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    build = build.serial_number(1).not_valid_before(now - timedelta(days=30)).not_valid_after(now + timedelta(days=days))
    return build.sign(key, SHA256())


_KEY = generate_private_key(65537, 2048)
_OTHER_KEY = generate_private_key(65537, 2048)
CERTIFICATE, EXPIRED = _certificate(_KEY, 1), _certificate(_KEY, -1)
_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}


def sns(message: Any, *, forged: bool = False, version: str = "1", **changed: str) -> dict[str, str]:
    """Return a message of SNS, signed after the changes."""
    envelope = {
        "Type": "Notification",
        "MessageId": "sns-1",
        "TopicArn": TOPIC,
        "Message": message if isinstance(message, str) else json.dumps(message),
        "Timestamp": "2026-01-01T00:00:00.000Z",
        "SignatureVersion": version,
        "SigningCertURL": CERTIFICATE_URL,
        **changed,
    }
    signed = "".join(f"{name}\n{envelope[name]}\n" for name in _SIGNED[envelope["Type"]] if name in envelope).encode()
    key = _OTHER_KEY if forged else _KEY
    algorithm = SHA1() if version == "1" else SHA256()  # noqa: S303 - as SNS has it
    signature = key.sign(signed, PKCS1v15(), algorithm)
    return {**envelope, "Signature": base64.b64encode(signature).decode()}


def ses_event(kind: str, part: Mapping[str, Any], mark: str | None) -> dict[str, Any]:
    """Return an event of SES."""
    headers = [{"name": "From", "value": "shop@example.com"}]
    if mark is not None:
        headers.append({"name": "X-Starling-Delivery", "value": mark[:40] + " " + mark[40:]})
    return {"eventType": kind, "mail": {"messageId": "ses-1", "headers": headers}, kind.split(maxsplit=1)[0].lower(): part}


_EC_KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC_KEY = base64.b64encode(_EC_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


def sendgrid_headers(body: bytes, at: float | None = None) -> dict[str, str]:
    """Return the headers that sign a body at that time; by default now."""
    timestamp = str(int(time.time() if at is None else at))
    signature = base64.b64encode(_EC_KEY.sign(timestamp.encode() + body, ec.ECDSA(SHA256()))).decode()
    return {"x-twilio-email-event-webhook-signature": signature, "x-twilio-email-event-webhook-timestamp": timestamp}


def sendgrid_event(kind: str, mark: str | None, **more: Any) -> dict[str, Any]:
    """Return an event of SendGrid."""
    event = {"email": "ada@example.com", "timestamp": 1_767_225_600, "event": kind, "sg_event_id": f"sg-{kind}", **more}
    return event if mark is None else {**event, "starling": mark}


def twilio_signature(url: str, fields: Mapping[str, str], auth_token: str = AUTH_TOKEN) -> str:
    """Return the signature of a status callback."""
    text = url + "".join(name + fields[name] for name in sorted(fields))
    return base64.b64encode(hmac.new(auth_token.encode(), text.encode(), hashlib.sha1).digest()).decode()


def notification(mark: str | None, action: str = "failed", status: str = "5.1.1", diagnosis: str = "smtp; 550 5.1.1 no") -> bytes:
    """Return a delivery status notification."""
    header = "" if mark is None else f"X-Starling-Delivery: {mark[:60]}\r\n {mark[60:]}\r\n"
    return (
        "From: MAILER-DAEMON@mx.example.com\r\nSubject: Undelivered\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/report; report-type=delivery-status; boundary="b"\r\n\r\n'
        "--b\r\nContent-Type: text/plain\r\n\r\nIt did not work.\r\n"
        "--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example.com\r\n\r\n"
        f"Final-Recipient: rfc822; ada@example.com\r\nAction: {action}\r\nStatus: {status}\r\nDiagnostic-Code: {diagnosis}\r\n\r\n"
        f"--b\r\nContent-Type: text/rfc822-headers\r\n\r\n{header}Subject: Hello\r\n\r\n--b--\r\n"
    ).encode()


@dataclass
class Providers:
    """A tracker with a target of each provider in the workspace `acme`, named as the provider."""

    site: Site = field(default_factory=Site)

    def __post_init__(self) -> None:
        credentials = {
            Provider.SES: TOPIC, Provider.SENDGRID: PUBLIC_KEY, Provider.DSN: SECRET, Provider.TWILIO: AUTH_TOKEN,
        }  # fmt: skip
        for provider, credential in credentials.items():
            place = TargetKey("acme", provider.value)
            self.site.targets[place] = CallbackTarget(place, provider, credential)
        self.site.fetched.certificates[CERTIFICATE_URL] = CERTIFICATE

    def ses(self, envelope: Mapping[str, Any]) -> Response:
        return self.site.request("POST", "/p/acme/ses", json.dumps(envelope).encode())

    def sendgrid(self, *events: Any, at: float | None = None) -> Response:
        body = json.dumps(events).encode()
        return self.site.request("POST", "/p/acme/sendgrid", body, sendgrid_headers(body, at))

    def dsn(self, body: bytes, secret: str = SECRET) -> Response:
        return self.site.request("POST", "/p/acme/dsn", body, {"authorization": f"Bearer {secret}"})

    def twilio(
        self,
        mark: str | None,
        sign: Callable[[str, Mapping[str, str]], str] = twilio_signature,
        fields: Mapping[str, str] = MappingProxyType({}),
    ) -> Response:
        query = "" if mark is None else f"starling={mark}"
        sent = {"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+4915112345678", **fields}
        url = "https://t.example.com/p/acme/twilio" + (f"?{query}" if query else "")
        headers = {"x-twilio-signature": sign(url, sent)}
        return self.site.request("POST", "/p/acme/twilio", urlencode(sent).encode(), headers, query)
