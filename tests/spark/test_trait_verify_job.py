"""The job `trait_verify` on a real broker, registry and lake: right values, a planted wrong one, and values in motion."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from starling_common.kafka.clients import consumer_config
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, CLOCK, PROFILE, TRAIT_DEFINITIONS
from starling_common.settings import Clock, Kafka, SchemaRegistry
from starling_common.wire import Registry
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.trait_verify.context import TOPICS, VerifyContext
from starling_spark.jobs.trait_verify.job import verify
from starling_spark.jobs.trait_verify.result import Difference
from starling_spark.jobs.trait_verify.settings import TraitVerifySettings
from starling_spark.jobs.trait_verify.trait import NotVerifiable
from starling_spark.jobs.trait_verify.wiring import verify_wire
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import TABLES, renamed
from starling_spark.lineage.runs import OFF, Lineage
from tests.conftest import Stack
from tests.lineage_receiver import LineageReceiver, places, sent_lineage
from tests.spark.conftest import spark_settings
from tests.spark.topics import Topics
from tests.unit.spark.keeping import DAY_MS, START_MS, Partition, defined

REVENUE = {
    "event": "Order *",
    "measure": {"sum": "revenue"},
    "within": "7d",
    "where": {"property": "revenue", "op": "gt", "value": 0.1},
}
DOCUMENTS: Mapping[str, Mapping[str, Any]] = {"revenue": REVENUE, "orders": {"event": "Order Completed"}}
Happened = tuple[str, int, str, dict[str, Any]]


@pytest.fixture
def topics(stack: Stack) -> Iterator[Topics]:
    made = Topics(stack, TOPICS)
    made.deploy()
    yield made
    made.remove()


class Rig:
    """A platform of one partition: the fold of the job `profiles` publishes the values of what is sent."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path) -> None:
        self.spark, self.topics = spark, topics
        self.lake: Lake | None = None
        self.lineage: Lineage = OFF
        self.group = f"profiles-{uuid.uuid4().hex[:8]}"
        self.partition = Partition(*(defined(key, document) for key, document in DOCUMENTS.items()))
        self._done = dict.fromkeys((BEHAVIOUR, CLOCK, TRAIT_DEFINITIONS), 0)
        shared = spark_settings(directory).model_dump() | {
            "kafka": Kafka(brokers=topics.stack.brokers),
            "registry": SchemaRegistry(url=topics.stack.registry_url),
            "clock": Clock.EVENT,
        }
        self.settings = TraitVerifySettings(
            **shared, trait_verify_topic_prefix=topics.prefix, trait_verify_profiles_group=self.group
        )

    def define(self) -> None:
        for key, document in DOCUMENTS.items():
            fields = {"recorded_at": 0, "event_id": key, "workspace": "w", "kind": "computed_trait", "key": key, "version": 1}
            text = json.dumps(document)
            more = {"action": "DEFINED", "document": text, "actor": "a", "correlation_id": "c", "awaits_backfill": False}
            self._send(TRAIT_DEFINITIONS, b"k", {**fields, **more})

    def happen(self, events: Sequence[Happened], now_ms: int) -> None:
        """Send events and advance the clock, as their micro-batch finds them."""
        for user, time_ms, name, properties in events:
            self._send(BEHAVIOUR, f"w/{user}".encode(), _event(user, time_ms, name, properties))
        self._send(CLOCK, b"", {"received_at": 0, "instant": now_ms, "correlation_id": "c"})

    def publish(self, events: Sequence[Happened], now_ms: int) -> None:
        self.happen(events, now_ms)
        for one in self.partition.batch(events, now_ms):
            self.send_value(one.user.removeprefix("w/"), one.trait.key, one.value, one.as_of)
        self.commit()

    def send_value(self, user: str, key: str, value: str | None, as_of: int) -> None:
        fields = {"received_at": 0, "workspace": "w", "user_id": user, "event_id": uuid.uuid4().hex, "trait_key": key}
        more = {"trait_version": 1, "value": value, "as_of": as_of, "correlation_id": "c"}
        self._send(AGGREGATES, f"w/{user}".encode(), {**fields, **more})
        self.topics.flush()

    def commit(self) -> None:
        """Commit the offsets of everything, as the job `profiles` does after its values."""
        self.topics.flush()
        consumer = Consumer(consumer_config(self.topics.stack.brokers, self.group))
        ends = [TopicPartition(self.topics.prefix + topic, 0, offset) for topic, offset in self._done.items()]
        consumer.commit(offsets=ends, asynchronous=False)
        consumer.close()

    def into_lake(self) -> None:
        """Everything so far goes into a lake, and out of its topic."""
        tables = renamed(tuple(one for one in TABLES if {*one.topics} <= {BEHAVIOUR, PROFILE}), self.topics.prefix)
        names, url = [topic for table in tables for topic in table.topics], self.topics.stack.registry_url
        self.lake = lake = Lake(self.spark, f"n{uuid.uuid4().hex[:10]}")
        LakeWriter(lake, tables, Source(Registry(url), url)).write(kafka_past(self.spark, self.topics.stack.brokers, names))
        self.topics.forget(BEHAVIOUR, self._done[BEHAVIOUR])

    def verified(self, key: str, limit: int = 20) -> tuple[dict[str, int], list[Difference]]:
        context = VerifyContext(self.spark, verify_wire(self.settings), self.settings, self.lake, lineage=self.lineage)
        found = verify(context, key, limit=limit)
        return dict(found.users), list(found.differences)

    def _send(self, topic: str, key: bytes, record: dict[str, Any]) -> None:
        self.topics.send(topic, key, record)
        if topic in self._done:
            self._done[topic] += 1


