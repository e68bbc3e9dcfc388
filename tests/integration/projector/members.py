"""Adapter for tests: the members and the size of a segment, as the projector stored them."""

from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import MEMBER_BUCKETS
from tests.integration.projector.feed import Log

MEMBERS = "SELECT user_id, sequence FROM {ks}.segment_members WHERE workspace = ? AND segment_key = ? AND bucket = ?"
COUNTS = "SELECT source_partition, entered, exited, counted_offset FROM {ks}.segment_counts WHERE workspace = ? AND segment_key = ?"


def members(tables: Database, log: Log, segment: str) -> dict[str, int]:
    each = [(log.workspace, segment, bucket) for bucket in range(MEMBER_BUCKETS)]
    return {row["user_id"]: row["sequence"] for rows in tables.read_each(MEMBERS, each) for row in rows}


def totals(tables: Database, log: Log, segment: str) -> tuple[int, int]:
    rows = tables.read(COUNTS, (log.workspace, segment))
    return sum(row["entered"] for row in rows), sum(row["exited"] for row in rows)
