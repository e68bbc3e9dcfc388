"""Adapter: how far a job is, as offsets of a consumer group, which is where lag is looked up.

Spark keeps its own positions in the checkpoint and reads by those; the group is told afterwards, for others to see.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka import committed, consumer_config, watermarks

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) -> the first offset that is not done."""

_TIMEOUT_SECONDS = 10.0
_COORDINATOR_SECONDS = 60.0
"""A broker that has just begun finds its groups' coordinators a little later."""


def end_offsets(progress: str) -> dict[tuple[str, int], int]:
    """The offsets that a query's progress (Spark's JSON) has reached in Kafka; of other sources it says nothing."""
    ends: dict[tuple[str, int], int] = {}
    for source in json.loads(progress)["sources"]:
        if isinstance(source["endOffset"], dict):
            for topic, parts in source["endOffset"].items():
                ends.update({(topic, int(number)): offset for number, offset in parts.items()})
    return ends


class GroupOffsets:
    """The consumer group of a job; it has no members."""

    def __init__(self, brokers: str, group: str) -> None:
        self._consumer = Consumer(consumer_config(brokers, group))
        self._told: dict[tuple[str, int], int] = {}

    def load(self, topics: Sequence[str]) -> Mapping[tuple[str, int], str]:
        """Ask the broker what it was told; gives the note that stands with each offset. Raises: KafkaException."""
        wanted = [TopicPartition(topic, number) for topic in topics for number in self._partitions(topic)]
        found = committed(self._consumer, wanted, _COORDINATOR_SECONDS)
        self._told.update({(one.topic, one.partition): one.offset for one in found if one.offset >= 0})
        return {(one.topic, one.partition): one.metadata for one in found if one.metadata}

    def tell(self, ends: Ends, notes: Mapping[tuple[str, int], str] = MappingProxyType({})) -> None:
        """Returns when the broker has it; `notes` go with the offsets that are new. Raises: KafkaException."""
        news = {place: offset for place, offset in ends.items() if self._told.get(place) != offset}
        if news:
            offsets = [TopicPartition(*place, offset, notes.get(place, "")) for place, offset in news.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._told.update(news)

    def ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """The ends of all partitions, 0 of an empty one. Raises: KafkaException, KeyError for a topic that is not there."""
        ends: dict[tuple[str, int], int] = {}
        for topic in topics:
            for number in self._partitions(topic):
                low, high = watermarks(self._consumer, topic, number, _TIMEOUT_SECONDS)
                ends[topic, number] = 0 if high == low else high
        return ends

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _partitions(self, topic: str) -> list[int]:
        return sorted(self._consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic].partitions)
