"""Edge: one replay, from the event topics into its own tables."""

import time
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import DataFrame, functions

from starling_common.kafka.topics import SEGMENT_DEFINITIONS
from starling_common.settings import Clock
from starling_common.telemetry.logs import log
from starling_common.time.instants import format_instant, wall_clock_ms
from starling_spark.history.past import FIELDS, of_users, reached, timed
from starling_spark.history.refused import RefusedRecords
from starling_spark.jobs.replay.fold.states import states
from starling_spark.jobs.replay.manifest import Manifest, segments, setting
from starling_spark.jobs.replay.place import ReplayContext
from starling_spark.jobs.replay.reading import all_past, past_tables
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_past
from starling_spark.lineage.datasets import Dataset, Flow, files, kafka_topics
from starling_spark.lineage.runs import JobName


class ReplayNotFound(Exception):
    """No replay has that name, or it is unfinished."""


class InTheFuture(Exception):
    """With the wall clock the memberships of a future instant are unknown."""


def replay(context: ReplayContext, name: str, until_ms: int, *, overwrite: bool = False) -> Manifest:
    """Fold the past up to the instant. Write `people` and `members`, and last the manifest `about`, which completes the replay.

    Raises: InTheFuture; AnalysisException when the name is taken; the error of a failed task.
    """
    if context.settings.clock is Clock.WALL and until_ms > wall_clock_ms():
        raise InTheFuture(f"{format_instant(until_ms)} has not come yet")
    with context.lineage.run(JobName("replay"), partial(_flow, context, name)) as run:
        run.computes(until_ms)
        made = _replayed(context, name, until_ms, "overwrite" if overwrite else "errorifexists")
        run.knows(partial(_flow, context, name, made))
    return made


def _replayed(context: ReplayContext, name: str, until_ms: int, mode: str) -> Manifest:
    began = time.monotonic()
    past = timed(all_past(context), context.settings.clock).cache()
    try:
        ends = reached(past, until_ms, context.settings.clock)
        given = setting(_definitions(context), ends, until_ms)
        log(__name__).info("history_read", seconds=round(time.monotonic() - began, 1), partitions=len(ends))
        refused = RefusedRecords(context.spark.sparkContext)
        states(of_users(past, until_ms), given, refused.add).write.mode(mode).parquet(context.table(name, "people"))
    finally:
        past.unpersist()
    people = context.spark.read.parquet(context.table(name, "people"))
    _members(people).write.mode(mode).parquet(context.table(name, "members"))
    made = Manifest(
        name=name,
        until_ms=until_ms,
        made_at_ms=wall_clock_ms(),
        people=people.count(),
        unreadable=sum(one.unreadable for one in ends.values()),
        refused=refused.logged(),
        segments=segments(given),
    )
    text = context.spark.createDataFrame([(msgspec.json.encode(made).decode(),)], "value STRING")
    text.coalesce(1).write.mode(mode).text(context.table(name, "about"))
    log(__name__).info("replay_written", name=name, people=made.people, seconds=round(time.monotonic() - began, 1))
    return made


def read_manifest(context: ReplayContext, name: str) -> Manifest:
    """Return the manifest of a replay. Raises: ReplayNotFound."""
    where = context.table(name, "about")
    jvm: Any = context.spark._jvm  # noqa: SLF001 - PySpark has no public access to file systems
    path = jvm.org.apache.hadoop.fs.Path(where)
    if not path.getFileSystem(context.spark._jsparkSession.sessionState().newHadoopConf()).exists(path):  # noqa: SLF001 - as above
        raise ReplayNotFound(f"there is no replay {name!r} in {context.settings.replay_dir}, or it is unfinished; `run` it first")
    return msgspec.json.decode(context.spark.read.text(where).collect()[0]["value"], type=Manifest)


def _definitions(context: ReplayContext) -> list[dict[str, Any]]:
    topic = context.topic(SEGMENT_DEFINITIONS)
    reading = Reading.plain(context.wire, topic)
    found = decoded(kafka_past(context.spark, context.settings.kafka.brokers, [topic]), reading).where("record IS NOT NULL")
    rows = found.orderBy("partition", "offset").select("record.*")
    micros = rows.withColumn("recorded_at", functions.unix_micros("recorded_at"))
    return [row.asDict(recursive=True) for row in micros.collect()]


def _members(people: DataFrame) -> DataFrame:
    return people.select("workspace", "user_id", functions.explode("memberships").alias("one")).select(
        "workspace", "one.segment_key", "user_id", "one.segment_version", "one.entered_ms"
    )


def _flow(context: ReplayContext, name: str, made: Manifest | None = None) -> Flow:
    """Return what a replay reads and writes. `made`: None before it is complete, when the run may not have read a table yet."""
    topics = kafka_topics(context.settings.kafka.brokers, *[context.topic(topic) for topic in (*FIELDS, SEGMENT_DEFINITIONS)])
    people = files(context.table(name, "people"))._replace(rows=None if made is None else made.people)
    outputs: tuple[Dataset, ...] = (people, files(context.table(name, "members")))
    return Flow((*topics, *past_tables(context, versions=made is not None)), outputs)
