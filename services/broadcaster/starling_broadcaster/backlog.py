"""Adapter: offsets at the broker: the queues behind a broadcast, of consumer groups that this process never joins."""

from collections.abc import Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from starling_broadcaster.pace import Queue
from starling_common.kafka.clients import BrokerUnavailable, committed, consumer_config, offsets, partitions_of
from starling_common.kafka.topics import BROADCASTS, DELIVERY_DEFINITIONS, bulk_topic, request_topic, stage

_ANSWER_SECONDS: Final = 5.0
_MESSENGER: Final = "messenger"
_CHANNELS: Final = "email"


class Backlogs:
    """Every method may raise BrokerUnavailable."""

    def __init__(self, brokers: str) -> None:
        """Open no connection; the first request does."""
        self._brokers = brokers
        self._consumers: dict[str, Consumer] = {}

    def messenger(self) -> Queue:
        """Return the queue of listed members before the messenger."""
        return self._queue(stage(_MESSENGER).group, [BROADCASTS])

    def channel(self, channel: str) -> Queue:
        """Return the queue of requests before a channel of campaigns. One consumer group serves all of them."""
        return self._queue(stage(_CHANNELS).group, [request_topic(channel), bulk_topic(channel)])

    def definitions_end(self) -> int:
        """Return the offset after the last record of `delivery.definitions`."""
        try:
            found = offsets(self._of_group(stage(_MESSENGER).group), [(DELIVERY_DEFINITIONS, 0)], OFFSET_END, _ANSWER_SECONDS)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the end of {DELIVERY_DEFINITIONS} could not be read: {cause.args[0].str()}") from cause
        return found[DELIVERY_DEFINITIONS, 0]

    def close(self) -> None:
        """Close the connections."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _queue(self, group: str, topics: Iterable[str]) -> Queue:
        consumer = self._of_group(group)
        try:
            places = [
                TopicPartition(topic, number) for topic in topics for number in partitions_of(consumer, topic, _ANSWER_SECONDS)
            ]
            known = {(one.topic, one.partition): one.offset for one in committed(consumer, places, _ANSWER_SECONDS)}
            starts = offsets(consumer, [place for place, offset in known.items() if offset < 0], OFFSET_BEGINNING, _ANSWER_SECONDS)
            known |= starts
            ends = offsets(consumer, known, OFFSET_END, _ANSWER_SECONDS)
        except KafkaException as cause:
            raise BrokerUnavailable(f"the offsets of {group} could not be read: {cause.args[0].str()}") from cause
        # The last offset of a partition is the marker of a transaction, which no group commits.
        return Queue(sum(known.values()), sum(max(0, ends[place] - offset - 1) for place, offset in known.items()))

    def _of_group(self, group: str) -> Consumer:
        if group not in self._consumers:
            # A consumer of committed records would wait until no transaction holds offsets of the group.
            more = {"isolation.level": "read_uncommitted", "log_level": 3}
            self._consumers[group] = Consumer(consumer_config(self._brokers, group, **more))
        return self._consumers[group]
