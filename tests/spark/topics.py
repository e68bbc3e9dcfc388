"""Topics of a test's own on the shared broker, with a lake to which their records can go."""

import uuid
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import BEHAVIOUR, DELIVERY, PROFILE, load_catalogue
from starling_common.wire import Registry
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.schema.tables import TABLES, renamed
from tests.conftest import Stack
from tests.unit.segmenter.segmenting import CODECS


class Topics:
    """Topics under a unique prefix, with one partition each."""

    def __init__(self, stack: Stack, names: Sequence[str]) -> None:
        self.stack = stack
        self.names = names
        self.prefix = f"t{uuid.uuid4().hex[:10]}."

    def deploy(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.stack.brokers})
        self._producer = Producer(producer_config(self.stack.brokers))
        registry, schemas = Registry(self.stack.registry_url), load_catalogue().topics
        wanted = [NewTopic(self.prefix + topic, 1, 1) for topic in self.names]
        for future in self._admin.create_topics(wanted, operation_timeout=30).values():
            future.result()
        for topic in self.names:
            registry.register(f"{self.prefix}{topic}-value", schemas[topic].schema, "FULL_TRANSITIVE")
        self._codecs = {topic: registry.codec(self.prefix + topic, schemas[topic].schema) for topic in self.names}

    def remove(self) -> None:
        for future in self._admin.delete_topics([self.prefix + topic for topic in self.names], operation_timeout=30).values():
            future.result()

    def send(self, topic: str, key: bytes | None, record: dict[str, object]) -> None:
        self._producer.produce(self.prefix + topic, self._codecs[topic].encode(record), key)

    def send_all(self, given: Iterable[tuple[str, bytes | None, bytes]]) -> None:
        """(topic, key, value), each as the tests of the segmenter encode it."""
        for topic, key, value in given:
            self.send(topic, key, CODECS[topic].decode(value))
        self.flush()

    def send_bytes(self, topic: str, value: bytes | None, key: bytes | None = None) -> None:
        """`value` None: the record deletes the key."""
        self._producer.produce(self.prefix + topic, value, key)

    def into_lake(self, spark: SparkSession, lake: Lake | None = None, *, forget: bool = True) -> Lake:
        """All events so far go into a lake, and out of their topics, as after their time there, unless these are to keep them."""
        tables = renamed(tuple(one for one in TABLES if set(one.topics) <= {BEHAVIOUR, PROFILE, DELIVERY}), self.prefix)
        names = [topic for table in tables for topic in table.topics]
        lake = lake or Lake(spark, f"n{uuid.uuid4().hex[:10]}")
        url = self.stack.registry_url
        written = LakeWriter(lake, tables, Source(Registry(url), url)).write(kafka_past(spark, self.stack.brokers, names))
        assert all(written[table.name] > 10 for table in tables)
        ends = [TopicPartition(name, 0, lake.position(table.name)[name, 0]) for table in tables for name in table.topics]
        for future in self._admin.delete_records(ends).values() if forget else ():
            future.result()
        return lake

    def forget(self, topic: str, end: int) -> None:
        """Delete the records of a topic before an offset, as after their time there."""
        for future in self._admin.delete_records([TopicPartition(self.prefix + topic, 0, end)]).values():
            future.result()

    def read(self, topic: str, first: int, until: int) -> list[tuple[bytes, bytes]]:
        """Keys and values from the one offset up to and without the other."""
        consumer = Consumer(consumer_config(self.stack.brokers, "tests"))
        try:
            consumer.assign([TopicPartition(self.prefix + topic, 0, first)])
            found: list[tuple[bytes, bytes]] = []
            while len(found) < until - first:
                message = consumer.poll(10)
                assert message is not None, f"{len(found)} of {until - first} records"
                assert message.error() is None
                found.append((message.key() or b"", message.value() or b""))
            return found
        finally:
            consumer.close()

    def flush(self) -> None:
        assert self._producer.flush(30) == 0
