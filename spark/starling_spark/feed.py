"""Adapter: all that Kafka holds of the membership feed, as one DataFrame."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.logs import log
from starling_spark.codec import Wire
from starling_spark.columns import columns_of
from starling_spark.decoding import Reading, decoded
from starling_spark.memberships import CHANGES
from starling_spark.sources import kafka_past

FEED_RECORD: Final = "SegmentMembershipChanged"
_FIELDS: Final = ("event_id", "workspace", "segment_key", "user_id", "status", "sequence", "effective_at", "cause")


@dataclass(frozen=True, slots=True)
class FeedRead:
    """`changes` are `memberships.CHANGES`; `unreadable`: how many records could not be read and are not among them."""

    changes: DataFrame
    unreadable: int


@contextmanager
def feed_read(spark: SparkSession, brokers: str, wire: Wire, topics: Sequence[str]) -> Iterator[FeedRead]:
    """The records of these topics that are there now, held while the block runs; one that is in two topics is there twice.

    The feed is kept for a while, the state topic keeps the last record of each pair for ever: so who entered long ago
    and never left is not forgotten.
    """
    found = decoded(kafka_past(spark, brokers, topics).where("value IS NOT NULL"), _reading(wire, topics[0]))
    kept = found.select(
        *[functions.col(f"record.{name}") for name in _FIELDS[:6]],
        functions.unix_millis("record.effective_at").alias("effective_ms"),
        functions.col("record.cause.kind").alias("cause"),
        functions.col("refused.code").alias("refused"),
    ).cache()
    try:
        refused = kept.where("refused IS NOT NULL").groupBy("refused").count().collect()
        for row in refused:
            log(__name__).error("feed_unreadable", topics=list(topics), code=row["refused"], records=row["count"])
        yield FeedRead(kept.where("refused IS NULL").select(*CHANGES.fieldNames()), sum(row["count"] for row in refused))
    finally:
        kept.unpersist()


def _reading(wire: Wire, topic: str) -> Reading:
    columns = columns_of(wire.of(topic).reader_schema)
    return Reading(wire, topic, types.StructType([columns[name] for name in _FIELDS]))
