"""Adapter: one streaming query from Kafka to Kafka under one set of definitions, and how far it got."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.settings import Clock
from starling_spark.profiles.definitions import fingerprint
from starling_spark.profiles.positions import Position, end_offsets
from starling_spark.profiles.traits import FORMAT
from starling_spark.profiles.transform import Job, computed_traits
from starling_spark.sinks import publish
from starling_spark.sources import heartbeats, kafka_records

_PRODUCED_BY = "starling-profiles"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query runs: `partitions` of the profile-keyed topics; `checkpoints` holds one directory a set of definitions."""

    brokers: str
    partitions: int
    checkpoints: Path
    state_partitions: int
    trigger_seconds: float


@dataclass(frozen=True, slots=True)
class Batch:
    """What a micro-batch wrote: records by topic, and how long its work took."""

    published: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A completed micro-batch: its outputs are acknowledged and its place is in the checkpoint."""

    batch: int
    ends: Mapping[Position, int]


class TraitQuery:
    """A running query. Its first batch under new definitions is the whole history, so that only final values are told."""

    def __init__(self, spark: SparkSession, job: Job, place: Place, on_published: Callable[[Batch], None]) -> None:
        """Starts it; `on_published` is told of each micro-batch when the broker has all that it wrote."""
        facts = (FORMAT, place.state_partitions, place.partitions, job.topics.events, job.topics.clock, job.clock)
        self.name = fingerprint(job.definitions, *facts)
        self._checkpoints = place.checkpoints
        records = kafka_records(spark, place.brokers, [job.topics.events, job.topics.clock])
        if job.clock is Clock.WALL:
            records = records.unionByName(heartbeats(spark, place.partitions))

        def write(rows: DataFrame, _batch: int) -> None:
            began = time.monotonic()
            published = publish(rows, place.brokers, _PRODUCED_BY)
            on_published(Batch(published, time.monotonic() - began))

        self._query: StreamingQuery = (
            computed_traits(records, job)
            .writeStream.queryName(f"profiles-{self.name}")
            .outputMode("update")
            .option("checkpointLocation", (place.checkpoints / self.name).as_uri())
            .trigger(processingTime=f"{round(place.trigger_seconds * 1000)} milliseconds")
            .foreachBatch(write)
            .start()
        )

    @property
    def is_active(self) -> bool:
        """False once it stopped or failed."""
        return bool(self._query.isActive)

    def raise_failure(self) -> None:
        """Raises: StreamingQueryException if the query failed."""
        failure = self._query.exception()
        if failure is not None:
            raise failure

    def progress(self) -> Progress | None:
        """What the last completed micro-batch came to; None before the first one."""
        last = self._query.lastProgress
        if last is None:
            return None
        return Progress(last.batchId, end_offsets(last.json))

    def recent(self) -> Sequence[StreamingQueryProgress]:
        """What Spark tells of the last micro-batches."""
        return list(self._query.recentProgress)

    def stop(self, timeout_seconds: float) -> None:
        """Stop between two micro-batches, or in the midst of one that lasts longer than that (it is done again later)."""
        deadline = time.monotonic() + timeout_seconds
        before = self.progress()
        while self.is_active and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
            now = self.progress()
            if now is not None and (before is None or now.batch != before.batch):
                break
            time.sleep(0.05)
        self._query.stop()

    def forget_others(self) -> None:
        """Delete the checkpoints of other definitions: what they remember as told is out of date from now on."""
        for directory in self._checkpoints.iterdir():
            if directory.is_dir() and directory.name != self.name:
                shutil.rmtree(directory)
