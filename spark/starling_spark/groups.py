"""Adapter: how far a job is, as offsets of a consumer group, which is where lag is looked up.

Spark keeps its own positions in the checkpoint and reads by those; the group is told afterwards, for others to see.
"""

import json
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka import consumer_config

Ends = Mapping[tuple[str, int], int]
"""(topic, partition) -> the first offset that is not done."""


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

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
