"""Adapter: one streaming query from Kafka to Kafka under one set of definitions, and its offsets."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.settings import Clock
from starling_spark.directories import Directory
from starling_spark.jobs.profiles.definitions.in_force import fingerprint
from starling_spark.jobs.profiles.fold.outputs import unpack
from starling_spark.jobs.profiles.fold.traits import FORMAT
from starling_spark.jobs.profiles.query.buckets import Buckets
from starling_spark.jobs.profiles.query.published import Spans
from starling_spark.jobs.profiles.query.reports import LastCounts, LatestTimes
from starling_spark.jobs.profiles.query.transform import STAGE, Job, computed_traits, published_users
from starling_spark.kafka.groups import Ends, end_offsets
from starling_spark.kafka.sinks import Letters, publish
from starling_spark.kafka.sources import heartbeats, kafka_records, kafka_spans, visits
from starling_spark.session.query_metrics import QueryMetrics
from starling_spark.session.running import Running, WatchedQuery, stop_between_batches

_PRODUCED_BY = "starling-profiles"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of a query. `partitions`: of the profile-keyed topics; `checkpoints`: directory of all checkpoints;
    `state_partitions`: the tasks with state. `seeded_users`: about the most users whose history one micro-batch takes, and
    `batch_records`: the most records. `copy_megabytes`: the most disk for the copy of the states of a bucket; 0: no copies.
    """

    brokers: str
    partitions: int
    checkpoints: Directory
    state_partitions: int
    trigger_seconds: float
    seeded_users: int = 20_000
    batch_records: int = 200_000
    copy_megabytes: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The records that a micro-batch published, by topic, its dead letters by code, its duration, and the stream times up to which
    values are published.
    """

    published: Mapping[str, int]
    refused: Mapping[str, int]
    seconds: float
    stream_times: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Observers:
    """Callbacks: `published` after the broker has acknowledged a micro-batch, `metrics` after it is completed."""

    published: Callable[[Batch], None]
    metrics: QueryMetrics


def layout_of(options: QueryOptions, job: Job) -> str:
    """Return a name for what the state depends on beside the definitions."""
    buckets = Buckets.of(options.partitions, options.state_partitions)
    return fingerprint((), FORMAT, buckets.tasks, buckets.slots, options.partitions, job.topics.events, job.topics.clock, job.clock)


def _records(spark: SparkSession, job: Job, options: QueryOptions, visited: str) -> DataFrame:
    """Return what the query reads: the events and the clock, heartbeats under the wall clock, and the directory of its visits."""
    topics = [job.topics.events, job.topics.clock]
    records = kafka_records(spark, options.brokers, topics, options.batch_records, headers=False)
    if job.clock is Clock.WALL:
        records = records.unionByName(heartbeats(spark, options.partitions).drop("headers"))
    return records.unionByName(visits(spark, visited, options.partitions).drop("headers"))


def _users_of(spark: SparkSession, options: QueryOptions, published: Spans, buckets: Buckets) -> DataFrame:
    """Return the users of values that earlier queries published."""
    # Without the checkpoint Spark would request the offsets from the broker for every micro-batch.
    return published_users(kafka_spans(spark, options.brokers, published), buckets).localCheckpoint()


class TraitQuery:
    """A running query. Without a checkpoint it begins with the first record of the topics."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        options: QueryOptions,
        checkpoint: Directory,
        observers: Observers,
        published: Spans = MappingProxyType({}),
    ) -> None:
        """Start the query. `published`: values of earlier queries whose events may be deleted."""
        buckets = Buckets.of(options.partitions, options.state_partitions)
        self.name = checkpoint.name
        (visited := checkpoint / "visits").make()
        job = replace(job, brokers=options.brokers, buckets=buckets, query=self.name, copy_megabytes=options.copy_megabytes)
        # The grouping keys are those for this number of tasks.
        spark.conf.set("spark.sql.shuffle.partitions", buckets.tasks)
        records, letters = _records(spark, job, options, visited.uri), Letters(STAGE, job.topics.dead_letters, job.wire)
        times = spark.sparkContext.accumulator({}, LatestTimes())
        self._counts = spark.sparkContext.accumulator({}, LastCounts())

        def write(rows: DataFrame, _batch: int) -> None:
            began = time.monotonic()
            published = publish(rows, options.brokers, _PRODUCED_BY, letters, unpack)
            observers.published(Batch(published.records, published.refused, time.monotonic() - began, dict(times.value)))

        is_new = not any(name.isdecimal() for name in (checkpoint / "commits").names())
        before = _users_of(spark, options, published, buckets) if published and is_new else None
        # This pool has priority over that of the reading of a history.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "publishing")
        query: StreamingQuery = (
            computed_traits(records, job, before, times, self._counts)
            .writeStream.queryName(f"profiles-{self.name}")
            .outputMode("update")
            .option("checkpointLocation", checkpoint.uri)
            .trigger(processingTime=f"{round(options.trigger_seconds * 1000)} milliseconds")
            .foreachBatch(write)
            .start()
        )
        observers.metrics.count_rows = self.users
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

    def visited(self) -> int:
        """Return how many of the query's visits are completed."""
        sources = [] if self.progress is None else json.loads(self.progress)["sources"]
        found = [source["endOffset"] for source in sources if isinstance(source["endOffset"], dict)]
        return max((end["logOffset"] + 1 for end in found if "logOffset" in end), default=0)

    def users(self) -> int:
        """Return how many users have a state, of the buckets that have had a micro-batch since the start."""
        return sum(users for users, _ in self._counts.value.values())

    def waiting(self) -> int:
        """Return how many of them wait for the end of the step."""
        return sum(waiting for _, waiting in self._counts.value.values())
