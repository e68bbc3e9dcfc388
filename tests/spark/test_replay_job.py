"""The job `replay` on a real broker and registry, in the session that all Spark tests share: what the segmenter was given
and what it told stand in topics, and the replay is made of them alone."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from starling_common.kafka import producer_config
from starling_common.settings import Clock, Kafka, SchemaRegistry
from starling_common.topics import BEHAVIOUR, MEMBERSHIP, SEGMENT_DEFINITIONS, load_catalogue
from starling_common.wire import Registry
from starling_spark.lake.batches import LakeWriter, Source
from starling_spark.lake.iceberg import Lake
from starling_spark.lake.tables import TABLES, renamed
from starling_spark.replay.diff import diff
from starling_spark.replay.job import NoSuchReplay, about, replay
from starling_spark.replay.place import TOPICS, Place
from starling_spark.replay.reading import LAKE_TABLES
from starling_spark.replay.settings import ReplaySettings
from starling_spark.replay.wiring import located, replay_wire
from starling_spark.sources import kafka_past
from tests.conftest import Stack
from tests.spark.conftest import spark_settings
from tests.spark.test_replay import at, happened
from tests.unit.segmenter.segmenting import _CODECS as CODECS

NAME = "audit"


class Topics:
    """All that a replay reads, under a prefix nobody else uses; one partition each."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.prefix = f"t{uuid.uuid4().hex[:10]}."

    def deploy(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        self._producer = Producer(producer_config(self.stack.brokers))
        registry, schemas = Registry(self.stack.registry_url), load_catalogue().topics
        wanted = [NewTopic(self.prefix + topic, 1, 1) for topic in TOPICS]
        for future in self._admin.create_topics(wanted, operation_timeout=30).values():
            future.result()
        for topic in TOPICS:
            registry.register(f"{self.prefix}{topic}-value", schemas[topic].schema, "FULL_TRANSITIVE")
        self._codecs = {topic: registry.codec(self.prefix + topic, schemas[topic].schema) for topic in TOPICS}

    def remove(self) -> None:
        for future in self._admin.delete_topics([self.prefix + topic for topic in TOPICS], operation_timeout=30).values():
            future.result()

    def send(self, topic: str, key: bytes | None, record: dict[str, object]) -> None:
        self._producer.produce(self.prefix + topic, self._codecs[topic].encode(record), key)

    def send_bytes(self, topic: str, value: bytes) -> None:
        self._producer.produce(self.prefix + topic, value)

    def into_lake(self, spark: SparkSession) -> Lake:
        """All events so far go into a lake, and out of their topics, as after their time there."""
        tables = renamed(tuple(one for one in TABLES if set(one.topics) <= LAKE_TABLES.keys()), self.prefix)
        names = [topic for table in tables for topic in table.topics]
        lake = Lake(spark, f"n{uuid.uuid4().hex[:10]}")
        url = self.stack.registry_url
        written = LakeWriter(lake, tables, Source(Registry(url), url)).write(kafka_past(spark, self.stack.brokers, names))
        assert all(written[table.name] > 10 for table in tables)
        ends = [TopicPartition(name, 0, lake.position(table.name)[name, 0]) for table in tables for name in table.topics]
        for future in self._admin.delete_records(ends).values():
            future.result()
        return lake

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


@pytest.fixture
def topics(stack: Stack) -> Iterator[Topics]:
    made = Topics(stack)
    made.deploy()
    yield made
    made.remove()


def test_the_life_of_a_replay(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    told = happened(3)
    early = len(told.given) * 2 // 3
    for topic, key, value in told.given[:early]:
        topics.send(topic, key, CODECS[topic].decode(value))
    topics.flush()
    lake = topics.into_lake(spark)
    for topic, key, value in told.given[early:]:
        topics.send(topic, key, CODECS[topic].decode(value))
    for record in told.definitions:
        topics.send(SEGMENT_DEFINITIONS, b"k", {"event_id": "e", "actor": "a", **record})
    for record in told.announced:
        topics.send(MEMBERSHIP, b"k", record)
    topics.send_bytes(BEHAVIOUR, b"broken")
    topics.flush()
    place = _place(spark, topics, lake, tmp_path)
    with pytest.raises(NoSuchReplay):
        about(place, NAME)
    made = replay(place, NAME, at(46))
    assert (made.unreadable, made.people, about(place, NAME)) == (1, len(told.known_at(at(46))), made)
    with pytest.raises(AnalysisException, match="already exists"):
        replay(place, NAME, at(70))
    _, found = diff(place, NAME)
    assert [one for one in found if not one.is_none] == []
    assert {one.segment for one in found} >= {"abandoned", "buyers", "lapsing", "listed"}
    # Somebody enters, as of then, for whom nothing in the past speaks.
    topics.send(MEMBERSHIP, b"k", {**told.announced[0], "user_id": "zoe", "event_id": "z", "sequence": 1, "status": "ENTERED"})
    topics.flush()
    _, found = diff(place, NAME)
    segment = told.announced[0]["segment_key"]
    assert [(one.segment, one.only_live, one.only_replayed, list(one.examples)) for one in found if not one.is_none] == [
        (segment, 1, 0, ["zoe"])
    ]


def _place(spark: SparkSession, topics: Topics, lake: Lake, directory: Path) -> Place:
    shared = spark_settings(directory).model_dump() | {
        "kafka": Kafka(brokers=topics.stack.brokers),
        "registry": SchemaRegistry(url=topics.stack.registry_url),
        "clock": Clock.EVENT,
    }
    settings = ReplaySettings(**shared, replay_dir=str(directory / "replays"), replay_topic_prefix=topics.prefix)
    return Place(spark, replay_wire(settings), located(settings), lake)
