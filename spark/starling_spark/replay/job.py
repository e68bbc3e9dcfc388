"""Edge: one replay, from the event topics into tables of its own."""

import time
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.instants import wall_clock_ms
from starling_common.logs import log
from starling_common.topics import MEMBERSHIP, MEMBERSHIP_STATE, SEGMENT_DEFINITIONS
from starling_spark.codec import Wire
from starling_spark.columns import columns_of
from starling_spark.decoding import Reading, decoded
from starling_spark.replay.about import About, segments, setting
from starling_spark.replay.past import FIELDS, of_people, past_rows, reached, timed
from starling_spark.replay.settings import ReplaySettings
from starling_spark.replay.states import states
from starling_spark.sources import kafka_past

TOPICS = (*FIELDS, SEGMENT_DEFINITIONS, MEMBERSHIP, MEMBERSHIP_STATE)
"""All that this job reads."""


class NoSuchReplay(Exception):
    """There is no replay of that name, or it was not finished."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a run works with."""

    spark: SparkSession
    wire: Wire
    settings: ReplaySettings

    def topic(self, name: str) -> str:
        """As it is called here."""
        return self.settings.replay_topic_prefix + name

    def table(self, replay: str, table: str) -> str:
        """Where one of a replay's tables is: `people`, `members` or `about`."""
        return f"{self.settings.replay_dir.rstrip('/')}/{replay}/{table}"


def replay(place: Place, name: str, until_ms: int, *, overwrite: bool = False) -> About:
    """Fold the past up to the instant; `people` and `members` are written, and last of all `about`, which makes it count.

    Raises: AnalysisException when there is one of that name; whatever a task failed with.
    """
    mode, began = "overwrite" if overwrite else "errorifexists", time.monotonic()
    past = timed(_past(place), place.settings.clock).cache()
    try:
        ends = reached(past, until_ms, place.settings.clock)
        given = setting(_definitions(place), ends, until_ms)
        log(__name__).info("past_read", seconds=round(time.monotonic() - began, 1), partitions=len(ends))
        states(of_people(past, until_ms), given).write.mode(mode).parquet(place.table(name, "people"))
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


def _past(place: Place) -> DataFrame:
    return reduce(DataFrame.unionByName, [_past_of(place, topic) for topic in FIELDS])


def _past_of(place: Place, topic: str) -> DataFrame:
    records = kafka_past(place.spark, place.settings.kafka.brokers, [place.topic(topic)])
    return past_rows(decoded(records, _reading(place, topic)), topic)


def _reading(place: Place, topic: str) -> Reading:
    columns = columns_of(place.wire.of(place.topic(topic)).reader_schema)
    fields = types.StructType([columns[name] for name in FIELDS[topic]])
    return Reading(place.wire, place.topic(topic), fields)


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
