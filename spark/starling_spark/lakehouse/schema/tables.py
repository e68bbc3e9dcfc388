"""Pure core: the tables of the lake, their topics and their layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.sql import types

from starling_common.kafka.topics import BEHAVIOUR, CAMPAIGN_PROGRESS, DELIVERY, INGEST_TOPICS, MEMBERSHIP, PROFILE
from starling_spark.kafka.decoding import NOTHING
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.schema.items import CALL

ORIGIN: Final = types.StructType(
    [
        types.StructField("origin_topic", types.StringType()),
        types.StructField("origin_partition", types.IntegerType()),
        types.StructField("origin_offset", types.LongType()),
        types.StructField("origin_timestamp", types.TimestampType()),
        types.StructField("origin_key", types.BinaryType()),
    ]
)
"""The origin of a row in Kafka; it identifies the row."""

QUARANTINE: Final = "quarantine"
QUARANTINE_COLUMNS: Final = types.StructType(
    [
        *ORIGIN.fields,
        types.StructField("value", types.BinaryType()),
        RECORDS["headers"],
        types.StructField("code", types.StringType()),
        types.StructField("message", types.StringType()),
        types.StructField("schema_id", types.LongType()),
    ]
)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table and its topics, which have the same record.

    `kind` is the column with the type of event. The rows of a file are sorted by `sorted_by`, so a selective query reads few row
    groups. `extra`: columns that are computed from the record.
    """

    name: str
    topics: tuple[str, ...]
    record: str
    kind: str
    sorted_by: tuple[str, ...]
    extra: types.StructType = NOTHING

    @property
    def partitioning(self) -> tuple[str, ...]:
        """Return the partitioning: the hour of receipt, then the type of event.

        The rows of one micro-batch have one or two hours of receipt. Partitioning by the event's own time would split an import
        of ten years of history into 90,000 files at once.
        """
        return ("hours(received_at)", self.kind)


COMPRESSED: Final[Mapping[str, str]] = MappingProxyType({"write.metadata.compression-codec": "gzip"})
"""The property of tables whose catalog has the place of their metadata.

Each commit writes the list of all snapshots again; compressed it is a seventh. Readers of a directory look for a plain name.
"""

PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "format-version": "2",
        # A task writes its own rows: a shuffle costs more than it saves in a small batch, and compaction merges the files.
        "write.distribution-mode": "none",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
    }
)
"""Iceberg's table properties."""

ONE_BY_ONE: Final[Mapping[str, str]] = MappingProxyType({"write.distribution-mode": "hash", "write.spark.fanout.enabled": "false"})
"""The properties of tables whose batches have many partitions. A task that has a writer for each of them runs out of memory."""

TABLES: Final = (
    LakeTable("ingest_items", INGEST_TOPICS, "IngestReceived", "kind", ("received_at",), CALL),
    LakeTable("behaviour_events", (BEHAVIOUR,), "BehaviourEvent", "kind", ("name", "event_time")),
    LakeTable("profile_changes", (PROFILE,), "ProfileChanged", "change", ("event_time",)),
    LakeTable("membership_changes", (MEMBERSHIP,), "SegmentMembershipChanged", "status", ("effective_at",)),
    LakeTable("delivery_reports", (DELIVERY,), "DeliveryReported", "outcome", ("event_time",)),
    LakeTable("message_progress", (CAMPAIGN_PROGRESS,), "MessageProgressed", "step", ("campaign", "decided_at")),
)


def renamed(tables: tuple[LakeTable, ...], prefix: str) -> tuple[LakeTable, ...]:
    """Return the tables with prefixed topic names, for installations that share a broker."""
    return tuple(
        LakeTable(one.name, tuple(prefix + topic for topic in one.topics), one.record, one.kind, one.sorted_by, one.extra)
        for one in tables
    )
