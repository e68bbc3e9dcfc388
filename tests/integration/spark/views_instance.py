"""A views job as an operator runs it: topics, group, checkpoint and keyspace of its own on the shared stack."""

import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_api.http.pagination import PageOf
from starling_api.reports.view_store import CassandraViews
from starling_api.reports.views import MaterialisedViews, ViewRequest
from starling_common.cassandra.database import Database
from starling_common.headers import record_headers
from starling_common.kafka.clients import consumer_config, producer_config, watermarks
from starling_common.kafka.topic_range import range_consumer, read_range
from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Cassandra
from starling_common.testing import Service, eventually, running
from starling_common.wire import Registry
from starling_local.runtime import runtime_jars
from tests.conftest import Stack
from tests.integration.spark.lake_instance import PATIENCE_SECONDS, is_ready

PARTITIONS = 2
Rows = dict[tuple[str, str, str], tuple[float, float]]
"""(window's start, product, region) -> (revenue, quantity)."""


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
    def running(self, *, ready: bool = True, module: str = "starling_spark.jobs.views", **more: str) -> Iterator[Service]:
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
            "STARLING_SPARK_STATE_PARTITIONS": "1",
            "TZ": "Asia/Tokyo",
            **more,
        }
        with running(module, environment, self.directory / "views.log", ready=False) as service:
            if ready:
                eventually(lambda: is_ready(service), PATIENCE_SECONDS)
            yield service

    def order(self, at_ms: int, properties: dict[str, Any], *, partition: int = 0, region: str = "Berlin") -> None:
        self.sent += 1
        record = {
            "received_at": time.time_ns() // 1000,
            "workspace": "w",
            "user_id": "ann",
            "event_id": f"e{self.sent}",
            "message_id": "m",
            "kind": "track",
            "name": "Order Completed",
            "event_time": at_ms,
            "properties": json.dumps(properties),
            "context": "{}",
            "traits": json.dumps({"address": {"region": region}}),
            "correlation_id": "c",
        }
        self.send(self.codec.encode(record), partition)

    def send(self, value: bytes, partition: int = 0) -> None:
        headers = record_headers("from-a-header", "tests")
        self.producer.produce(self.prefix + BEHAVIOUR, value, b"w/ann", partition=partition, headers=headers)
        self.ends[partition] = self.ends.get(partition, 0) + 1

    def settle(self, service: Service, seconds: float = PATIENCE_SECONDS) -> None:
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

    def letters(self) -> set[tuple[str, str]]:
        """Return the codes and correlation ids of the dead letters; after a kill one may be there twice."""
        codec, found = Registry(self.stack.registry_url).codec(self.dead_letters, "DeadLetter"), set()
        consumer = range_consumer(self.stack.brokers, f"{self.group}-letters")
        try:
            span = watermarks(consumer, self.dead_letters, 0, 30)
            place = (self.dead_letters, 0)
            for messages in read_range(consumer, {place: OFFSET_BEGINNING}, {place: span[1]}, 30):
                letters = [codec.decode(message.value() or b"") for message in messages]
                found |= {(letter["code"], letter["correlation_id"]) for letter in letters}
        finally:
            consumer.close()
        return found

    def asked(self) -> tuple[Rows, str | None]:
        """All rows of the sales of the workspace and `as_of`, as the API gives them."""
        items, as_of = self.items("sales_by_product_region")
        return {(one["window_start"], one["product_id"], one["region"]): (one["revenue"], one["quantity"]) for one in items}, as_of

    def items(self, view: str) -> tuple[list[dict[str, Any]], str | None]:
        """All rows of a view of the workspace and `as_of`, as the API gives them."""
        database = Database(self.cassandra)
        views, items, cursor = MaterialisedViews(CassandraViews(database)), list[dict[str, Any]](), None
        try:
            while True:
                page = views.page("w", view, ViewRequest(None, None, {}), PageOf(1000, cursor))
                items += page["items"]
                cursor = page["next_cursor"]
                if cursor is None:
                    return items, page["as_of"]
        finally:
            database.close()
