"""The job `replay` on a real broker and registry, in the Spark session of all tests. Its only sources are the segmenter's input
and output topics."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP, PROFILE, SEGMENT_DEFINITIONS
from starling_common.settings import Clock, Kafka, SchemaRegistry
from starling_spark.history.past import FIELDS
from starling_spark.jobs.replay.comparison.diff import diff, diff_profiles
from starling_spark.jobs.replay.job import ReplayNotFound, read_manifest, replay
from starling_spark.jobs.replay.place import TOPICS, ReplayContext
from starling_spark.jobs.replay.settings import ReplaySettings
from starling_spark.jobs.replay.wiring import located, replay_wire
from starling_spark.lakehouse.iceberg import Lake
from tests.conftest import Stack
from tests.lineage_receiver import LineageReceiver, places, rows_of, sent_lineage
from tests.spark.conftest import spark_settings
from tests.spark.history import at, happened
from tests.spark.topics import Topics
from tests.unit.segmenter.segmenting import CODECS

NAME = "audit"


@pytest.fixture
def topics(stack: Stack) -> Iterator[Topics]:
    made = Topics(stack, TOPICS)
    made.deploy()
    yield made
    made.remove()


def _a_record_that_makes_the_fold_raise_changes_no_other_user(
    spark: SparkSession, place: ReplayContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = {row["user_id"]: row for row in spark.read.parquet(place.table(NAME, "people")).collect()}
    user = next(name for name, row in sorted(people.items()) if row["group_id"] is None and row["memberships"])
    monkeypatch.setitem(spark.sparkContext.environment, "STARLING_FAILPOINT", f"raise_in_fold:/{user}'")
    made = replay(place, "poisoned", at(46))
    monkeypatch.delitem(spark.sparkContext.environment, "STARLING_FAILPOINT")
    assert made.refused > 0
    others = {row["user_id"]: row for row in spark.read.parquet(place.table("poisoned", "people")).collect()}
    assert others == {name: row for name, row in people.items() if name != user}


@pytest.mark.long
def test_the_life_of_a_replay(spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = happened(3)
    carry = carried()
    early = len(history.given) * 2 // 3
    for topic, key, value in history.given[:early]:
        topics.send(topic, key, carry(topic, key, CODECS[topic].decode(value)))
    topics.flush()
    lake = topics.into_lake(spark)
    for topic, key, value in history.given[early:]:
        topics.send(topic, key, carry(topic, key, CODECS[topic].decode(value)))
    for record in history.definitions:
        topics.send(SEGMENT_DEFINITIONS, b"k", {"event_id": "e", "actor": "a", **record})
    for record in history.emitted:
        topics.send(MEMBERSHIP, b"k", record)
    topics.send_bytes(BEHAVIOUR, b"broken")
    topics.flush()
    place = _place(spark, topics, lake, tmp_path)
    with pytest.raises(ReplayNotFound):
        read_manifest(place, NAME)
    with sent_lineage(place.settings) as (lineage, receiver):
        reporting = replace(place, lineage=lineage)
        made = replay(reporting, NAME, at(46))
        with pytest.raises(AnalysisException, match="already exists"):
            replay(reporting, NAME, at(70))
    _its_runs_are_reported(place, receiver, made.people)
    assert (made.unreadable, made.people, read_manifest(place, NAME)) == (1, len(history.known_at(at(46))), made)
    _, found = diff(place, NAME)
    assert [one for one in found if not one.is_none] == []
    profiles = diff_profiles(place, made)
    assert profiles.is_none, profiles
    assert profiles.same > 10
    assert {one.segment for one in found} >= {"abandoned", "buyers", "lapsing", "listed"}
    _a_record_that_makes_the_fold_raise_changes_no_other_user(spark, place, monkeypatch)
    # A user enters without an event in the history.
    topics.send(MEMBERSHIP, b"k", {**history.emitted[0], "user_id": "zoe", "event_id": "z", "sequence": 1, "status": "ENTERED"})
    topics.flush()
    _, found = diff(place, NAME)
    segment = history.emitted[0]["segment_key"]
    assert [(one.segment, one.only_live, one.only_replayed, list(one.examples)) for one in found if not one.is_none] == [
        (segment, 1, 0, ["zoe"])
    ]


def _its_runs_are_reported(place: ReplayContext, receiver: LineageReceiver, people: int) -> None:
    start, end, _, failed = receiver.events()
    assert [one["eventType"] for one in receiver.events()] == ["START", "COMPLETE", "START", "FAIL"]
    assert {one["job"]["name"] for one in receiver.events()} == {"replay"}
    topics = [(f"kafka://{place.settings.kafka.brokers}", place.topic(name)) for name in (*FIELDS, SEGMENT_DEFINITIONS)]
    assert places(start["inputs"])[: len(topics)] == topics
    assert places(end["inputs"]) == places(start["inputs"])
    tables = {one["name"].rpartition("/")[2]: one["facets"] for one in end["inputs"][len(topics) :]}
    assert place.lake is not None
    versions = {table: str(place.lake.snapshot(table)) for table in ("behaviour_events", "profile_changes", "delivery_reports")}
    assert {table: facets["version"]["datasetVersion"] for table, facets in tables.items()} == versions
    directory = Path(urlsplit(place.settings.replay_dir).path) / NAME
    assert rows_of(end) == {str(directory / "people"): people, str(directory / "members"): None}
    assert "AnalysisException" in failed["run"]["facets"]["errorMessage"]["message"]


def carried() -> Callable[[str, bytes | None, Mapping[str, Any]], dict[str, Any]]:
    """Gives each event the traits of its profile, as the normalizer does."""
    traits: dict[bytes | None, str] = {}

    def carry(topic: str, key: bytes | None, record: Mapping[str, Any]) -> dict[str, Any]:
        if topic == PROFILE:
            traits[key] = record["traits"]
        return {**record, "traits": traits.get(key, "{}")} if topic == BEHAVIOUR else dict(record)

    return carry


def _place(spark: SparkSession, topics: Topics, lake: Lake, directory: Path) -> ReplayContext:
    shared = spark_settings(directory).model_dump() | {
        "kafka": Kafka(brokers=topics.stack.brokers),
        "registry": SchemaRegistry(url=topics.stack.registry_url),
        "clock": Clock.EVENT,
    }
    settings = ReplaySettings(**shared, replay_dir=str(directory / "replays"), replay_topic_prefix=topics.prefix)
    return ReplayContext(spark, replay_wire(settings), located(settings), lake)
