"""Pure core: the example change of a test call. It has the form of the webhook's messages and is marked as a test."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starling_api.definitions.webhook_fields import PREVIOUS, PREVIOUS_UNTIL, STANDARD
from starling_common.time.instants import format_instant

USER: Final = "starling-webhook-test"
EVENT: Final = "Webhook Test"
TYPE: Final = "webhook.test"


class Request(NamedTuple):
    """One request: its address, the headers of the webhook, the secrets that sign it, the id of the message and its body.

    Without a secret it is not signed.
    """

    url: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]
    message_id: str
    body: str


def example_request(workspace: str, document: Mapping[str, Any], number: str, now_ms: int) -> Request:
    """Return the request for a webhook's document. `number`: a unique id of the test."""
    message_id, at = f"test-{number}", format_instant(now_ms)
    segment = (document.get("segments") or ["example"])[0]
    format_ = document.get("format", STANDARD)
    if format_ == STANDARD:
        message = {"type": TYPE, "timestamp": at, "data": _change(workspace, segment, message_id, at)}
        batch: dict[str, Any] = {"type": "segment.changes", "timestamp": at, "data": [message]}
    else:
        message = {"messageId": message_id, "userId": USER, "timestamp": at, "context": {"test": True}, **_call(format_, segment)}
        batch = {"batch": [message]}
    body = json.dumps(batch if document.get("batch") else message, separators=(",", ":"))
    return Request(document["url"], document.get("headers") or {}, _secrets(document, now_ms), message_id, body)


def _secrets(document: Mapping[str, Any], now_ms: int) -> tuple[str, ...]:
    if PREVIOUS not in document or now_ms >= document[PREVIOUS_UNTIL]:
        return (document["secret"],)
    return document["secret"], document[PREVIOUS]


def _call(format_: str, segment: str) -> dict[str, Any]:
    if format_ == "segment-track":
        return {"type": "track", "event": EVENT, "properties": {"audience_key": segment, "test": True}}
    return {"type": "identify", "traits": {"starling_webhook_test": True}}


def _change(workspace: str, segment: str, message_id: str, at: str) -> dict[str, Any]:
    return {
        "event_id": message_id,
        "workspace": workspace,
        "user_id": USER,
        "anonymous_ids": [],
        "segment_key": segment,
        "segment_name": "Webhook test",
        "segment_version": 1,
        "status": "ENTERED",
        "sequence": 1,
        "effective_at": at,
        "decided_at": at,
        "received_at": at,
        "cause": {"kind": "TEST", "message_id": message_id, "event_name": EVENT},
        "correlation_id": message_id,
        "traits": {"test": True},
        "memberships": [segment],
    }
