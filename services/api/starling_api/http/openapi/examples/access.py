"""Pure core: the examples of the operations on tokens, write keys and secrets, and of the audit log."""

from typing import Final

from starling_api.http.openapi.examples.example import INSTANT, REVISION, Document, Example, page

_CREDENTIAL: Final[Document] = {
    "id": "tok_5f2c9a7be01d4433", "name": "release pipeline", "prefix": "stt_Ab3d", "last4": "x9Qz", "created_at": INSTANT,
    "created_by": "admin-1f2e3d4c", "expires_at": None, "previous_secret_expires_at": None, "revoked": False, "revoked_at": None,
}  # fmt: skip
_TOKEN: Final[Document] = {**_CREDENTIAL, "role": "editor"}
_TOKEN_SECRET: Final = "stt_Ab3d…x9Qz"  # noqa: S105 - shortened
_WRITE_KEY: Final[Document] = {
    **_CREDENTIAL, "id": "key_0c2f9a7be01d4433", "name": "shop.example", "prefix": "stw_Ab3d", "scopes": ["page", "track", "batch"],
}  # fmt: skip
_WRITE_KEY_SECRET: Final = "stw_Ab3d…x9Qz"  # noqa: S105 - shortened

EXAMPLES: Final[dict[str, Example]] = {
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
    "create_token": Example({"name": "release pipeline", "role": "editor"}, {**_TOKEN, "secret": _TOKEN_SECRET}),
    "list_tokens": Example(None, page(_TOKEN)),
    "get_token": Example(None, _TOKEN),
    "rotate_token": Example(
        {"overlap": "24h"}, {**_TOKEN, "previous_secret_expires_at": "2026-03-02T09:30:00.000Z", "secret": _TOKEN_SECRET}
    ),
    "create_write_key": Example(
        {"name": "shop.example", "scopes": ["page", "track", "batch"]}, {**_WRITE_KEY, "secret": _WRITE_KEY_SECRET}
    ),
    "list_write_keys": Example(None, page(_WRITE_KEY)),
    "get_write_key": Example(None, _WRITE_KEY),
    "rotate_write_key": Example(
        {"overlap": "24h"}, {**_WRITE_KEY, "previous_secret_expires_at": "2026-03-02T09:30:00.000Z", "secret": _WRITE_KEY_SECRET}
    ),
    "list_audit": Example(
        None,
        page({
            "recorded_at": INSTANT, "workspace": "default", "actor": "tok_5f2c9a7be01d4433", "actor_name": "release pipeline",
            "role": "editor", "method": "PUT", "path": "/v1/segments/repeat-buyers", "resource": "segments", "key": "repeat-buyers",
            "revision_before": REVISION, "revision_after": REVISION + 60_000_000, "correlation_id": "c-1",
        }),
    ),
}  # fmt: skip
