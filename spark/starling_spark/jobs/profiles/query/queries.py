"""Adapter: one streaming query from Kafka to Kafka under one set of definitions, and its offsets."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.settings import Clock
from starling_spark.jobs.profiles.definitions.in_force import fingerprint
from starling_spark.jobs.profiles.fold.traits import FORMAT
from starling_spark.jobs.profiles.query.buckets import Buckets
from starling_spark.jobs.profiles.query.published import Spans
from starling_spark.jobs.profiles.query.transform import STAGE, Job, computed_traits, published_users
from starling_spark.kafka.groups import Ends, end_offsets
from starling_spark.kafka.sinks import Letters, publish
from starling_spark.kafka.sources import heartbeats, kafka_records, kafka_spans
from starling_spark.session.query_metrics import QueryMetrics
from starling_spark.session.running import Running, WatchedQuery, stop_between_batches

_PRODUCED_BY = "starling-profiles"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of a query. `partitions`: of the profile-keyed topics; `checkpoints`: directory of all checkpoints;
    `state_partitions`: the tasks with state.
    """

    brokers: str
    partitions: int
    checkpoints: Path
    state_partitions: int
    trigger_seconds: float


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that a micro-batch published, by topic, its dead letters by code, and its duration."""

    published: Mapping[str, int]
    refused: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Observers:
    """Callbacks: `published` after the broker has acknowledged a micro-batch, `metrics` after it is completed."""

    published: Callable[[Batch], None]
    metrics: QueryMetrics


class TraitQuery:
    """A running query. Its first batch under new definitions is the whole history, so only final values are published."""

    def __init__(
        self, spark: SparkSession, job: Job, options: QueryOptions, observers: Observers, published: Spans = MappingProxyType({})
    ) -> None:
        """Start the query. `published`: values of earlier queries whose events may be deleted."""
        buckets = Buckets.of(options.partitions, options.state_partitions)
        facts = (FORMAT, buckets.tasks, buckets.slots, options.partitions, job.topics.events, job.topics.clock, job.clock)
        self.name = fingerprint(job.definitions, *facts)
        self._checkpoints = options.checkpoints
        job = replace(job, brokers=options.brokers, buckets=buckets)
        # The grouping keys are those for this number of tasks.
        spark.conf.set("spark.sql.shuffle.partitions", buckets.tasks)
        records = kafka_records(spark, options.brokers, [job.topics.events, job.topics.clock], headers=False)
        if job.clock is Clock.WALL:
            records = records.unionByName(heartbeats(spark, options.partitions).drop("headers"))

        letters = Letters(STAGE, job.topics.dead_letters, job.wire)

        def write(rows: DataFrame, _batch: int) -> None:
            began = time.monotonic()
            published = publish(rows, options.brokers, _PRODUCED_BY, letters)
            observers.published(Batch(published.records, published.refused, time.monotonic() - began))

        checkpoint = options.checkpoints / self.name
        users = None
        if published and not any((checkpoint / "commits").glob("[0-9]*")):
            # Without the checkpoint Spark would request the offsets from the broker for every micro-batch.
            users = published_users(kafka_spans(spark, options.brokers, published), buckets).localCheckpoint()
        query: StreamingQuery = (
            computed_traits(records, job, users)
            .writeStream.queryName(f"profiles-{self.name}")
            .outputMode("update")
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(processingTime=f"{round(options.trigger_seconds * 1000)} milliseconds")
            .foreachBatch(write)
            .start()
        )
        self._watched = WatchedQuery(Running(STAGE, query, observers.metrics))

    @property
    def progress(self) -> str | None:
        """The progress of the last completed micro-batch, as Spark's JSON."""
        return self._watched.progress

    def poll(self) -> Ends | None:
        """Return the end offsets of the last completed micro-batch, whose outputs are acknowledged; None before the first.

        Raises: StreamingQueryException if the query failed.
        """
        self._watched.poll()
        return None if self._watched.progress is None else end_offsets(self._watched.progress)

    def stop(self, timeout_seconds: float) -> None:
        """Stop between two micro-batches, or within one that exceeds the timeout; Spark repeats it after a restart."""
        stop_between_batches(self._watched.query, time.monotonic() + timeout_seconds)
        self._watched.poll(is_last=True)

    def delete_other_checkpoints(self) -> None:
        """Delete the checkpoints of other definitions; their published values are outdated now."""
        for directory in self._checkpoints.iterdir():
            if directory.is_dir() and directory.name != self.name:
                shutil.rmtree(directory)
