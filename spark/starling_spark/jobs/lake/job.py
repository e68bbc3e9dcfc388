"""Edge: the streaming query that fills the lake."""

import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.telemetry.metrics import Metrics
from starling_spark.directories import as_uri
from starling_spark.jobs.lake.batches import LakeWriter
from starling_spark.kafka.sources import kafka_records
from starling_spark.lakehouse.schema.tables import LakeTable
from starling_spark.lakehouse.settings import LakeSettings

CHECKPOINT = "lake-3"
"""A change of the query increments the number. The new checkpoint reads all records; the tables skip those that they contain."""


class Batches:
    """Writes each micro-batch to the tables and maintains them at an interval, between two batches."""

    def __init__(
        self,
        writer: LakeWriter,
        upkeep: Callable[[], None],
        metrics: Metrics,
        upkeep_seconds: float,
        written: Callable[[Mapping[str, int]], None] = lambda _: None,
    ) -> None:
        """`written`: takes the number of rows by table after each micro-batch."""
        self._written = written
        self._writer = writer
        self._upkeep = upkeep
        self._metrics = metrics
        self._upkeep_seconds = upkeep_seconds
        self._maintained_at = time.monotonic()

    def write(self, batch: DataFrame, _batch_id: int) -> None:
        """Write a micro-batch; Spark calls it sequentially."""
        rows = self._writer.write(batch)
        self._written(rows)
        for table, count in rows.items():
            self._metrics.counter("starling_lake_rows_total").labels(table).inc(count)
        if self._upkeep_seconds and time.monotonic() - self._maintained_at >= self._upkeep_seconds:
            self._upkeep()
            self._maintained_at = time.monotonic()


def start(
    spark: SparkSession, settings: LakeSettings, tables: Sequence[LakeTable], batches: Batches, *, headers: bool
) -> StreamingQuery:
    """Start the query from its checkpoint, and return it. `headers`: whether the micro-batches have headers."""
    topics = [topic for table in tables for topic in table.topics]
    return (
        kafka_records(spark, settings.kafka.brokers, topics, settings.lake_batch_records, headers=headers)
        .writeStream.queryName("lake")
        .option("checkpointLocation", f"{as_uri(settings.checkpoint_dir).rstrip('/')}/{CHECKPOINT}")
        .trigger(processingTime=f"{round(settings.lake_trigger_seconds * 1000)} milliseconds")
        .foreachBatch(batches.write)
        .start()
    )
