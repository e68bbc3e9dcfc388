"""Pure core: which tables the lake has, what goes into each, and how they are laid out."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.sql import types

from starling_common.topics import BEHAVIOUR, DELIVERY, INGEST_TOPICS, MEMBERSHIP, PROFILE
from starling_spark.kafka.decoding import NOTHING
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.items import CALL

ORIGIN: Final = types.StructType(
    [
        types.StructField("origin_topic", types.StringType()),
        types.StructField("origin_partition", types.IntegerType()),
        types.StructField("origin_offset", types.LongType()),
        types.StructField("origin_timestamp", types.TimestampType()),
        types.StructField("origin_key", types.BinaryType()),
    ]
)
"""Where in Kafka a row was: with that every row can be told from every other, and found again."""

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
    """One table: the topics that go into it, all of one record.

    `kind` is the column that says what type of event a row is; rows are sorted by `sorted_by` in each file, so that a
    question for some of them reads few parts of it. `extra`: columns that are made of the record.
    """

    name: str
    topics: tuple[str, ...]
    record: str
    kind: str
    sorted_by: tuple[str, ...]
    extra: types.StructType = NOTHING

    @property
    def partitioning(self) -> tuple[str, ...]:
        """By the hour of arrival, then by the type of event.

        By arrival and not by the event's own time, because then the rows of one micro-batch fall into one hour, or two:
        an import of ten years of history would else be cut into 90,000 files at once.
        """
        return ("hours(received_at)", self.kind)


PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "format-version": "2",
        # Rows go to the files of the task that has them: a small batch is not worth a shuffle, and compaction mends it.
        "write.distribution-mode": "none",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
    }
)
"""Iceberg's own, of every table."""

TABLES: Final = (
    LakeTable("ingest_items", INGEST_TOPICS, "IngestReceived", "kind", ("received_at",), CALL),
    LakeTable("behaviour_events", (BEHAVIOUR,), "BehaviourEvent", "kind", ("name", "event_time")),
    LakeTable("profile_changes", (PROFILE,), "ProfileChanged", "change", ("event_time",)),
    LakeTable("membership_changes", (MEMBERSHIP,), "SegmentMembershipChanged", "status", ("effective_at",)),
    LakeTable("delivery_reports", (DELIVERY,), "DeliveryReported", "outcome", ("event_time",)),
)


def renamed(tables: tuple[LakeTable, ...], prefix: str) -> tuple[LakeTable, ...]:
    """The same tables of other topics: where several installations share a broker, each topic's name has a prefix."""
    return tuple(
        LakeTable(one.name, tuple(prefix + topic for topic in one.topics), one.record, one.kind, one.sorted_by, one.extra)
        for one in tables
    )
