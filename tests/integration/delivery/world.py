"""Topics of one test's own, and the real delivery process on them."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from starling_common.kafka.clients import consumer_config, produce_and_wait
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.unit.delivery.making import SECRET, change

SCHEMAS = {
    "membership": "SegmentMembershipChanged",
    "definitions": "DefinitionChanged",
    "retry": "DeliveryRequested",
    "outcome": "DeliveryReported",
    "dead_letter": "DeadLetter",
}
TIERS = ("0.2s", "0.4s", "4s", "20s")
"""The topics of the delays that the tests use."""

WAIT_SECONDS = 60.0


@dataclass
class World:
    """Topics of one test's own, and a way to write and read them."""

    stack: Stack
    prefix: str
    registry: Registry
    producer: Producer
    port: int = 0
    """Where the last process answers."""

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def write(self, name: str, key: bytes, record: dict[str, Any]) -> None:
        value = self.registry.codec(self.topic(name), SCHEMAS[name.partition(".")[0]]).encode(record)
        produce_and_wait(self.producer, self.topic(name), key=key, value=value, headers=[])

    def define(self, url: str, key: str = "hook", workspace: str = "default", **more: Any) -> None:
        record = {
            "recorded_at": 1,
            "event_id": str(uuid.uuid4()),
            "workspace": workspace,
            "kind": "webhook",
            "key": key,
            "version": 1,
            "action": "DEFINED",
            "document": json.dumps({"key": key, "url": url, "secret": SECRET} | more),
            "actor": "a test",
            "correlation_id": "c",
        }
        self.write("definitions", record_key(workspace, key), record)

    def change(self, user: str, **more: Any) -> None:
        self.write("membership", record_key("default", user), change(user, received_at=wall_clock_micros(), **more))

    def changes(self, users: Iterable[str], **more: Any) -> None:
        codec = self.registry.codec(self.topic("membership"), SCHEMAS["membership"])
        for user in users:
            record = change(user, received_at=wall_clock_micros(), **more)
            self.producer.produce(self.topic("membership"), codec.encode(record), record_key("default", user))
        self.producer.flush(30)

    def records(self, name: str) -> list[dict[str, Any]]:
        """All that the topic holds now."""
        codec = self.registry.codec(self.topic(name), SCHEMAS[name.partition(".")[0]])
        consumer = Consumer(consumer_config(self.stack.brokers, f"{self.prefix}-reader", **{"enable.partition.eof": True}))
        found: list[dict[str, Any]] = []
        try:
            consumer.assign([TopicPartition(self.topic(name), 0, OFFSET_BEGINNING)])
            while True:
                for message in consumer.consume(500, 0.3):
                    error = message.error()
                    if error is None:
                        found.append(codec.decode(message.value() or b"") | {"timestamp_ms": message.timestamp()[1]})
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found
        finally:
            consumer.close()

    def has_read_all(self) -> bool:
        """Return whether the process has committed the last membership change."""
        place = TopicPartition(self.topic("membership"), 0)
        consumer = Consumer(consumer_config(self.stack.brokers, self.prefix))
        try:
            [committed] = consumer.committed([place], timeout=30)
            return bool(committed.offset == consumer.get_watermark_offsets(place, timeout=30)[1])
        finally:
            consumer.close()

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.port}/metrics", trust_env=False).text

    def outcomes(self) -> list[str]:
        return [record["outcome"] for record in self.records("outcome")]

    @contextmanager
    def process(
        self, command: Sequence[str] = (sys.executable, "-m", "starling_delivery"), **settings: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`python -m starling_delivery` on this world's topics, ready."""
        port = self.port = free_port()
        process = subprocess.Popen(command, env=self.environment(port, **settings))
        try:
            wait_for(lambda: status(port) == 200)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)  # a suspended one would not end
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()

    def environment(self, port: int, **settings: str) -> dict[str, str]:
        return {
            **os.environ,
            **self.stack.environment(),
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": "delivery-0",
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            "STARLING_GROUP": self.prefix,
            "STARLING_RETRY_DELAYS_SECONDS": "[0.2, 0.2, 0.4]",  # a tier of each, among TIERS
            **{f"STARLING_{name.upper()}_TOPIC": self.topic(name) for name in SCHEMAS if name != "definitions"},
            "STARLING_DEFINITIONS_TOPIC": self.topic("definitions"),
            **settings,
        }


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


def readiness(port: int) -> str:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).text
    except httpx.TransportError:
        return ""


def status(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code
    except httpx.TransportError:
        return 0
