"""What is in the topics: every committed record, read once, in the order of its partition."""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from starling_common.kafka.clients import consumer_config


class Logged(NamedTuple):
    """A committed record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes


def read_all(brokers: str, topics: Sequence[str]) -> dict[str, dict[int, list[Logged]]]:
    """Topic -> partition -> its committed records. What is written meanwhile may be missing."""
    consumer = Consumer(consumer_config(brokers, f"read-{uuid.uuid4().hex}", **{"enable.partition.eof": True}))
    try:
        counts = {topic: len(consumer.list_topics(topic, timeout=30).topics[topic].partitions) for topic in topics}
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for topic, count in counts.items() for n in range(count)])
        found: dict[str, dict[int, list[Logged]]] = {topic: {n: [] for n in range(count)} for topic, count in counts.items()}
        waiting = sum(counts.values())
        while waiting:
            for message in consumer.consume(5000, 0.1):
                error = message.error()
                topic, partition = message.topic() or "", message.partition() or 0
                if error is None:
                    place = topic, partition, message.offset() or 0
                    found[topic][partition].append(
                        Logged(*place, message.timestamp()[1], message.key() or b"", message.value() or b"")
                    )
                elif error.name() == "_PARTITION_EOF":
                    waiting -= 1
                elif not error.retriable():
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def lag(brokers: str, group: str, topics: Sequence[str], partitions: int) -> int:
    """Records (and markers) that the group has not committed yet."""
    # A consumer of committed records would wait until no transaction holds offsets of the group: under load, until its timeout.
    consumer = Consumer(consumer_config(brokers, group, log_level=2, **{"isolation.level": "read_uncommitted"}))
    try:
        parts = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        committed = consumer.committed(parts, timeout=10)
        ends = [consumer.get_watermark_offsets(part, timeout=10, cached=False) for part in parts]
        return sum(end[1] - max(0, at.offset) for at, end in zip(committed, ends, strict=True) if end is not None)
    finally:
        consumer.close()
