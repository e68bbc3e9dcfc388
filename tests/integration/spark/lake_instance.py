"""A lake job as an operator runs it: its own topics, group, checkpoint and warehouse on the shared stack."""

import json
import os
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import BEHAVIOUR
from starling_common.testing import Service, eventually, running
from starling_common.wire import Codec, Registry
from starling_local.runtime import runtime_jars
from starling_spark.lakehouse.schema.tables import TABLES
from tests.conftest import Stack
from tests.integration.spark.iceberg_files import table_rows

PARTITIONS = 2
RECORDS = {topic: table.record for table in TABLES for topic in table.topics}


_NO_MORE: Mapping[tuple[str, int], int] = MappingProxyType({})
PATIENCE_SECONDS = 900.0
"""Two JVMs and their Python workers may start beside much else; no claim about speed."""


def is_ready(service: Service) -> bool:
    """Raises: AssertionError when it has ended."""
    assert service.process.poll() is None, service.log.read_text()[-3000:]
    return service.is_ready()


class LakeInstance:
    """Topics, tables and keyspace under a unique prefix."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self.stack = stack
        self.directory = directory
        self.prefix = f"t{uuid.uuid4().hex[:10]}."
        self.group = f"{self.prefix}lake"
        self.registry = Registry(stack.registry_url)
        self.producer = Producer(producer_config(stack.brokers))
        self.sent: dict[tuple[str, int, int], bytes] = {}
        """(topic, partition, offset) -> the value, of all that was sent."""
        self._codecs: dict[str, Codec] = {}

    def deploy(self, *existing: str) -> None:
        """`existing`: the topics that another part of the test has made."""
        wanted = [NewTopic(self.prefix + topic, PARTITIONS, 1) for topic in RECORDS if topic not in existing]
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for future in admin.create_topics(wanted, operation_timeout=30).values():
            future.result()
        for topic, record in RECORDS.items():
            self.registry.register(f"{self.prefix}{topic}-value", record, "FULL_TRANSITIVE")
            self._codecs[topic] = self.registry.codec(self.prefix + topic, record)

    def remove(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        for future in admin.delete_topics([self.prefix + topic for topic in RECORDS], operation_timeout=30).values():
            future.result()

    @contextmanager
    def running(self, *, ready: bool = True, **more: str) -> Iterator[Service]:
        jars = (*runtime_jars("spark"), *runtime_jars("iceberg"))
        environment = {
            **self.stack.environment(),
            "STARLING_CHECKPOINT_DIR": str(self.directory / "checkpoints"),
            "STARLING_SPARK_JARS": os.pathsep.join(map(str, jars)),
            "STARLING_LAKE_WAREHOUSE": str(self.directory / "warehouse"),
            "STARLING_LAKE_TOPIC_PREFIX": self.prefix,
            "STARLING_LAKE_GROUP": self.group,
            "STARLING_LAKE_TRIGGER_SECONDS": "0.2",
            "STARLING_LAKE_BATCH_RECORDS": "2000",
            "STARLING_LAKE_UPKEEP_MINUTES": "0",
            "STARLING_SPARK_STATE_PARTITIONS": "1",
            "TZ": "Asia/Tokyo",
            **more,
        }
        with running("starling_spark.jobs.lake", environment, self.directory / "lake.log", ready=False) as service:
            if ready:
                eventually(lambda: is_ready(service), PATIENCE_SECONDS)
            yield service

    def log_tail(self) -> str:
        return (self.directory / "lake.log").read_text()[-3000:]

    # -- records in

    def value(self, topic: str, record: Mapping[str, Any]) -> bytes:
        return self._codecs[topic].encode(record)

    def name_of(self, value: bytes) -> str:
        """Return the name of an event."""
        return str(self._codecs[BEHAVIOUR].decode(value)["name"])

    def send(self, topic: str, *values: bytes) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.sent[topic, message.partition(), message.offset()] = message.value()

        for number, value in enumerate(values):
            self.producer.produce(
                self.prefix + topic, value, f"w/u{number}".encode(), partition=number % PARTITIONS, on_delivery=delivered,
                headers=[("correlation_id", b"c")],
            )  # fmt: skip
        assert self.producer.flush(120) == 0

    def newer_writer(self, topic: str, field: str) -> "NewerWriter":
        """Registers a version with one more text field, as the next version of a service would before it starts."""
        return newer_writer(self.stack.registry_url, f"{self.prefix}{topic}-value", field)

    # -- what came of it

    def settle(self, service: Service, seconds: float = PATIENCE_SECONDS, more: Mapping[tuple[str, int], int] = _NO_MORE) -> None:
        """Until the job's group has passed all that was sent before. `more`: the ends of what others have sent."""
        consumer = Consumer(consumer_config(self.stack.brokers, self.group))
        ends = dict(more)
        for topic, partition, offset in self.sent:
            ends[self.prefix + topic, partition] = max(offset + 1, ends.get((self.prefix + topic, partition), 0))

        def is_there() -> bool:
            assert service.process.poll() is None, self.log_tail()
            found = consumer.committed([TopicPartition(*place) for place in ends], timeout=10)
            return all(one.offset >= ends[one.topic, one.partition] for one in found)

        try:
            eventually(is_there, seconds)
        finally:
            consumer.close()

    def rows(self, table: str) -> list[dict[str, Any]]:
        return table_rows(self.directory / "warehouse" / "starling" / table)

    def places(self, table: str) -> list[tuple[str, int, int]]:
        """(topic without prefix, partition, offset) of every row, sorted; twice where a row is there twice."""
        rows = self.rows(table)
        return sorted(
            (one["origin_topic"].removeprefix(self.prefix), one["origin_partition"], one["origin_offset"]) for one in rows
        )


class NewerWriter:
    """A writer that is one version ahead: the same record with one more text."""

    def __init__(self, schema_id: int) -> None:
        self._schema_id = schema_id

    def value(self, own: bytes, text: str) -> bytes:
        """What the newer writer would write for the record that is `own` to the older one; `text` under 64 bytes."""
        return struct.pack(">bI", 0, self._schema_id) + own[5:] + b"\x02" + bytes([len(text) << 1]) + text.encode()


def newer_writer(registry_url: str, subject: str, field: str) -> NewerWriter:
    """Registers a version with one more text field, as the next version of a service would before it starts."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        document = json.loads(client.get_latest_version(subject).schema.schema_str or "")
        document["fields"].append({"name": field, "type": ["null", "string"], "default": None})
        return NewerWriter(int(client.register_schema(subject, Schema(json.dumps(document), "AVRO"))))


def behaviour(name: str) -> dict[str, Any]:
    now_micros = time.time_ns() // 1000
    return {
        "received_at": now_micros, "workspace": "w", "user_id": "ann", "event_id": name, "message_id": "m", "kind": "track",
        "name": name, "event_time": now_micros // 1000, "properties": "{}", "context": "{}", "traits": "{}", "correlation_id": "c",
    }  # fmt: skip


def received(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "received_at": time.time_ns() // 1000, "workspace": "w", "kind": kind, "message_id": "m", "user_id": "ann",
        "item": json.dumps(item), "correlation_id": "c", "edge": "e",
    }  # fmt: skip
