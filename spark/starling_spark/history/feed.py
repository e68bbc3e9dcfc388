"""Adapter: all that Kafka holds of the membership feed, as one DataFrame."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.logs import log
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
class Place:
    """Where the feed is. `lake`: None where there is none."""

    spark: SparkSession
    brokers: str
    wire: Wire
    lake: Lake | None = None


@dataclass(frozen=True, slots=True)
class FeedRead:
    """`changes` are `memberships.CHANGES`; `unreadable`: how many records could not be read and are not among them."""

    changes: DataFrame
    unreadable: int


@contextmanager
def feed_read(source: Place, topics: Sequence[str]) -> Iterator[FeedRead]:
    """The records of these topics that are there now, and of the lake if there is one, held while the block runs; what is in
    two of them is there twice.

    The topic of the feed is kept for a while, the state topic keeps the last record of each pair for ever: so who entered long ago
    and never left is not forgotten.
    """
    records = kafka_past(source.spark, source.brokers, topics).where("value IS NOT NULL")
    found = decoded(records, _reading(source.wire, topics[0]))
    kept = _shaped(found.select("record.*", "refused.code"))
    if source.lake is not None and source.lake.exists(LAKE_TABLE):
        table = source.spark.table(source.lake.name(LAKE_TABLE))
        kept = kept.unionByName(_shaped(table.withColumn("code", functions.lit(None).cast("string"))))
    kept = kept.cache()
    try:
        refused = kept.where("refused IS NOT NULL").groupBy("refused").count().collect()
        for row in refused:
            log(__name__).error("feed_unreadable", topics=list(topics), code=row["refused"], records=row["count"])
        yield FeedRead(kept.where("refused IS NULL").select(*CHANGES.fieldNames()), sum(row["count"] for row in refused))
    finally:
        kept.unpersist()


def _shaped(records: DataFrame) -> DataFrame:
    """In: fields of the record, and `code` where it could not be read; out: `CHANGES`, and `refused`."""
    return records.select(
        *_FIELDS[:6],
        functions.unix_millis("effective_at").alias("effective_ms"),
        functions.col("cause.kind").alias("cause"),
        functions.col("code").alias("refused"),
    )


def _reading(wire: Wire, topic: str) -> Reading:
    columns = columns_of(wire.of(topic).reader_schema)
    return Reading(wire, topic, types.StructType([columns[name] for name in _FIELDS]))
