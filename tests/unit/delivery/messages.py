"""Campaigns, targets and requests of mails, as the tests of the email channel need them."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_delivery.channel import Message
from starling_delivery.messages.definitions import Definitions, fold_definition
from tests.campaign_documents import campaign


def key_pair(bits: int = 1024) -> tuple[str, bytes]:
    """Return a private key in PEM and the record of its public key in DNS. The size is the least: a test generates it."""
    key = generate_private_key(65537, bits)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode(), b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)


def definition(kind: str, document: dict[str, Any], action: str = "DEFINED", version: int = 1) -> dict[str, Any]:
    """Return a DefinitionChanged record."""
    return {
        "recorded_at": wall_clock_micros(),
        "event_id": f"{kind}-{document['key']}-{version}-{action}",
        "workspace": "default",
        "kind": kind,
        "key": document["key"],
        "version": version,
        "action": action,
        "document": json.dumps(document),
        "actor": "a test",
        "correlation_id": "c",
        "awaits_backfill": False,
    }


def mail_campaign(**changed: Any) -> dict[str, Any]:
    """Return the document of an email campaign whose texts name the user."""
    content = {"subject": "Hello {{ traits.name }}", "html": "<p>Hello {{ traits.name }}</p>", "text": "Hello {{ traits.name }}"}
    return campaign(variants=[{"key": "a", "weight": 100, "content": content}], **changed)


def smtp_target(port: int = 2525, **more: Any) -> dict[str, Any]:
    """Return the document of a target."""
    return {
        "key": "main-smtp", "channel": "email", "host": "127.0.0.1", "port": port, "tls": "none", "from": "Shop <shop@example.com>",
        **more,
    }  # fmt: skip


def definitions(*records: dict[str, Any]) -> Definitions:
    """Return the fold of records; of an active campaign and its target without any."""
    known = Definitions()
    for record in records or (definition("target", smtp_target()), definition("campaign", mail_campaign(), "ACTIVATED")):
        fold_definition(known, record)
    return known


def mail_request(user: str = "ada", **more: Any) -> dict[str, Any]:
    """Return a DeliveryRequested record as the messenger writes it."""
    now_ms = wall_clock_ms()
    return {
        "received_at": wall_clock_micros(),
        "workspace": "default",
        "user_id": user,
        "delivery_id": f"delivery-of-{user}",
        "channel": "email",
        "target_key": "main-smtp",
        "address": f"{user}@customers.example.net",
        "payload": "",
        "attempt": 1,
        "first_attempt_at": now_ms,
        "not_before": now_ms,
        "last_error": None,
        "segment_key": None,
        "correlation_id": f"c-{user}",
        "batch_limit": None,
        "campaign": "win-back",
        "version": 1,
        "variant": "a",
        "locale": None,
        "purpose": "marketing",
        "sequence": 1,
        "device": None,
        "context": json.dumps({"traits": {"name": user.capitalize()}, "event": None}),
        "expires_at": now_ms + 3_600_000,
        **more,
    }


def message(**more: Any) -> Message:
    """Return a rendered message."""
    fields: dict[str, Any] = {
        "workspace": "default", "user_id": "ada", "delivery_id": "d1", "message_id": "d1", "target_key": "main-smtp",
        "address": "ada@example.net", "payload": "", "attempt": 1, "purpose": "marketing",
        "content": {"subject": "Hello", "html": "<p>Hi</p>", "text": "Hi"},
    }  # fmt: skip
    return Message(**(fields | more))
