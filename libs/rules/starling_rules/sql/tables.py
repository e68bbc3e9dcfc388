"""Pure core: the tables of statements in SQL and their columns, each for one workspace."""

from collections.abc import Mapping
from typing import Final

EVENTS: Final = "events"
PROFILES: Final = "profiles"
MEMBERSHIP_CHANGES: Final = "membership_changes"
ACCOUNTS: Final = "accounts"
PRODUCTS: Final = "products"

TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    EVENTS: (
        "user_id", "name", "event_time", "received_at", "message_id", "event_id", "kind", "anonymous_ids", "properties", "context",
    ),
    PROFILES: ("user_id", "anonymous_ids", "traits", "group_id", "updated_at"),
    MEMBERSHIP_CHANGES: ("user_id", "segment_key", "segment_version", "status", "sequence", "effective_at"),
    ACCOUNTS: ("account_id", "traits", "updated_at"),
    PRODUCTS: ("product_id", "properties", "updated_at"),
}  # fmt: skip
"""Table -> its columns. `properties`, `context` and `traits` are JSON texts; the times are timestamps."""

RESULT: Final = ("user_id", "value")
"""The columns of the result of a trait."""
