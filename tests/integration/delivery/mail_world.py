"""Topics of one test's own, and the real process of the channels of campaigns on them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_campaigns.channels import SENT_CHANNELS
from starling_common.deploy import create_topics
from starling_common.kafka.clients import consumer_config, produce_and_wait, producer_config
from starling_common.kafka.topics import Topic
from starling_common.testing import free_port
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.delivery.world import status, wait_for
from tests.unit.delivery.messages import definition, mail_campaign, mail_request, smtp_target

SCHEMAS = {
    "request": "DeliveryRequested",
    "bulk": "DeliveryRequested",
    "definitions": "DefinitionChanged",
    "retry": "DeliveryRequested",
    "outcome": "DeliveryReported",
    "dead_letter": "DeadLetter",
    "consent": "ConsentChanged",
    "suppressions": "AddressSuppressed",
}
TIERS = ("0.2s", "0.4s")
REQUESTS = tuple(f"request.{channel}" for channel in sorted(SENT_CHANNELS))
BULK = tuple(f"bulk.{channel}" for channel in sorted(SENT_CHANNELS))
PARTITIONS = {**dict.fromkeys((*REQUESTS, *BULK), 2), "retry.0.2s": 2, "retry.0.4s": 2}


@dataclass
class MailWorld:
    """Topics of one test's own, and a way to write and read them."""

    stack: Stack
    prefix: str
    registry: Registry = field(init=False)
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(self.stack.registry_url)
        self.producer = Producer(producer_config(self.stack.brokers))

    def make_topics(self) -> list[str]:
        tiers = {f"retry.{tier}": SCHEMAS["retry"] for tier in TIERS}
        schemas = {name: schema for name, schema in SCHEMAS.items() if name not in {"request", "bulk"}} | tiers
        schemas |= dict.fromkeys((*REQUESTS, *BULK), SCHEMAS["request"])
        topics = [
            Topic(self.topic(name), schema, PARTITIONS.get(name, 1), False, "delete", 3_600_000, "FULL_TRANSITIVE")
            for name, schema in schemas.items()
        ]
        create_topics(AdminClient({"bootstrap.servers": self.stack.brokers}), topics, 1)
        for topic in topics:
            self.registry.register(topic.subject, topic.schema, topic.compatibility)
        return [topic.name for topic in topics]

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def write(self, name: str, key: bytes, record: dict[str, Any]) -> None:
        value = self.registry.codec(self.topic(name), SCHEMAS[name.partition(".")[0]]).encode(record)
        produce_and_wait(self.producer, self.topic(name), key=key, value=value, headers=[])

    def define(self, kind: str, document: dict[str, Any], action: str = "DEFINED", version: int = 1) -> None:
        self.write("definitions", record_key("default", document["key"]), definition(kind, document, action, version))

    def define_all(self, port: int, **target: Any) -> None:
        """Define the target and the active campaign."""
        self.define("target", smtp_target(port, **target))
        self.define("campaign", mail_campaign(), "ACTIVATED")

    def ask(self, users: Iterable[str], channel: str = "email", *, kind: str = "request", **more: Any) -> None:
        """Write a request for each user. `kind`: `bulk` for those of a broadcast."""
        topic = self.topic(f"{kind}.{channel}")
        codec = self.registry.codec(topic, SCHEMAS["request"])
        for user in users:
            record = mail_request(user, channel=channel, **more)
            self.producer.produce(topic, codec.encode(record), record_key("default", user))
        self.producer.flush(30)

    def records(self, name: str) -> list[dict[str, Any]]:
        """All that the topic holds now, committed."""
        codec = self.registry.codec(self.topic(name), SCHEMAS[name.partition(".")[0]])
        consumer = Consumer(consumer_config(self.stack.brokers, f"{self.prefix}-reader", **{"enable.partition.eof": True}))
        found: list[dict[str, Any]] = []
        left = PARTITIONS.get(name, 1)
        try:
            consumer.assign([TopicPartition(self.topic(name), number, OFFSET_BEGINNING) for number in range(left)])
            while left:
                for message in consumer.consume(500, 0.3):
                    error = message.error()
                    if error is None:
                        found.append(codec.decode(message.value() or b""))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left -= 1
        finally:
            consumer.close()
        return found

    def outcomes(self, *wanted: str) -> dict[str, list[str]]:
        """User -> outcomes, each with its detail for FAILED, SUPPRESSED and postponed ones. `wanted`: these users alone."""
        found: dict[str, list[str]] = {}
        for record in self.records("outcome"):
            if not wanted or record["user_id"] in wanted:
                detail = f" {record['detail']}" if record["outcome"] in {"FAILED", "SUPPRESSED"} else ""
                found.setdefault(record["user_id"], []).append(f"{record['outcome']}{detail}")
        return found

    def end_transactions(self, instance: str = "email-0") -> None:
        """Let the broker end what a killed process has left open, so that its records are visible or gone."""
        own = {"transactional.id": f"{self.prefix}-{instance}"}
        Producer(producer_config(self.stack.brokers, **own)).init_transactions(30)

    @contextmanager
    def process(self, instance: str = "email-0", **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        """`python -m starling_delivery` with the channels of campaigns on this world's topics, ready."""
        port = free_port()
        process = self.start(port, instance, **settings)
        try:
            wait_for(lambda: status(port) == 200 or process.poll() is not None)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)  # a suspended one would not end
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()

    def start(self, port: int, instance: str, **settings: str) -> subprocess.Popen[bytes]:
        command: Sequence[str] = (sys.executable, "-m", "starling_delivery")
        environment = {
            **os.environ,
            **self.stack.environment(),
            "STARLING_CHANNEL": "email",
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": instance,
            "STARLING_TRANSACTIONAL_ID": self.prefix,
            "STARLING_EMAIL__ALLOW_PRIVATE_ADDRESSES": "true",
            "STARLING_EMAIL__UNSUBSCRIBE_URL": "https://mail.example.com/u",
            "STARLING_EMAIL__HOSTNAME": "mailer.example.com",
            "STARLING_GROUP": self.prefix,
            "STARLING_RETRY_DELAYS_SECONDS": "[0.2, 0.4]",
            **{f"STARLING_{name.upper()}_TOPIC": self.topic(name) for name in SCHEMAS},
            **settings,
        }
        return subprocess.Popen(command, env=environment)


def context(**traits: Any) -> str:
    """Return the context of a request."""
    return json.dumps({"traits": traits, "event": None})
