"""Adapter: how far a job is, as offsets of a consumer group, which is where lag is looked up.

Spark keeps its own positions in the checkpoint and reads by those; the group is told afterwards, for others to see.
"""

import json
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka import consumer_config

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) -> the first offset that is not done."""

_TIMEOUT_SECONDS = 10.0


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

    def tell(self, ends: Ends) -> None:
        """Returns when the broker has it. Raises: KafkaException."""
        news = {place: offset for place, offset in ends.items() if self._told.get(place) != offset}
        if news:
            offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in news.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._told.update(news)

    def ends(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """The ends of all partitions, the empty ones too. Raises: KafkaException, KeyError for a topic that is not there."""
        ends: dict[tuple[str, int], int] = {}
        for topic in topics:
            for number in self._consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic].partitions:
                span = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_TIMEOUT_SECONDS)
                ends[topic, number] = 0 if span is None or span[1] == span[0] else span[1]
        return ends

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
