"""The job `views` as a process, on a real broker, registry and Cassandra; what it wrote is asked for as the API does."""

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_api.materialised import Asked, Materialised
from starling_api.materialised_store import CassandraViews
from starling_api.pages import PageOf
from starling_common.database import Database
from starling_common.kafka import consumer_config, producer_config
from starling_common.settings import Cassandra
from starling_common.testing import Service, eventually, own_keyspace, running
from starling_common.topics import BEHAVIOUR
from starling_common.wire import Registry
from starling_local.runtime import runtime_jars
from tests.conftest import Stack

PARTITIONS = 2
HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000


class ViewsInstance:
    """A views job with topics, group, checkpoint and keyspace of its own."""

    def __init__(self, stack: Stack, cassandra: Cassandra, directory: Path) -> None:
        self.stack, self.cassandra, self.directory = stack, cassandra, directory
        self.prefix = f"t{uuid.uuid4().hex[:10]}."
        self.dead_letters = f"{self.prefix}views.dlq"
        self.group = f"{self.prefix}views"
        self.producer = Producer(producer_config(stack.brokers))
        self.ends: dict[int, int] = {}
        self.sent = 0

    def deploy(self) -> None:
        topics = {self.prefix + BEHAVIOUR: (PARTITIONS, "BehaviourEvent"), self.dead_letters: (1, "DeadLetter")}
        admin, registry = AdminClient({"bootstrap.servers": self.stack.brokers}), Registry(self.stack.registry_url)
        wanted = [NewTopic(topic, count, 1) for topic, (count, _) in topics.items()]
        for future in admin.create_topics(wanted, operation_timeout=30).values():
            future.result()
        for topic, (_, record) in topics.items():
            registry.register(f"{topic}-value", record, "FULL_TRANSITIVE")
        self.codec = registry.codec(self.prefix + BEHAVIOUR, "BehaviourEvent")

    def remove(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for future in admin.delete_topics([self.prefix + BEHAVIOUR, self.dead_letters], operation_timeout=30).values():
            future.result()

    @contextmanager
    def running(self, **more: str) -> Iterator[Service]:
        environment = {
            **self.stack.environment(),
            "STARLING_CASSANDRA__KEYSPACE": self.cassandra.keyspace,
            "STARLING_CHECKPOINT_DIR": str(self.directory / "checkpoints"),
            "STARLING_SPARK_JARS": os.pathsep.join(map(str, runtime_jars("spark"))),
            "STARLING_CLOCK": "event",
            "STARLING_VIEWS_TOPIC_PREFIX": self.prefix,
            "STARLING_VIEWS_DEAD_LETTERS_TOPIC": self.dead_letters,
            "STARLING_VIEWS_GROUP": self.group,
            "STARLING_VIEWS_TRIGGER_SECONDS": "0.2",
            "TZ": "Asia/Tokyo",
            **more,
        }
        with running("starling_spark.views", environment, self.directory / "views.log") as service:
            yield service

    def order(self, at_ms: int, properties: dict[str, Any], *, partition: int = 0, region: str = "Berlin") -> None:
        self.sent += 1
        record = {
            "received_at": time.time_ns() // 1000, "workspace": "w", "user_id": "ann", "event_id": f"e{self.sent}", "message_id": "m",
            "kind": "track", "name": "Order Completed", "event_time": at_ms, "properties": json.dumps(properties), "context": "{}",
            "traits": json.dumps({"address": {"region": region}}), "correlation_id": "c",
        }  # fmt: skip
        self.send(self.codec.encode(record), partition)

    def send(self, value: bytes, partition: int = 0) -> None:
        self.producer.produce(self.prefix + BEHAVIOUR, value, b"w/ann", partition=partition)
        self.ends[partition] = self.ends.get(partition, 0) + 1

    def settle(self, service: Service, seconds: float = 180.0) -> None:
        assert self.producer.flush(30) == 0
        consumer = Consumer(consumer_config(self.stack.brokers, self.group))
        topic = self.prefix + BEHAVIOUR

        def is_there() -> bool:
            assert service.process.poll() is None, (self.directory / "views.log").read_text()[-3000:]
            found = consumer.committed([TopicPartition(topic, number) for number in self.ends], timeout=10)
            return all(one.offset >= self.ends[one.partition] for one in found)

        try:
            eventually(is_there, seconds)
        finally:
            consumer.close()

    def letters(self) -> int:
        consumer = Consumer(consumer_config(self.stack.brokers, self.group))
        try:
            span = consumer.get_watermark_offsets(TopicPartition(self.dead_letters, 0), timeout=10)
            return span[1] if span is not None else 0
        finally:
            consumer.close()


@pytest.fixture
def instance(stack: Stack, tmp_path: Path) -> Iterator[ViewsInstance]:
    with own_keyspace(stack.cassandra) as cassandra:
        made = ViewsInstance(stack, cassandra, tmp_path)
        made.deploy()
        yield made
        made.remove()


def test_the_life_of_a_view(instance: ViewsInstance) -> None:
    database = Database(instance.cassandra)

    def asked() -> tuple[dict[tuple[str, str, str], tuple[float, float]], str]:
        page = Materialised(CassandraViews(database)).page("w", "sales_by_product_region", Asked(None, None, {}), PageOf(100, None))
        rows = {(one["window_start"], one["product_id"], one["region"]): (one["revenue"], one["quantity"]) for one in page["items"]}
        return rows, page["as_of"]

    instance.order(NOON_MS, {"product_id": "p", "revenue": 10, "quantity": 2})
    instance.order(
        NOON_MS + 7 * HOUR_MS, {"products": [{"product_id": "p", "price": 0.1}, {"product_id": "q", "price": 2}]}, partition=1
    )
    instance.send(b"broken")
    with instance.running() as service:
        instance.settle(service)
        noon, evening = "2023-11-15T12:00:00.000Z", "2023-11-15T18:00:00.000Z"
        first = {(noon, "p", "Berlin"): (10, 2), (evening, "p", "Berlin"): (0.1, 1), (evening, "q", "Berlin"): (2, 1)}
        assert asked() == (first, "2023-11-15T12:00:00.000Z")
        # A day later, then a late order for the first window, then another region.
        instance.order(NOON_MS + 24 * HOUR_MS, {"product_id": "p", "revenue": 1})
        instance.settle(service)
        instance.order(NOON_MS + 1, {"product_id": "p", "revenue": 0.5, "quantity": 1})
        instance.order(NOON_MS + 2, {"product_id": "p", "revenue": 7}, region="CA")
        instance.settle(service)
        rows, as_of = asked()
        tomorrow = "2023-11-16T12:00:00.000Z"
        later = {(noon, "p", "Berlin"): (10.5, 3), (noon, "p", "CA"): (7, 1), (tomorrow, "p", "Berlin"): (1, 1)}
        assert (rows, as_of) == (first | later, "2023-11-15T19:00:00.000Z")
        assert instance.letters() == 1
        metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
        assert 'starling_spark_query_state_rows{query="sales_by_product_region"} 5.0' in metrics
        assert service.stop() == 0
    database.close()
