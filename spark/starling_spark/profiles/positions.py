"""Adapter: how far the job is, as offsets of its consumer group, which is where lag is looked up.

Spark keeps its own positions in the checkpoint and reads by those; the group is told afterwards, for others to see.
With each offset goes, as its metadata, the offset below which records were really read: while no trait is defined the
job passes records by unread, and must still dead-letter the broken ones when it reads them later, but each only once.
"""

import json
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka import consumer_config

Position = tuple[str, int]
"""(topic, partition)."""

_TIMEOUT_SECONDS = 10.0


def end_offsets(progress: str) -> dict[Position, int]:
    """The offsets that a query's progress (Spark's JSON) has reached in Kafka; of other sources it says nothing."""
    ends: dict[Position, int] = {}
    for source in json.loads(progress)["sources"]:
        if isinstance(source["endOffset"], dict):
            for topic, parts in source["endOffset"].items():
                ends.update({(topic, int(number)): offset for number, offset in parts.items()})
    return ends


class GroupPositions:
    """The consumer group of the job; it has no members."""

    def __init__(self, brokers: str, group: str) -> None:
        self._consumer = Consumer(consumer_config(brokers, group))
        self._read: dict[Position, int] = {}
        self._committed: dict[Position, int] = {}

    def load(self, topics: Iterable[str]) -> None:
        """Ask the broker what was committed. Raises: KafkaException."""
        wanted = [TopicPartition(topic, number) for topic in topics for number in self._partitions(topic)]
        for found in self._consumer.committed(wanted, timeout=_TIMEOUT_SECONDS):
            position = (found.topic, found.partition)
            self._committed[position] = max(0, found.offset)
            self._read[position] = _number(found.metadata)

    def read_up_to(self) -> Mapping[Position, int]:
        """Below these offsets records were read, and bad ones dead-lettered."""
        return dict(self._read)

    def ends(self, topics: Iterable[str]) -> dict[Position, int]:
        """The ends of all partitions that hold anything. Raises: KafkaException."""
        ends: dict[Position, int] = {}
        for topic in topics:
            for number in self._partitions(topic):
                span = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_TIMEOUT_SECONDS)
                if span is not None and span[1] > span[0]:
                    ends[topic, number] = span[1]
        return ends

    def commit(self, offsets: Mapping[Position, int], *, read: bool) -> None:
        """Tell the group; returns when the broker has it. `read`: not passed by. Raises: KafkaException."""
        news = {position: offset for position, offset in offsets.items() if self._committed.get(position, 0) != offset}
        if read:
            self._read.update({position: max(offset, self._read.get(position, 0)) for position, offset in offsets.items()})
        if not news:
            return
        self._consumer.commit(
            offsets=[
                TopicPartition(topic, number, offset, str(self._read.get((topic, number), 0)))
                for (topic, number), offset in news.items()
            ],
            asynchronous=False,
        )
        self._committed.update(news)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _partitions(self, topic: str) -> list[int]:
        return sorted(self._consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic].partitions)


def _number(metadata: str | None) -> int:
    return int(metadata) if metadata is not None and metadata.isdecimal() else 0
