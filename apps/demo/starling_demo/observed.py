"""Adapter: reads the membership feed from the broker."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from starling_common.kafka import consumer_config
from starling_common.topics import MEMBERSHIP, load_catalogue
from starling_common.wire import Registry
from starling_demo.expected import Changes


@dataclass
class Feed:
    """The whole feed. Shape: `errors` describes records whose sequence or status does not follow the previous one."""

    changes: dict[str, Changes] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    causes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    errors: list[str] = field(default_factory=list)
    records: int = 0

    def take(self, record: dict[str, Any]) -> None:
        """Add one record; records of a partition are added in order."""
        changes = self.changes[record["segment_key"]][record["user_id"]]
        status, sequence = record["status"], record["sequence"]
        if sequence != len(changes) + 1 or (status == "ENTERED") != (sequence % 2 == 1):
            self.errors.append(f"{record['user_id']} in {record['segment_key']}: {status} with sequence {sequence}")
        changes.append((status, record["effective_at"]))
        self.causes[record["cause"]["kind"]] += 1
        self.records += 1


def read_feed(brokers: str, registry_url: str) -> Feed:
    """Return all committed membership records."""
    codec = Registry(registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged")
    consumer = Consumer(consumer_config(brokers, "starling-demo-reader", **{"enable.partition.eof": True}))
    feed, open_partitions = Feed(), set(range(load_catalogue().profile_partitions))
    try:
        consumer.assign([TopicPartition(MEMBERSHIP, number, OFFSET_BEGINNING) for number in open_partitions])
        while open_partitions:
            for message in consumer.consume(2000, 0.1):
                error = message.error()
                if error is None:
                    feed.take(codec.decode(message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return feed
