"""Edge: the streaming query that fills the lake."""

import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.metrics import Metrics
from starling_spark.jobs.lake.batches import LakeWriter
from starling_spark.kafka.sources import kafka_records
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.tables import LakeTable

CHECKPOINT = "lake-2"
"""Its number grows when the query itself changes: a new one reads all again, and the tables leave out what they have."""


class Batches:
    """What is done with each micro-batch: rows into the tables; from time to time their upkeep, when no batch is at work."""

    def __init__(self, writer: LakeWriter, upkeep: Callable[[], None], metrics: Metrics, upkeep_seconds: float) -> None:
        self._writer = writer
        self._upkeep = upkeep
        self._metrics = metrics
        self._upkeep_seconds = upkeep_seconds
        self._kept_up_at = time.monotonic()

    def write(self, batch: DataFrame, _batch_id: int) -> None:
        """Called by Spark, one batch after another."""
        for table, count in self._writer.write(batch).items():
            self._metrics.counter("starling_lake_rows_total").labels(table).inc(count)
        if self._upkeep_seconds and time.monotonic() - self._kept_up_at >= self._upkeep_seconds:
            self._upkeep()
            self._kept_up_at = time.monotonic()


def start(
    spark: SparkSession, settings: LakeSettings, tables: Sequence[LakeTable], batches: Batches, *, headers: bool
) -> StreamingQuery:
    """Start the query; it goes on where its checkpoint ends. `headers`: whether the micro-batches have them."""
    topics = [topic for table in tables for topic in table.topics]
    return (
        kafka_records(spark, settings.kafka.brokers, topics, settings.lake_batch_records, headers=headers)
        .writeStream.queryName("lake")
        .option("checkpointLocation", (settings.checkpoint_dir.absolute() / CHECKPOINT).as_uri())
        .trigger(processingTime=f"{round(settings.lake_trigger_seconds * 1000)} milliseconds")
        .foreachBatch(batches.write)
        .start()
    )
