"""Topics of one test's own, and the real process of the feeds on them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.deploy import create_topics
from starling_common.headers import header, headers_of
from starling_common.kafka.clients import consumer_config, produce_and_wait, producer_config
from starling_common.kafka.topics import Topic
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.delivery.world import status, wait_for
from tests.unit.delivery.making import change

SCHEMAS = {
    "membership": "SegmentMembershipChanged",
    "definitions": "DefinitionChanged",
    "progress": "FeedProgressed",
    "dead_letter": "DeadLetter",
}
PARTITIONS = {"membership": 4}
INTERVAL_SECONDS = 10
"""The shortest interval of a digest."""


@dataclass
class FeedWorld:
    """Topics of one test's own, and a way to write and read them."""

    stack: Stack
    prefix: str
    registry: Registry = field(init=False)
    producer: Producer = field(init=False)
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = Registry(self.stack.registry_url)
        self.producer = Producer(producer_config(self.stack.brokers))

    def make_topics(self) -> None:
        topics = [
            Topic(self.topic(name), schema, PARTITIONS.get(name, 1), False, "delete", 3_600_000, "FULL_TRANSITIVE")
            for name, schema in SCHEMAS.items()
        ]
        create_topics(AdminClient({"bootstrap.servers": self.stack.brokers}), topics, 1)
        for topic in topics:
            self.registry.register(topic.subject, topic.schema, topic.compatibility)
        self.made += [topic.name for topic in topics]

    def create(self, name: str) -> str:
        """Create a topic of a customer, and return its name."""
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for pending in admin.create_topics([NewTopic(self.topic(name), 2, 1)]).values():
            pending.result()
        self.made.append(self.topic(name))
        return self.topic(name)

    def remove(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for pending in admin.delete_topics(self.made).values():
            pending.result()

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def define(self, document: Mapping[str, Any], action: str = "DEFINED") -> None:
        """Write the definition of a target."""
        record = {
            "recorded_at": wall_clock_micros() if action != "DEFINED" else 1_000,
            "event_id": document["key"],
            "workspace": "default",
            "kind": "target",
            "key": document["key"],
            "version": 1,
            "action": action,
            "document": json.dumps(document),
            "actor": "a test",
            "correlation_id": "c",
        }
        value = self.registry.codec(self.topic("definitions"), SCHEMAS["definitions"]).encode(record)
        key = record_key("default", document["key"])
        produce_and_wait(self.producer, self.topic("definitions"), key=key, value=value, headers=[])

    def digests_of(self, key: str, url: str, channel: str = "slack", **more: Any) -> None:
        """Define a target that gets digests."""
        self.define({"key": key, "channel": channel, "url": url, "segments": ["vip"], "interval_seconds": INTERVAL_SECONDS, **more})

    def change(self, users: Iterable[str], **more: Any) -> list[str]:
        """Write a membership change of each user, and return the ids of the changes."""
        codec = self.registry.codec(self.topic("membership"), SCHEMAS["membership"])
        found = []
        for user in users:
            record = change(user, received_at=wall_clock_micros(), **more)
            found.append(record["event_id"])
            self.producer.produce(self.topic("membership"), codec.encode(record), record_key("default", user))
        assert self.producer.flush(30) == 0
        return found

    def read(self, topic: str) -> list[KafkaMessage]:
        """All that a topic holds now, committed."""
        consumer = Consumer(consumer_config(self.stack.brokers, f"{self.prefix}-reader", **{"enable.partition.eof": True}))
        found: list[KafkaMessage] = []
        try:
            left = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
            while left:
                for message in consumer.consume(500, 0.3):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition() or 0)
        finally:
            consumer.close()
        return found

    def records(self, name: str) -> list[dict[str, Any]]:
        codec = self.registry.codec(self.topic(name), SCHEMAS[name])
        return [codec.decode(message.value() or b"") for message in self.read(self.topic(name))]

    def steps(self, key: str) -> list[str]:
        """What became of the digests of a target."""
        return [one["step"] for one in self.records("progress") if one["target"] == key and one["step"] != "READ"]

    def event_ids(self, topic: str) -> list[str]:
        """The ids of the changes in a topic of a customer."""
        return [header(headers_of(message), "event_id") or "" for message in self.read(topic)]

    @contextmanager
    def process(self, instance: str = "feeds-0", **settings: str) -> Iterator["FeedProcess"]:
        """`python -m starling_delivery` with the feeds on this world's topics, ready."""
        started = self.start(instance, **settings)
        try:
            wait_for(lambda: started.status() == 200 or started.child.poll() is not None)
            yield started
        finally:
            started.child.send_signal(signal.SIGTERM)
            try:
                started.child.wait(60)
            finally:
                started.child.kill()

    def start(self, instance: str = "feeds-0", **settings: str) -> "FeedProcess":
        port = free_port()
        environment = {
            **os.environ,
            **self.stack.environment(),
            "STARLING_CHANNEL": "feeds",
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": instance,
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            "STARLING_GROUP": self.prefix,
            "STARLING_TRANSACTIONAL_ID": self.prefix,
            **{f"STARLING_{name.upper()}_TOPIC": self.topic(name) for name in SCHEMAS},
            **settings,
        }
        return FeedProcess(subprocess.Popen([sys.executable, "-m", "starling_delivery"], env=environment), port)


@dataclass
class FeedProcess:
    """A process of the feeds."""

    child: subprocess.Popen[bytes]
    port: int

    def status(self) -> int:
        return status(self.port)

    def checks(self) -> Mapping[str, str]:
        found: Mapping[str, str] = httpx.get(f"http://127.0.0.1:{self.port}/readyz", trust_env=False).json()["checks"]
        return found
