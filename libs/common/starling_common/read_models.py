"""Pure core: what the projector, which fills the read models, and the API, which reads them, must agree on."""

import zlib
from typing import Final

MEMBER_BUCKETS: Final = 16
"""Cassandra partitions that one segment's members are spread over. Never changes: it is part of every row's key."""

SEGMENT: Final = "segment"
COMPUTED_TRAIT: Final = "computed_trait"
WEBHOOK: Final = "webhook"
LIST: Final = "list"
BACKFILL: Final = "backfill"
"""Not a definition: a run has gathered what segments ask of the past. It changes no read model."""

DEFINED: Final = "defined"
ARCHIVED: Final = "archived"
PAUSED: Final = "paused"
DISABLED: Final = "disabled"

MESSAGE_EVENT: Final = "delivery"
"""The kind, in `user_events`, of what became of a message."""

DAY_MS: Final = 86_400_000


def member_bucket(user_id: str) -> int:
    """Which bucket of a segment's members holds a user; the same in every process and for ever."""
    return zlib.crc32(user_id.encode()) % MEMBER_BUCKETS
