"""Pure core: the examples of the operations on single users, of the feed and of outcomes."""

from typing import Final

from starling_api.http.openapi.examples.example import INSTANT, Document, Example, page

_CONSENT: Final[Document] = {"channel": "email", "purpose": "marketing", "granted": False}
_PROFILE: Final[Document] = {
    "user_id": "ada", "anonymous_ids": ["a-17"], "traits": {"plan": "pro"}, "group_id": None, "updated_at": INSTANT,
    "as_of": INSTANT,
}  # fmt: skip
_EVENT: Final[Document] = {
    "event_id": "5b0b4a4e-66f5-5c3a-9d38-6c9c7e1b7a10", "kind": "track", "name": "Order Completed", "time": INSTANT,
    "received_at": INSTANT, "message_id": "m-1", "properties": {"revenue": 30}, "context": {}, "correlation_id": "c-1",
}  # fmt: skip
_CHANGE: Final[Document] = {
    "event_id": "9a3d5f57-8f0c-5a55-8c40-1f0f3f0d7c11", "workspace": "default", "user_id": "ada", "anonymous_ids": ["a-17"],
    "segment_key": "repeat-buyers", "segment_name": "Repeat buyers", "segment_version": 1, "status": "ENTERED", "sequence": 1,
    "effective_at": INSTANT, "decided_at": INSTANT, "received_at": INSTANT,
    "cause": {"kind": "EVENT", "message_id": "m-1", "event_name": "Order Completed"},
    "correlation_id": "c-1", "traits": {"plan": "pro"}, "memberships": ["repeat-buyers"],
}  # fmt: skip

EXAMPLES: Final[dict[str, Example]] = {
    "get_user": Example(None, _PROFILE),
    "list_user_segments": Example(
        None, page({"segment": "repeat-buyers", "version": 1, "entered_at": INSTANT, "sequence": 1})
    ),
    "list_user_events": Example(None, page(_EVENT)),
    "explain_user": Example(
        None,
        {
            "member": True, "paused": False, "as_of": INSTANT,
            "tree": {
                "node": "/where", "kind": "event", "truth": True, "observed": 2, "next_change_at": "2026-05-30T09:30:00.000Z",
                "children": [],
            },
        },
    ),
    "export_user": Example(
        None,
        {
            "user_id": "ada", "as_of": INSTANT, "profile": _PROFILE, "lists": ["fair-2026"], "state": None, "events": [_EVENT],
            "segments": [
                {"segment": "repeat-buyers", "version": 1, "status": "ENTERED", "effective_at": INSTANT, "sequence": 1}
            ],
        },
    ),
    "look_up_memberships": Example(
        {"users": ["ada", "grace"], "segments": ["repeat-buyers"]},
        {"memberships": {"ada": ["repeat-buyers"], "grace": []}, "as_of": INSTANT},
    ),
    "read_feed": Example(None, page(_CHANGE, cursor="WyJmZWVkIiwxLDBd")),
    "list_outcomes": Example(
        None,
        page(
            {
                "message_id": "message-17", "user_id": "ada", "outcome": "REFUSED", "event_id": None, "event_topic": None,
                "code": "bad_timestamp", "message": "timestamp: 'yesterday' is no ISO 8601 time such as 2026-01-31T09:00:00Z",
                "received_at": INSTANT, "decided_at": INSTANT, "correlation_id": "9f2c1c1e-7f6e-4b7e-9f0e-0a4f3a1a5b11",
                "origin": {"topic": "ingest.track", "partition": 3, "offset": 1204},
            }
        ),
    ),
    "list_user_messages": Example(
        None,
        page(
            {
                "delivery_id": "0c4a1b4c-5a0e-5d6e-9b0a-4e5a8c1a7c11", "campaign": "win-back", "instance": "3", "version": 2,
                "variant": "a", "due_at": INSTANT, "decided_at": INSTANT, "status": "requested", "reason": None,
                "outcomes": [{"outcome": "SENT", "at": INSTANT, "reason": None, "value": None}],
            }
        ),
    ),
    "get_user_consent": Example(None, {"items": [{**_CONSENT, "source": "page", "at": INSTANT}], "as_of": INSTANT}),
    "change_user_consent": Example(_CONSENT, {**_CONSENT, "source": "api", "at": INSTANT}),
}  # fmt: skip
