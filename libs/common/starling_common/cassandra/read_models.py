"""Pure core: constants of the read models, shared by the projector (writer) and the API (reader)."""

import zlib
from typing import Final

MEMBER_BUCKETS: Final = 16
"""Number of Cassandra partitions of one segment's members. It can never change, because the bucket is part of every row's key."""

SEGMENT: Final = "segment"
COMPUTED_TRAIT: Final = "computed_trait"
WEBHOOK: Final = "webhook"
LIST: Final = "list"
BACKFILL: Final = "backfill"
"""Not a definition: the completion of a backfill run. It changes no read model."""

DEFINED: Final = "defined"
ARCHIVED: Final = "archived"
PAUSED: Final = "paused"
DISABLED: Final = "disabled"

MESSAGE_EVENT: Final = "delivery"
"""The kind of a delivery report in `user_events`."""

DAY_MS: Final = 86_400_000


def member_bucket(user_id: str) -> int:
    """Return the bucket of a user among a segment's members; stable across processes and versions."""
    return zlib.crc32(user_id.encode()) % MEMBER_BUCKETS
