"""Pure core: constants of the read models, shared by the projector (writer) and the API (reader)."""

import zlib
from typing import Final, NamedTuple

from starling_common.partitioning import partition_of
from starling_common.values import record_key

MEMBER_BUCKETS: Final = 16
"""Number of Cassandra partitions of one segment's members. It can never change, because the bucket is part of every row's key."""

USER_BUCKETS: Final = 32
"""Number of Cassandra partitions of the users of one Kafka partition. It can never change: rows are keyed by the bucket."""

SEGMENT: Final = "segment"
COMPUTED_TRAIT: Final = "computed_trait"
WEBHOOK: Final = "webhook"
LIST: Final = "list"
CAMPAIGN: Final = "campaign"
TARGET: Final = "target"
POLICY: Final = "policy"
EVENT_TYPE: Final = "event_type"
VIEW: Final = "view"
BACKFILL: Final = "backfill"
"""Not a definition: the completion of a backfill run. It changes no read model."""

DEFINED: Final = "defined"
ARCHIVED: Final = "archived"
PAUSED: Final = "paused"
DISABLED: Final = "disabled"
ACTIVE: Final = "active"
"""Of a campaign alone, which is a draft before: `defined` of the other kinds is in use at once."""

MESSAGE_EVENT: Final = "delivery"
"""The kind of a delivery report in `user_history`."""

DAY_MS: Final = 86_400_000

AUDIT_PERIOD_MICROS: Final = 30 * DAY_MS * 1_000
"""Duration of one Cassandra partition of a workspace's audit log. It can never change: rows are keyed by the period."""

SUPPRESSED_PREFIX: Final = "SUPPRESSED:"
"""Before the reason, in the counts of a campaign's day: messages that were dropped or suppressed for it."""
OTHER_REASON: Final = "other"
HELD_OUT_CONVERTED: Final = "HELD_OUT_CONVERTED"
"""Conversions of people who were held out, in the counts of a campaign's day. All other counts have the name of the step."""
ARM_PEOPLE: Final = "PEOPLE"
ARM_CONVERTED: Final = "CONVERTED"
"""The counts of an arm of a campaign: people by their first message, and those of them whose first message converted."""


def audit_period(recorded_at_micros: int) -> int:
    """Return the number of the period with that instant, counted from 1970."""
    return recorded_at_micros // AUDIT_PERIOD_MICROS


def member_bucket(user_id: str) -> int:
    """Return the bucket of a user among a segment's members; stable across processes and versions."""
    return zlib.crc32(user_id.encode()) % MEMBER_BUCKETS


class UserPartition(NamedTuple):
    """The Cassandra partition of a user's profile, memberships and events. `source_partition`: the Kafka partition of the user."""

    workspace: str
    source_partition: int
    bucket: int


def user_bucket(user_id: str) -> int:
    """Return the bucket of a user among the users of its Kafka partition; stable across processes and versions."""
    return zlib.crc32(user_id.encode()) % USER_BUCKETS


def user_partition(workspace: str, user_id: str, partitions: int) -> UserPartition:
    """Return the Cassandra partition of a user. `partitions`: number of partitions of the topics keyed by profile."""
    return UserPartition(workspace, partition_of(record_key(workspace, user_id), partitions), user_bucket(user_id))
