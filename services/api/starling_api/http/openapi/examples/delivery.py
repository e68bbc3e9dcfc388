"""Pure core: the examples of the operations on webhooks, campaigns, targets and the policy."""

from typing import Final

from starling_api.http.openapi.examples.example import (
    INSTANT,
    REVISION,
    SERVER,
    Document,
    Example,
    definition_examples,
    page,
    without_key,
)

_WEBHOOK_BODY: Final[Document] = {"key": "shop", "url": "https://shop.example/hook", "segments": ["repeat-buyers"]}
_WEBHOOK: Final[Document] = {
    **_WEBHOOK_BODY, "events": ["entered", "exited"], "format": "standard", "batch": None, "rate": None, "headers": {},
    "previous_secret_expires_at": None,
    **SERVER,
}  # fmt: skip
_CAMPAIGN_BODY: Final[Document] = {
    "key": "win-back", "name": "Win back", "trigger": {"enter": "lapsing-vips"}, "delay": "2h", "channel": "email",
    "target": "main-smtp", "holdout": {"percent": 10},
    "variants": [
        {"key": "a", "weight": 100, "content": {"subject": "We miss you", "text": "Hello {{ traits.name|default('you') }}"}},
    ],
}  # fmt: skip
_CAMPAIGN: Final[Document] = {**_CAMPAIGN_BODY, **SERVER, "status": "draft"}
_BROADCAST_BODY: Final[Document] = {
    "key": "spring-sale", "name": "Spring sale", "trigger": {"broadcast": "lapsing-vips", "local": "2026-03-20T09:00"},
    "channel": "email", "target": "main-smtp", "rate": 500, "expires_after": "12h",
    "variants": [{"key": "a", "weight": 100, "content": {"subject": "20 % off", "text": "Until Sunday"}}],
}  # fmt: skip
_BROADCAST: Final[Document] = {**_BROADCAST_BODY, **SERVER, "status": "draft"}
_WRITTEN: Final[Document] = {**_BROADCAST, "status": "active", "broadcast": {"state": "writing", "written": 41_200}}
_TARGET_BODY: Final[Document] = {
    "key": "main-smtp", "channel": "email", "host": "smtp.example.com", "port": 587, "tls": "starttls",
    "from": "Shop <shop@example.com>", "username": "shop", "password": "secret",
}  # fmt: skip
_TARGET: Final[Document] = {**_TARGET_BODY, "name": "main-smtp", "password": "***", **SERVER}
_FEED: Final[Document] = {
    "key": "sales-channel", "name": "sales-channel", "channel": "slack", "url": "***", "segments": ["repeat-buyers"],
    "title": "Repeat buyers", "interval_seconds": 300, **SERVER,
}  # fmt: skip
_POLICY_BODY: Final[Document] = {"quiet_hours": {"from": "21:00", "to": "08:00"}, "caps": [{"limit": 1, "per": "1d"}]}
_POLICY: Final[Document] = {"key": "policy", **_POLICY_BODY, **SERVER}
_DECISION: Final[Document] = {
    "verdict": "defer",  # vocabulary: verdict: a field of the contract
    "until": "2026-03-02T08:00:00.000Z", "reason": "capped", "reasons": ["capped"], "variant": None,
    "next_change_at": "2026-03-02T08:00:00.000Z", "at": INSTANT, "as_of": INSTANT,
    "checks": [
        {
            "check": "caps", "outcome": "failed", "reason": "capped", "next_change_at": "2026-03-02T08:00:00.000Z",
            "observed": {"caps": [{"cap": 0, "limit": 1, "count": 1, "slot_at": "2026-03-02T08:00:00.000Z"}]},
        },
    ],
}  # fmt: skip

EXAMPLES: Final[dict[str, Example]] = {
    **definition_examples("webhook", "webhooks", (_WEBHOOK_BODY, without_key(_WEBHOOK_BODY)), _WEBHOOK),
    **definition_examples("campaign", "campaigns", (_CAMPAIGN_BODY, without_key(_CAMPAIGN_BODY)), _CAMPAIGN),
    "create_campaign": Example(_CAMPAIGN_BODY, _CAMPAIGN, {"broadcast": Example(_BROADCAST_BODY, _BROADCAST)}),
    "list_campaigns": Example(None, page(_WRITTEN, _CAMPAIGN)),
    "get_campaign": Example(
        None,
        {**_CAMPAIGN, "used_by": [], "as_of": INSTANT},
        {"broadcast": Example(None, {**_WRITTEN, "used_by": [], "as_of": INSTANT})},
    ),
    **definition_examples("target", "targets", (_TARGET_BODY, {**without_key(_TARGET_BODY), "password": "***"}), _TARGET),
    "activate_campaign": Example(
        None, {**_CAMPAIGN, "status": "active"}, {"broadcast": Example(None, {**_BROADCAST, "status": "active"})}
    ),
    "pause_campaign": Example(None, {**_CAMPAIGN, "status": "paused"}),
    "resume_campaign": Example(None, {**_CAMPAIGN, "status": "active"}),
    "list_campaign_versions": Example(
        None,
        page({
            "version": 1, "revision": REVISION, "action": "DEFINED", "actor": "marketer-1f2e3d4c", "recorded_at": INSTANT,
            "document": _CAMPAIGN_BODY,
        }),
    ),
    "preview_campaign": Example(
        {"user": "ada"},
        {
            "subject": "We miss you", "text": "Hello Ada", "missing": [], "variant": "a", "held_out": False, "locale": None,
            "sms": None, "reason": None, "until": None, "as_of": INSTANT,
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
            "segment": "lapsing-vips", "size": 2, "counted": 2, "next_cursor": None, "as_of": INSTANT,
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
    "get_policy": Example(None, {**_POLICY, "as_of": INSTANT}),
    "replace_policy": Example(_POLICY_BODY, _POLICY),
    "rotate_webhook_secret": Example(
        None,
        {**_WEBHOOK, "secret": "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY", "previous_secret_expires_at": INSTANT},
    ),
    "enable_webhook": Example(None, _WEBHOOK),
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
    "check_policy": Example(
        {
            "user": "ada", "channel": "email", "at": INSTANT, "policy": {"caps": [{"limit": 1, "per": "1d"}]},
            "traits": {"email": "ada@example.com", "consent": {"email": True}},
            "messages": [{"at": "2026-03-01T08:00:00.000Z", "channel": "email", "campaign": "welcome"}],
        },
        _DECISION,
    ),
    "suppress_addresses": Example(
        {"addresses": ["ada@example.com"]}, {"channel": "email", "suppressed": True, "addresses": 1}
    ),
}  # fmt: skip
