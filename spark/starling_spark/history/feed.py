"""Adapter: the membership feed in Kafka and in the lake, as one DataFrame."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.telemetry.logs import log
from starling_spark.history.memberships import CHANGES
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.iceberg import Lake

FEED_RECORD: Final = "SegmentMembershipChanged"
LAKE_TABLE: Final = "membership_changes"
_FIELDS: Final = ("event_id", "workspace", "segment_key", "user_id", "status", "sequence", "effective_at", "cause")


@dataclass(frozen=True, slots=True)
class FeedSource:
    """The places from which the feed is read. `lake`: None without a lake."""

    spark: SparkSession
    brokers: str
    wire: Wire
    lake: Lake | None = None


@dataclass(frozen=True, slots=True)
class FeedRead:
    """The membership changes (`memberships.CHANGES`), and the number of unreadable records, which they lack."""

    changes: DataFrame
    unreadable: int


@contextmanager
def feed_read(source: FeedSource, topics: Sequence[str]) -> Iterator[FeedRead]:
    """Yield the current records of these topics and of the lake, cached while the block runs.

    A record that two of them contain is present twice. The feed topic has a limited retention; the compacted state topic
    keeps the last record of each pair, so that a member who entered long ago and never left is included.
    """
    records = kafka_past(source.spark, source.brokers, topics).where("value IS NOT NULL")
    found = decoded(records, _reading(source.wire, topics[0]))
    shaped = _shaped(found.select("record.*", "refused.code"))
    if source.lake is not None and source.lake.exists(LAKE_TABLE):
        table = source.lake.rows(LAKE_TABLE)
        shaped = shaped.unionByName(_shaped(table.withColumn("code", functions.lit(None).cast("string"))))
    shaped = shaped.cache()
    try:
        refused = shaped.where("refused IS NOT NULL").groupBy("refused").count().collect()
        for row in refused:
            log(__name__).error("feed_unreadable", topics=list(topics), code=row["refused"], records=row["count"])
        yield FeedRead(shaped.where("refused IS NULL").select(*CHANGES.fieldNames()), sum(row["count"] for row in refused))
    finally:
        shaped.unpersist()


def _shaped(records: DataFrame) -> DataFrame:
    """Return the changes. Shape: in fields of the record, and `code` of a refusal; out `CHANGES`, and `refused`."""
    return records.select(
        *_FIELDS[:6],
        functions.unix_millis("effective_at").alias("effective_ms"),
        functions.col("cause.kind").alias("cause"),
        functions.col("code").alias("refused"),
    )


def _reading(wire: Wire, topic: str) -> Reading:
    columns = columns_of(wire.of(topic).reader_schema)
    return Reading(wire, topic, types.StructType([columns[name] for name in _FIELDS]))