def _event(user: str, time_ms: int, name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    texts = {"properties": json.dumps(properties), "context": "{}", "traits": "{}", "correlation_id": "c"}
    ids: dict[str, Any] = {"event_id": uuid.uuid4().hex, "message_id": uuid.uuid4().hex, "anonymous_ids": [], "raw_timestamp": None}
    more = {
        "kind": "track",
        "name": name,
        "event_time": time_ms,
        "raw_sent_at": None,
        "products": [],
        "order": 0,
        "previous_order": 0,
    }
    return {"received_at": time_ms * 1000, "workspace": "w", "user_id": user, **ids, **texts, **more}


def _orders(number: int, start_ms: int) -> list[Happened]:
    """Users 0 to 9, one order in five hours, some late; amounts without an exact sum."""
    late_ms = (0, 0, 0, DAY_MS, 9 * DAY_MS)
    return [
        (f"u{i % 10}", start_ms + i * DAY_MS // 5 - late_ms[i % 5], "Order Completed", {"revenue": (i % 7) / 10})
        for i in range(number)
    ]


@pytest.mark.long
@pytest.mark.parametrize("has_lake", [False, True])
def test_a_wrong_value_is_found(spark: SparkSession, topics: Topics, tmp_path: Path, has_lake: bool) -> None:
    rig = Rig(spark, topics, tmp_path)
    with sent_lineage(rig.settings) as (rig.lineage, receiver):
        _verifications(rig, has_lake=has_lake)
    _its_runs_are_reported(rig, receiver)


def _verifications(rig: Rig, *, has_lake: bool) -> None:
    rig.define()
    with pytest.raises(NotVerifiable, match="published nothing yet"):
        rig.verified("revenue")
    events = _orders(60, START_MS)
    rig.publish(events[:40], events[39][1])
    if has_lake:
        rig.into_lake()
    rig.publish(events[40:], START_MS + 14 * DAY_MS)
    right, _ = rig.verified("revenue")
    assert right == {"equal": 10}
    # Another value of a user whom nothing moves.
    rig.send_value("u3", "revenue", "77.7", START_MS + 14 * DAY_MS)
    users, differences = rig.verified("revenue")
    assert users == {"different": 1, "equal": 9}
    assert [(one.user_id, one.published) for one in differences] == [("u3", "77.7")]
    # The same user orders behind the cut: whether the value is wrong is unknown until the job has published it.
    rig.happen([("u3", START_MS + 14 * DAY_MS, "Order Completed", {"revenue": 2})], START_MS + 14 * DAY_MS)
    rig.topics.flush()
    assert rig.verified("revenue") == ({"equal": 9, "in motion": 1}, [])


def _its_runs_are_reported(rig: Rig, receiver: LineageReceiver) -> None:
    events = receiver.events()
    assert [one["eventType"] for one in events] == ["START", "FAIL", *["START", "COMPLETE"] * 3]
    assert {one["job"]["name"] for one in events} == {"trait_verify"}
    reason = "NotVerifiable: the job profiles has published nothing yet: the group"
    assert events[1]["run"]["facets"]["errorMessage"]["message"].startswith(reason)
    end = events[-1]
    topics = [(f"kafka://{rig.topics.stack.brokers}", rig.topics.prefix + topic) for topic in TOPICS]
    assert places(end["inputs"])[: len(topics)] == topics
    tables = {one["name"].rpartition("/")[2]: one["facets"].get("version") for one in end["inputs"][len(topics) :]}
    if rig.lake is None:
        assert tables == {}
    else:
        assert list(tables) == ["behaviour_events", "profile_changes"]
        assert tables["behaviour_events"]["datasetVersion"] == str(rig.lake.snapshot("behaviour_events"))
        assert tables["profile_changes"] is None  # no profile has changed
    assert end["outputs"] == []
