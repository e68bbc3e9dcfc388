"""Adapter: one streaming query from Kafka to Kafka under one set of definitions, and how far it got."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.settings import Clock
from starling_spark.jobs.profiles.definitions import fingerprint
from starling_spark.jobs.profiles.published import Spans
from starling_spark.jobs.profiles.traits import FORMAT
from starling_spark.jobs.profiles.transform import Job, computed_traits, published_users
from starling_spark.kafka.groups import Ends, end_offsets
from starling_spark.kafka.sinks import publish
from starling_spark.kafka.sources import heartbeats, kafka_records, kafka_spans
from starling_spark.session.query_metrics import QueryMetrics
from starling_spark.session.running import Running, WatchedQuery, stop_between_batches

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
class Tell:
    """Who is told: `published` of each micro-batch when the broker has all that it wrote, `metrics` of each that is completed."""

    published: Callable[[Batch], None]
    metrics: QueryMetrics


class TraitQuery:
    """A running query. Its first batch under new definitions is the whole history, so that only final values are told."""

    def __init__(self, spark: SparkSession, job: Job, place: Place, tell: Tell, published: Spans = MappingProxyType({})) -> None:
        """Starts it. `published`: values of earlier queries that the history alone may not find again."""
        facts = (FORMAT, place.state_partitions, place.partitions, job.topics.events, job.topics.clock, job.clock)
        self.name = fingerprint(job.definitions, *facts)
        self._checkpoints = place.checkpoints
        job = replace(job, brokers=place.brokers)
        records = kafka_records(spark, place.brokers, [job.topics.events, job.topics.clock], headers=False)
        if job.clock is Clock.WALL:
            records = records.unionByName(heartbeats(spark, place.partitions).drop("headers"))

        def write(rows: DataFrame, _batch: int) -> None:
            began = time.monotonic()
            published = publish(rows, place.brokers, _PRODUCED_BY)
            tell.published(Batch(published, time.monotonic() - began))

        checkpoint = place.checkpoints / self.name
        users = None
        if published and not any((checkpoint / "commits").glob("[0-9]*")):
            # Checkpointed: Spark plans every micro-batch with it, and would ask the broker for its offsets each time.
            users = published_users(kafka_spans(spark, place.brokers, published)).localCheckpoint()
        query: StreamingQuery = (
            computed_traits(records, job, users)
            .writeStream.queryName(f"profiles-{self.name}")
            .outputMode("update")
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(processingTime=f"{round(place.trigger_seconds * 1000)} milliseconds")
            .foreachBatch(write)
            .start()
        )
        self._watched = WatchedQuery(Running(query, tell.metrics))

    def look(self) -> Ends | None:
        """How far the last completed micro-batch came: its outputs are acknowledged, its place is in the checkpoint; None before.

        Raises: StreamingQueryException if the query failed.
        """
        self._watched.poll()
        return None if self._watched.progress is None else end_offsets(self._watched.progress)

    def recent(self) -> Sequence[StreamingQueryProgress]:
        """What Spark tells of the last micro-batches."""
        return list(self._watched.query.recentProgress)

    def stop(self, timeout_seconds: float) -> None:
        """Stop between two micro-batches, or in the midst of one that lasts longer than that (it is done again later)."""
        stop_between_batches(self._watched.query, time.monotonic() + timeout_seconds)
        self._watched.poll(is_last=True)

    def forget_others(self) -> None:
        """Delete the checkpoints of other definitions: what they remember as told is out of date from now on."""
        for directory in self._checkpoints.iterdir():
            if directory.is_dir() and directory.name != self.name:
                shutil.rmtree(directory)
