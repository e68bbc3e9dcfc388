"""Adapter: the progress of the messages of campaigns, in Kafka and in the lake, as one DataFrame."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.telemetry.logs import log
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.iceberg import Lake

PROGRESS_RECORD: Final = "MessageProgressed"
LAKE_TABLE: Final = "message_progress"
_FIELDS: Final = (
    "workspace", "delivery_id", "campaign", "version", "variant", "step", "reason", "decided_at", "value", "day", "held_out",
    "is_first",
)  # fmt: skip
_STEP: Final = ("workspace", "campaign", "delivery_id", "step")
"""What identifies a step: the messenger publishes the first of each kind of a message."""


@dataclass(frozen=True, slots=True)
class ProgressSource:
    """The places from which the progress is read. `lake`: None without a lake."""

    spark: SparkSession
    brokers: str
    wire: Wire
    lake: Lake | None = None


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """The steps, each once, with the fields of `MessageProgressed`, and the number of unreadable records, which they lack."""

    steps: DataFrame
    unreadable: int


@contextmanager
def progress_read(source: ProgressSource, topic: str) -> Iterator[ProgressRead]:
    """Yield the steps that the topic and the lake contain now, cached while the block runs."""
    records = kafka_past(source.spark, source.brokers, [topic]).where("value IS NOT NULL")
    columns = columns_of(source.wire.of(topic).reader_schema)
    reading = Reading(source.wire, topic, types.StructType([columns[name] for name in _FIELDS]))
    found = decoded(records, reading).select("record.*", functions.col("refused.code").alias("refused"))
    if source.lake is not None and source.lake.exists(LAKE_TABLE):
        table = source.lake.rows(LAKE_TABLE).select(*_FIELDS)
        found = found.unionByName(table.withColumn("refused", functions.lit(None).cast("string")))
    found = found.cache()
    try:
        refused = found.where("refused IS NOT NULL").groupBy("refused").count().collect()
        for row in refused:
            log(__name__).error("progress_unreadable", topic=topic, code=row["refused"], records=row["count"])
        steps = found.where("refused IS NULL").drop("refused").dropDuplicates(list(_STEP))
        yield ProgressRead(steps, sum(row["count"] for row in refused))
    finally:
        found.unpersist()
