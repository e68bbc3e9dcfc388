"""Adapter: the position of a job as committed offsets of a consumer group, from which lag is computed.

Spark reads by the positions in its own checkpoint. The offsets are committed afterwards, for monitoring.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import committed, consumer_config, partitions_of
from starling_common.kafka.topic_range import spans

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) -> the first offset that is not done."""

_TIMEOUT_SECONDS = 10.0
_COORDINATOR_SECONDS = 60.0
"""A broker that has just started finds the coordinators of its groups a little later."""


def end_offsets(progress: str) -> dict[tuple[str, int], int]:
    """Return the offsets that a query has reached in its Kafka sources. `progress` is Spark's JSON."""
    ends: dict[tuple[str, int], int] = {}
    for source in json.loads(progress)["sources"]:
        if isinstance(source["endOffset"], dict):
            for topic, parts in source["endOffset"].items():
                if isinstance(parts, dict):  # a source of files has {"logOffset": number}
                    ends.update({(topic, int(number)): offset for number, offset in parts.items()})
    return ends


class GroupOffsets:
    """The consumer group of a job; it has no members."""

    def __init__(self, brokers: str, group: str) -> None:
        self._consumer = Consumer(consumer_config(brokers, group))
        self._committed: dict[tuple[str, int], tuple[int, str]] = {}

    def load(self, topics: Sequence[str]) -> Mapping[tuple[str, int], str]:
        """Read the committed offsets; return the metadata of each one that has some. Raises: KafkaException."""
        wanted = [TopicPartition(topic, number) for topic in topics for number in self._partitions(topic)]
        found = committed(self._consumer, wanted, _COORDINATOR_SECONDS)
        self._committed.update({(one.topic, one.partition): (one.offset, one.metadata or "") for one in found if one.offset >= 0})
        return {(one.topic, one.partition): one.metadata for one in found if one.metadata}

    def commit(self, ends: Ends, notes: Mapping[tuple[str, int], str] = MappingProxyType({})) -> None:
        """Commit offsets which changed or have other `notes`; return once the broker has them. Raises: KafkaException."""
        wanted = {place: (offset, notes.get(place, "")) for place, offset in ends.items()}
        changed = {place: position for place, position in wanted.items() if self._differs(place, position)}
        if changed:
            offsets = [TopicPartition(*place, offset, note) for place, (offset, note) in changed.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._committed.update(changed)

    def _differs(self, place: tuple[str, int], position: tuple[int, str]) -> bool:
        offset, note = self._committed.get(place, (None, ""))
        return offset != position[0] or (bool(position[1]) and note != position[1])

    def ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Return the end of each partition, 0 for an empty one. Raises: KafkaException, also for a missing topic."""
        ends: dict[tuple[str, int], int] = {}
        for topic in topics:
            for place, (low, high) in spans(self._consumer, topic, _TIMEOUT_SECONDS).items():
                ends[place] = 0 if high == low else high
        return ends

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _partitions(self, topic: str) -> list[int]:
        return partitions_of(self._consumer, topic, _TIMEOUT_SECONDS)
