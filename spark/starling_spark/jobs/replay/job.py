"""Edge: one replay, from the event topics into tables of its own."""

import time
from typing import Any

import msgspec
from pyspark.sql import DataFrame, functions

from starling_common.instants import format_instant, wall_clock_ms
from starling_common.logs import log
from starling_common.settings import Clock
from starling_common.topics import SEGMENT_DEFINITIONS
from starling_spark.history.past import of_users, reached, timed
from starling_spark.jobs.replay.manifest import About, segments, setting
from starling_spark.jobs.replay.place import Place
from starling_spark.jobs.replay.reading import all_past
from starling_spark.jobs.replay.states import states
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.sources import kafka_past


class NoSuchReplay(Exception):
    """There is no replay of that name, or it was not finished."""


class InTheFuture(Exception):
    """With the wall clock nobody knows yet who will be in a segment then."""


def replay(place: Place, name: str, until_ms: int, *, overwrite: bool = False) -> About:
    """Fold the past up to the instant; `people` and `members` are written, and last of all `about`, which makes it count.

    Raises: InTheFuture; AnalysisException when there is one of that name; whatever a task failed with.
    """
    if place.settings.clock is Clock.WALL and until_ms > wall_clock_ms():
        raise InTheFuture(f"{format_instant(until_ms)} has not come yet")
    mode, began = "overwrite" if overwrite else "errorifexists", time.monotonic()
    past = timed(all_past(place), place.settings.clock).cache()
    try:
        ends = reached(past, until_ms, place.settings.clock)
        given = setting(_definitions(place), ends, until_ms)
        log(__name__).info("past_read", seconds=round(time.monotonic() - began, 1), partitions=len(ends))
        states(of_users(past, until_ms), given).write.mode(mode).parquet(place.table(name, "people"))
    finally:
        past.unpersist()
    people = place.spark.read.parquet(place.table(name, "people"))
    _members(people).write.mode(mode).parquet(place.table(name, "members"))
    made = About(
        name=name,
        until_ms=until_ms,
        made_at_ms=wall_clock_ms(),
        people=people.count(),
        unreadable=sum(one.unreadable for one in ends.values()),
        segments=segments(given),
    )
    text = place.spark.createDataFrame([(msgspec.json.encode(made).decode(),)], "value STRING")
    text.coalesce(1).write.mode(mode).text(place.table(name, "about"))
    log(__name__).info("replay_written", name=name, people=made.people, seconds=round(time.monotonic() - began, 1))
    return made


def about(place: Place, name: str) -> About:
    """Raises: NoSuchReplay."""
    where = place.table(name, "about")
    jvm: Any = place.spark._jvm  # noqa: SLF001 - the only way to ask any file system
    path = jvm.org.apache.hadoop.fs.Path(where)
    if not path.getFileSystem(place.spark._jsparkSession.sessionState().newHadoopConf()).exists(path):  # noqa: SLF001 - as above
        raise NoSuchReplay(f"there is no replay {name!r} in {place.settings.replay_dir}, or it was not finished")
    return msgspec.json.decode(place.spark.read.text(where).collect()[0]["value"], type=About)


def _definitions(place: Place) -> list[dict[str, Any]]:
    topic = place.topic(SEGMENT_DEFINITIONS)
    reading = Reading.plain(place.wire, topic)
    found = decoded(kafka_past(place.spark, place.settings.kafka.brokers, [topic]), reading).where("record IS NOT NULL")
    rows = found.orderBy("partition", "offset").select("record.*")
    micros = rows.withColumn("recorded_at", functions.unix_micros("recorded_at"))
    return [row.asDict(recursive=True) for row in micros.collect()]


def _members(people: DataFrame) -> DataFrame:
    return people.select("workspace", "user_id", functions.explode("memberships").alias("one")).select(
        "workspace", "one.segment_key", "user_id", "one.segment_version", "one.entered_ms"
    )
