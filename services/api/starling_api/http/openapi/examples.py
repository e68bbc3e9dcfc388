"""Pure core: one example of each operation, for `/openapi.json`. A test validates them against the schemas."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from starling_segments.parse.document import KEY_PATTERN

Document = dict[str, Any]


FIRST: Final = "default"
"""The name of an example beside others."""


class Example(NamedTuple):
    """The JSON body of a request and of its response. None: no body. `others`: name -> another example of the operation."""

    request: Any = None
    response: Any = None
    others: "Mapping[str, Example]" = MappingProxyType({})

    def requests(self) -> Document:
        """Return the bodies of requests by name."""
        return {name: one.request for name, one in {FIRST: self, **self.others}.items() if one.request is not None}

    def responses(self) -> Document:
        """Return the bodies of responses by name."""
        return {name: one.response for name, one in {FIRST: self, **self.others}.items() if one.response is not None}


_INSTANT: Final = "2026-03-01T09:30:00.000Z"
_REVISION: Final = 1772357400000000
_WHERE: Final[Document] = {"event": "Order Completed", "op": "gte", "value": 2, "within": "90d"}
_SERVER: Final[Document] = {"version": 1, "revision": _REVISION, "status": "active", "created_at": _INSTANT, "updated_at": _INSTANT}

_SEGMENT_BODY: Final[Document] = {"key": "repeat-buyers", "name": "Repeat buyers", "where": _WHERE}
_SEGMENT: Final[Document] = {**_SEGMENT_BODY, "description": "", "timezone": "UTC", **_SERVER}
_TRAIT_BODY: Final[Document] = {"key": "ltv", "event": "Order Completed", "measure": {"sum": "revenue"}, "within": "365d"}
_TRAIT: Final[Document] = {**_TRAIT_BODY, "name": "ltv", **_SERVER}
_SQL_TRAIT: Final[Document] = {
    "key": "margin-365", "name": "margin-365",
    "sql": "SELECT user_id, sum(CAST(get_json_object(properties, '$.margin') AS DOUBLE)) AS value FROM events "
    "WHERE event_time > :as_of - INTERVAL 365 DAYS GROUP BY user_id",
    "schedule": "15 * * * *", "timezone": "UTC", **_SERVER, "status": "waiting", "next_run_at": "2026-03-01T10:15:00.000Z",
    "last_run": {
        "as_of": None, "ended_at": None, "users": None, "published": None, "scanned_bytes": None, "message": None,
        "checked_at": None, "checks": None,
    },
}  # fmt: skip
_EVENT_TYPE_BODY: Final[Document] = {
    "key": "order", "event": "Order Completed", "properties": [
        {"name": "order_id", "type": "string"}, {"name": "revenue", "type": "number", "description": "In euros"},
        {"name": "coupons", "type": "string[]"},
    ],
}  # fmt: skip
_EVENT_TYPE: Final[Document] = {**_EVENT_TYPE_BODY, "description": "", **_SERVER}
_VIEW_BODY: Final[Document] = {
    "key": "events_by_name", "schedule": "15 * * * *",
    "sql": "SELECT name, count(*) AS events FROM events GROUP BY name",
    "checks": [{"unique": ["name"]}],
}  # fmt: skip
_VIEW: Final[Document] = {
    **_VIEW_BODY, "name": "events_by_name", "description": "", "timezone": "UTC", **_SERVER,
    "next_run_at": "2026-03-01T10:15:00.000Z",
    "last_run": {
        "as_of": _INSTANT, "ended_at": _INSTANT, "rows": 3, "scanned_bytes": 1200, "message": None, "checked_at": _INSTANT,
        "checks": [
            {
                "check": "unique name", "severity": "error", "passed": True, "observed": "0", "violations": 0, "message": None,
            },
        ],
    },
}  # fmt: skip
_WEBHOOK_BODY: Final[Document] = {"key": "shop", "url": "https://shop.example/hook", "segments": ["repeat-buyers"]}
_WEBHOOK: Final[Document] = {
    **_WEBHOOK_BODY, "events": ["entered", "exited"], "format": "standard", "batch": None, "rate": None, "headers": {},
    "previous_secret_expires_at": None,
    **_SERVER,
}  # fmt: skip
_CAMPAIGN_BODY: Final[Document] = {
    "key": "win-back", "name": "Win back", "trigger": {"enter": "lapsing-vips"}, "delay": "2h", "channel": "email",
    "target": "main-smtp", "holdout": {"percent": 10},
    "variants": [
        {"key": "a", "weight": 100, "content": {"subject": "We miss you", "text": "Hello {{ traits.name|default('you') }}"}},
    ],
}  # fmt: skip
_CAMPAIGN: Final[Document] = {**_CAMPAIGN_BODY, **_SERVER, "status": "draft"}
_BROADCAST_BODY: Final[Document] = {
    "key": "spring-sale", "name": "Spring sale", "trigger": {"broadcast": "lapsing-vips", "local": "2026-03-20T09:00"},
    "channel": "email", "target": "main-smtp", "rate": 500, "expires_after": "12h",
    "variants": [{"key": "a", "weight": 100, "content": {"subject": "20 % off", "text": "Until Sunday"}}],
}  # fmt: skip
_BROADCAST: Final[Document] = {**_BROADCAST_BODY, **_SERVER, "status": "draft"}
_WRITTEN: Final[Document] = {**_BROADCAST, "status": "active", "broadcast": {"state": "writing", "written": 41_200}}
_TARGET_BODY: Final[Document] = {
    "key": "main-smtp", "channel": "email", "host": "smtp.example.com", "port": 587, "tls": "starttls",
    "from": "Shop <shop@example.com>", "username": "shop", "password": "secret",
}  # fmt: skip
_TARGET: Final[Document] = {**_TARGET_BODY, "name": "main-smtp", "password": "***", **_SERVER}
_FEED: Final[Document] = {
    "key": "sales-channel", "name": "sales-channel", "channel": "slack", "url": "***", "segments": ["repeat-buyers"],
    "title": "Repeat buyers", "interval_seconds": 300, **_SERVER,
}  # fmt: skip
_POLICY_BODY: Final[Document] = {"quiet_hours": {"from": "21:00", "to": "08:00"}, "caps": [{"limit": 1, "per": "1d"}]}
_POLICY: Final[Document] = {"key": "policy", **_POLICY_BODY, **_SERVER}
_IMPORT_BODY: Final[Document] = {
    "key": "orders-2025", "uri": "s3://shop-exports/orders", "format": "csv", "kind": "events", "user_column": "customer",
    "event": "Order Completed", "time_column": "at", "columns": {"total": "properties.revenue"},
}  # fmt: skip
_IMPORT: Final[Document] = {**_IMPORT_BODY, "state": "waiting", "message": None, "created_at": _INSTANT, "changed_at": None}
_IMPORT_JDBC: Final[Document] = {
    "key": "crm-customers", "uri": "jdbc:postgresql://db/crm", "format": "jdbc", "kind": "traits",
    "user_column": "id", "id_column": "id", "jdbc": {"user": "reader", "password": "***", "table": "customers"},
    "schedule": "15 * * * *", "timezone": "UTC", "next_run_at": _INSTANT,
    "state": "waiting", "message": None, "created_at": _INSTANT, "changed_at": None,
}  # fmt: skip
_IMPORT_PROGRESS: Final[Document] = {
    **_IMPORT, "state": "running", "changed_at": _INSTANT, "rows_done": 1000, "accepted": 999, "rejected": 1,
    "files": [
        {"file": "2025.csv", "rows_done": 1000, "accepted": 999, "rejected": 1, "complete": False, "message": None},
    ],
}  # fmt: skip
_CONSENT: Final[Document] = {"channel": "email", "purpose": "marketing", "granted": False}
_LIST: Final[Document] = {"key": "fair-2026", "name": "Spring fair 2026", "description": "", **_SERVER}
_USERS: Final[Document] = {"users": ["ada", "grace"]}
_UPLOAD: Final[Document] = {"key": "fair-2026", "users": 2}
_CONDITION: Final[Document] = {"where": _WHERE}
_ESTIMATE: Final[Document] = {"estimate": 2, "low": 2, "high": 2, "sample": ["ada", "grace"]}
_NO_USERS: Final[Document] = {"estimate": 0, "low": 0, "high": 0, "sample": []}
_EVALUATION: Final[Document] = {"exact": True, "users": 120, "asked": 120, "limits": [], "as_of": _INSTANT, "took_ms": 12}
_PROFILE: Final[Document] = {
    "user_id": "ada", "anonymous_ids": ["a-17"], "traits": {"plan": "pro"}, "group_id": None, "updated_at": _INSTANT,
    "as_of": _INSTANT,
}  # fmt: skip
_EVENT: Final[Document] = {
    "event_id": "5b0b4a4e-66f5-5c3a-9d38-6c9c7e1b7a10", "kind": "track", "name": "Order Completed", "time": _INSTANT,
    "received_at": _INSTANT, "message_id": "m-1", "properties": {"revenue": 30}, "context": {}, "correlation_id": "c-1",
}  # fmt: skip
_CHANGE: Final[Document] = {
    "event_id": "9a3d5f57-8f0c-5a55-8c40-1f0f3f0d7c11", "workspace": "default", "user_id": "ada", "anonymous_ids": ["a-17"],
    "segment_key": "repeat-buyers", "segment_name": "Repeat buyers", "segment_version": 1, "status": "ENTERED", "sequence": 1,
    "effective_at": _INSTANT, "decided_at": _INSTANT, "received_at": _INSTANT,
    "cause": {"kind": "EVENT", "message_id": "m-1", "event_name": "Order Completed"},
    "correlation_id": "c-1", "traits": {"plan": "pro"}, "memberships": ["repeat-buyers"],
}  # fmt: skip
_RUN: Final[Document] = {
    "run": "2026-03-01-1", "segments": {"repeat-buyers": 1}, "asked": "running", "state": "running", "percent": 40.0,
    "records_done": 400_000, "records_total": 1_000_000, "records_refused": 0, "started_at": _INSTANT, "estimated_end": _INSTANT,
    "message": None,
}  # fmt: skip
_DECISION: Final[Document] = {
    "verdict": "defer",  # vocabulary: verdict: a field of the contract
    "until": "2026-03-02T08:00:00.000Z", "reason": "capped", "reasons": ["capped"], "variant": None,
    "next_change_at": "2026-03-02T08:00:00.000Z", "at": _INSTANT, "as_of": _INSTANT,
    "checks": [
        {
            "check": "caps", "outcome": "failed", "reason": "capped", "next_change_at": "2026-03-02T08:00:00.000Z",
            "observed": {"caps": [{"cap": 0, "limit": 1, "count": 1, "slot_at": "2026-03-02T08:00:00.000Z"}]},
        },
    ],
}  # fmt: skip


_CREDENTIAL: Final[Document] = {
    "id": "tok_5f2c9a7be01d4433", "name": "release pipeline", "prefix": "stt_Ab3d", "last4": "x9Qz", "created_at": _INSTANT,
    "created_by": "admin-1f2e3d4c", "expires_at": None, "previous_secret_expires_at": None, "revoked": False, "revoked_at": None,
}  # fmt: skip
_TOKEN: Final[Document] = {**_CREDENTIAL, "role": "editor"}
_TOKEN_SECRET: Final = "stt_Ab3d…x9Qz"  # noqa: S105 - shortened

_WRITE_KEY: Final[Document] = {
    **_CREDENTIAL, "id": "key_0c2f9a7be01d4433", "name": "shop.example", "prefix": "stw_Ab3d", "scopes": ["page", "track", "batch"],
}  # fmt: skip
_WRITE_KEY_SECRET: Final = "stw_Ab3d…x9Qz"  # noqa: S105 - shortened


def _page(*items: Document, **more: Any) -> Document:
    return {"items": list(items), "next_cursor": None, "as_of": _INSTANT, **more}


def _definitions(name: str, plural: str, bodies: tuple[Document, Document], shown: Document) -> dict[str, Example]:
    new, update = bodies
    return {
        f"create_{name}": Example(new, shown),
        f"list_{plural}": Example(None, _page({**shown, "size": 2} if name == "segment" else shown)),
        f"get_{name}": Example(None, {**shown, "used_by": [], "as_of": _INSTANT}),
        f"update_{name}": Example(update, {**shown, "version": 2}),
    }


def _without_key(body: Document) -> Document:
    return {field: value for field, value in body.items() if field != "key"}


EXAMPLES: Final[dict[str, Example]] = {
    **_definitions("segment", "segments", (_SEGMENT_BODY, {**_SEGMENT_BODY, "name": "Loyal buyers"}), _SEGMENT),
    **_definitions("computed_trait", "computed_traits", (_TRAIT_BODY, _without_key(_TRAIT_BODY)), _TRAIT),
    "run_computed_trait": Example(None, _SQL_TRAIT),
    **_definitions("event_type", "event_types", (_EVENT_TYPE_BODY, _without_key(_EVENT_TYPE_BODY)), _EVENT_TYPE),
    **_definitions("webhook", "webhooks", (_WEBHOOK_BODY, _without_key(_WEBHOOK_BODY)), _WEBHOOK),
    **_definitions("campaign", "campaigns", (_CAMPAIGN_BODY, _without_key(_CAMPAIGN_BODY)), _CAMPAIGN),
    "create_campaign": Example(_CAMPAIGN_BODY, _CAMPAIGN, {"broadcast": Example(_BROADCAST_BODY, _BROADCAST)}),
    "list_campaigns": Example(None, _page(_WRITTEN, _CAMPAIGN)),
    "get_campaign": Example(
        None,
        {**_CAMPAIGN, "used_by": [], "as_of": _INSTANT},
        {"broadcast": Example(None, {**_WRITTEN, "used_by": [], "as_of": _INSTANT})},
    ),
    **_definitions("target", "targets", (_TARGET_BODY, {**_without_key(_TARGET_BODY), "password": "***"}), _TARGET),
    "activate_campaign": Example(
        None, {**_CAMPAIGN, "status": "active"}, {"broadcast": Example(None, {**_BROADCAST, "status": "active"})}
    ),
    "pause_campaign": Example(None, {**_CAMPAIGN, "status": "paused"}),
    "resume_campaign": Example(None, {**_CAMPAIGN, "status": "active"}),
    "list_campaign_versions": Example(
        None,
        _page({
            "version": 1, "revision": _REVISION, "action": "DEFINED", "actor": "marketer-1f2e3d4c", "recorded_at": _INSTANT,
            "document": _CAMPAIGN_BODY,
        }),
    ),
    "preview_campaign": Example(
        {"user": "ada"},
        {
            "subject": "We miss you", "text": "Hello Ada", "missing": [], "variant": "a", "held_out": False, "locale": None,
            "sms": None, "reason": None, "until": None, "as_of": _INSTANT,
            "verdict": "send",  # vocabulary: verdict: a field of the contract
        },
    ),
    "get_campaign_report": Example(
        None,
        {
            "campaign": "win-back",
            "funnel": [
                {
                    "version": 1, "variant": "a", "day": "2026-03-01", "requested": 900, "sent": 890, "delivered": 0, "opened": 310,
                    "clicked": 90, "bounced": 4, "complained": 0, "unsubscribed": 3, "failed": 2, "held_out": 100, "converted": 63,
                    "held_out_converted": 5, "value": 2140.5, "suppressed": {"no_consent": 41},
                },
            ],
            "lift": [
                {
                    "variant": variant, "difference": 0.02, "low": -0.0446, "high": 0.0553, "relative": 0.4, "value": 1.1,
                    "inconclusive": False, "written_to": {"people": 900, "converted": 63},
                    "held_out": {"people": 100, "converted": 5},
                }
                for variant in (None, "a")
            ],
        },
    ),
    "dry_run_campaign": Example(
        None,
        {
            "segment": "lapsing-vips", "size": 2, "counted": 2, "next_cursor": None, "as_of": _INSTANT,
            "counts": [
                {
                    "verdict": "drop",  # vocabulary: verdict: a field of the contract
                    "reason": "no_consent", "variant": "a", "count": 2,
                },
            ],
        },
    ),
    "test_campaign": Example(
        {"user": "ada", "to": ["marketing@shop.example"]},
        {
            "campaign": "win-back", "variant": "a",
            "messages": [{"to": "marketing@shop.example", "delivery_id": "8f6de7a0-3c59-5d0a-9f39-d0a4f0c3b111"}],
        },
    ),
    "get_policy": Example(None, {**_POLICY, "as_of": _INSTANT}),
    "replace_policy": Example(_POLICY_BODY, _POLICY),
    "rotate_webhook_secret": Example(
        None,
        {**_WEBHOOK, "secret": "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY", "previous_secret_expires_at": _INSTANT},
    ),
    "enable_webhook": Example(None, _WEBHOOK),
    "rotate_secrets": Example(
        None,
        {
            "key_id": "2027", "rewritten": [{"kind": "webhook", "key": "shop"}], "complete": True,
            "unreadable": [{
                "kind": "target", "key": "mail",
                "reason": "password of target/mail in the workspace acme: it is encrypted with the key '2025', and this process "
                "has only 2027, 2026: add that key to STARLING_SECRETS__KEYS or STARLING_SECRETS__KEYS_FILE, or store the secret "
                "again",
            }],
        },
    ),
    "disable_target": Example(
        None, {**_FEED, "status": "disabled", "disabled": True, "disabled_because": "disabled by admin-1f2e3d4c"}
    ),
    "enable_target": Example(None, _FEED),
    "test_target": Example(
        None,
        {
            "message_id": "test-6f1c3a52-7c4e-4a39-9c0e-0b8f7a0f5a12", "delivered": False, "status": 404, "took_ms": 84,
            "answer": "no_service", "reason": "status",
            "message": "the endpoint answered 404: the same answer to a digest would disable the target",
        },
    ),
    "test_webhook": Example(
        None,
        {
            "message_id": "test-6f1c3a52-7c4e-4a39-9c0e-0b8f7a0f5a11", "delivered": False, "status": None, "took_ms": 3,
            "answer": None, "reason": "address_refused", "message": "the address is in a private network",
        },
    ),
    "apply_segments": Example({"segments": [_SEGMENT_BODY]}, {"items": [_SEGMENT]}),
    "pause_segment": Example(None, {**_SEGMENT, "status": "paused"}),
    "resume_segment": Example(None, {**_SEGMENT, "status": "backfilling"}),
    "list_segment_versions": Example(
        None,
        _page({
            "version": 1, "revision": _REVISION, "action": "DEFINED", "actor": "marketer-1f2e3d4c", "recorded_at": _INSTANT,
            "document": _SEGMENT_BODY,
        }),
    ),
    "list_segment_members": Example(None, _page({"user_id": "ada", "entered_at": _INSTANT, "sequence": 1})),
    "get_segment_size": Example(None, {"key": "repeat-buyers", "size": 2, "entered": 3, "exited": 1, "as_of": _INSTANT}),
    "get_segment_history": Example(None, _page({"day": "2026-03-01", "entered": 3, "exited": 1, "size": 2})),
    "preview_segment": Example(_CONDITION, {**_ESTIMATE, **_EVALUATION}),
    "diff_segment": Example(
        _CONDITION, {"key": "repeat-buyers", "enter": _ESTIMATE, "leave": _NO_USERS, "stay": _ESTIMATE, **_EVALUATION}
    ),
    "list_lists": Example(None, _page(_LIST)),
    "get_list": Example(None, {**_LIST, "used_by": [], "as_of": _INSTANT}),
    "put_list": Example({"name": "Spring fair 2026"}, _LIST),
    "list_list_members": Example(None, _page({"user_id": "ada"})),
    "replace_list_members": Example(_USERS, _UPLOAD),
    "add_list_members": Example(_USERS, _UPLOAD),
    "remove_list_members": Example(_USERS, _UPLOAD),
    "get_user": Example(None, _PROFILE),
    "list_user_segments": Example(
        None, _page({"segment": "repeat-buyers", "version": 1, "entered_at": _INSTANT, "sequence": 1})
    ),
    "list_user_events": Example(None, _page(_EVENT)),
    "explain_user": Example(
        None,
        {
            "member": True, "paused": False, "as_of": _INSTANT,
            "tree": {
                "node": "/where", "kind": "event", "truth": True, "observed": 2, "next_change_at": "2026-05-30T09:30:00.000Z",
                "children": [],
            },
        },
    ),
    "export_user": Example(
        None,
        {
            "user_id": "ada", "as_of": _INSTANT, "profile": _PROFILE, "lists": ["fair-2026"], "state": None, "events": [_EVENT],
            "segments": [
                {"segment": "repeat-buyers", "version": 1, "status": "ENTERED", "effective_at": _INSTANT, "sequence": 1}
            ],
        },
    ),
    "look_up_memberships": Example(
        {"users": ["ada", "grace"], "segments": ["repeat-buyers"]},
        {"memberships": {"ada": ["repeat-buyers"], "grace": []}, "as_of": _INSTANT},
    ),
    "read_feed": Example(None, _page(_CHANGE, cursor="WyJmZWVkIiwxLDBd")),
    "list_outcomes": Example(
        None,
        _page(
            {
                "message_id": "message-17", "user_id": "ada", "outcome": "REFUSED", "event_id": None, "event_topic": None,
                "code": "bad_timestamp", "message": "timestamp: 'yesterday' is no ISO 8601 time such as 2026-01-31T09:00:00Z",
                "received_at": _INSTANT, "decided_at": _INSTANT, "correlation_id": "9f2c1c1e-7f6e-4b7e-9f0e-0a4f3a1a5b11",
                "origin": {"topic": "ingest.track", "partition": 3, "offset": 1204},
            }
        ),
    ),
    **_definitions("view", "views", (_VIEW_BODY, _without_key(_VIEW_BODY)), _VIEW),
    "run_view": Example(None, _VIEW),
    "get_view": Example(
        None,
        {**_VIEW, "used_by": None, "as_of": _INSTANT},
        {
            "materialised": Example(
                None,
                _page(
                    {
                        "window_start": "2026-03-01T00:00:00.000Z", "window_end": "2026-03-02T00:00:00.000Z", "region": "Berlin",
                        "product_id": "p-1", "quantity": 3,
                    },
                    view="sales_by_product_region", version=1,
                ),
            )
        },
    ),
    "get_audience_report": Example(
        None,
        _page(
            {"segment": "repeat-buyers", "day": "2026-03-01", "size": 2, "entries": 3, "exits": 1},
            report="audience", show="days", timezone="UTC", records_missing=0, records_unreadable=0,
        ),
    ),
    "check_policy": Example(
        {
            "user": "ada", "channel": "email", "at": _INSTANT, "policy": {"caps": [{"limit": 1, "per": "1d"}]},
            "traits": {"email": "ada@example.com", "consent": {"email": True}},
            "messages": [{"at": "2026-03-01T08:00:00.000Z", "channel": "email", "campaign": "welcome"}],
        },
        _DECISION,
    ),
    "list_user_messages": Example(
        None,
        _page(
            {
                "delivery_id": "0c4a1b4c-5a0e-5d6e-9b0a-4e5a8c1a7c11", "campaign": "win-back", "instance": "3", "version": 2,
                "variant": "a", "due_at": _INSTANT, "decided_at": _INSTANT, "status": "requested", "reason": None,
                "outcomes": [{"outcome": "SENT", "at": _INSTANT, "reason": None, "value": None}],
            }
        ),
    ),
    "get_user_consent": Example(None, {"items": [{**_CONSENT, "source": "page", "at": _INSTANT}], "as_of": _INSTANT}),
    "change_user_consent": Example(_CONSENT, {**_CONSENT, "source": "api", "at": _INSTANT}),
    "suppress_addresses": Example(
        {"addresses": ["ada@example.com"]}, {"channel": "email", "suppressed": True, "addresses": 1}
    ),
    "create_token": Example({"name": "release pipeline", "role": "editor"}, {**_TOKEN, "secret": _TOKEN_SECRET}),
    "list_tokens": Example(None, _page(_TOKEN)),
    "get_token": Example(None, _TOKEN),
    "rotate_token": Example(
        {"overlap": "24h"}, {**_TOKEN, "previous_secret_expires_at": "2026-03-02T09:30:00.000Z", "secret": _TOKEN_SECRET}
    ),
    "create_write_key": Example(
        {"name": "shop.example", "scopes": ["page", "track", "batch"]}, {**_WRITE_KEY, "secret": _WRITE_KEY_SECRET}
    ),
    "list_write_keys": Example(None, _page(_WRITE_KEY)),
    "get_write_key": Example(None, _WRITE_KEY),
    "rotate_write_key": Example(
        {"overlap": "24h"}, {**_WRITE_KEY, "previous_secret_expires_at": "2026-03-02T09:30:00.000Z", "secret": _WRITE_KEY_SECRET}
    ),
    "list_audit": Example(
        None,
        _page({
            "recorded_at": _INSTANT, "workspace": "default", "actor": "tok_5f2c9a7be01d4433", "actor_name": "release pipeline",
            "role": "editor", "method": "PUT", "path": "/v1/segments/repeat-buyers", "resource": "segments", "key": "repeat-buyers",
            "revision_before": _REVISION, "revision_after": _REVISION + 60_000_000, "correlation_id": "c-1",
        }),
    ),
    "create_import": Example(_IMPORT_BODY, {**_IMPORT, "rows_done": 0, "accepted": 0, "rejected": 0, "files": []}),
    "repeat_import": Example(
        {}, {**_IMPORT_JDBC, "rows_done": 0, "accepted": 0, "rejected": 0, "files": [], "changed_at": _INSTANT}
    ),
    "schedule_import": Example(
        {"schedule": "15 * * * *", "timezone": "UTC"},
        {**_IMPORT_JDBC, "rows_done": 0, "accepted": 0, "rejected": 0, "files": []},
    ),
    "list_imports": Example(None, _page(_IMPORT)),
    "get_import": Example(None, _IMPORT_PROGRESS),
    "cancel_import": Example(None, {**_IMPORT_PROGRESS, "state": "cancelled"}),
    "list_import_rejects": Example(
        None,
        _page(
            {
                "file": "2025.csv", "row": 17, "column": "at", "code": "bad_value", "reason": "'yesterday' is no time",
                "cure": "write it in ISO 8601, such as 2024-02-29T12:00:00Z",
            },
        ),
    ),
    "list_backfills": Example(None, {"items": [_RUN]}),
    "control_backfill": Example(None, {**_RUN, "asked": "paused"}),
}  # fmt: skip
"""Operation id -> example. Operations without a response body, or that are not available yet, have none."""

_CURSOR: Final[Document] = {"pattern": "^[A-Za-z0-9_-]*$", "maxLength": 40_000}
PARAMETER_SHAPES: Final[dict[str, Document]] = {
    "key": {"pattern": KEY_PATTERN},
    "user_id": {"minLength": 1, "maxLength": 512},
    "name": {"pattern": "^[a-z][a-z0-9_]{0,63}$"},
    "id": {"pattern": "^[a-z]{3}_[0-9a-f]{16}$"},
    "run": {"pattern": "^[A-Za-z0-9_.:-]{1,100}$"},
    "segment": {"maxLength": 64},
    "tag": {"maxLength": 64},
    "from": {"maxLength": 64},
    "to": {"maxLength": 64},
    "cursor": _CURSOR,
    "after": _CURSOR,
    "Last-Event-ID": _CURSOR,
    "Idempotency-Key": {"minLength": 1, "maxLength": 255},
    "If-Match": {"pattern": r'^(\*|(W/)?"[0-9]{1,18}")$'},
}
"""Schemas of parameters. A value outside its schema has an error response: an unknown key a 404, a bad cursor a 400."""

PARAMETER_EXAMPLES: Final[dict[str, Document]] = {
    "key": {"example": "repeat-buyers"},
    "user_id": {"example": "ada"},
    "name": {"example": "sales_by_product_region"},
    "id": {"example": "tok_5f2c9a7be01d4433"},
    "run": {"example": "2026-03-01-1"},
    "If-Match": {"example": f'"{_REVISION}"'},
}
