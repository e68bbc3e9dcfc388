"""Adapter: the values that earlier queries published, read from their topic."""

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka import BrokerUnavailable, consumer_config, watermarks
from starling_common.wire import Codec, DecodeError
from starling_spark.jobs.profiles.transform import Topics

Spans = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> the first offset, and the one after the last."""

_TIMEOUT_SECONDS = 10.0
_LAST_OFFSETS = 100
"""Last offsets of a partition to read: enough to find a record despite compaction and transaction markers."""


class Published:
    """Reads offsets and a few records, when a query starts."""

    def __init__(self, brokers: str, topics: Topics, codec: Codec) -> None:
        """`codec`: the codec of the values."""
        self._consumer = Consumer(consumer_config(brokers, "profiles-published", **{"enable.partition.eof": True}))
        self._topics = topics
        self._codec = codec

    def stream_times(self) -> dict[int, int]:
        """Return by partition the latest `as_of` of its last values, in ms. Raises: KafkaException, BrokerUnavailable."""
        assigned = [
            TopicPartition(topic, partition, max(first, end - _LAST_OFFSETS))
            for (topic, partition), (first, end) in self._spans(self._topics.aggregates).items()
            if end > first
        ]
        self._consumer.assign(assigned)
        try:
            return self._latest({one.partition for one in assigned})
        finally:
            self._consumer.unassign()

    def without_events(self) -> Spans:
        """Return the spans of the values in partitions whose oldest events are deleted; a re-read misses users there.

        Raises: KafkaException.
        """
        deleted = {partition for (_, partition), (first, _) in self._spans(self._topics.events).items() if first > 0}
        return {
            partition: (first, end)
            for partition, (first, end) in self._spans(self._topics.aggregates).items()
            if partition[1] in deleted and end > first
        }

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _spans(self, topic: str) -> Spans:
        partitions = self._consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic].partitions
        return {(topic, number): watermarks(self._consumer, topic, number, _TIMEOUT_SECONDS) for number in partitions}

    def _latest(self, unread: set[int]) -> dict[int, int]:
        latest: dict[int, int] = {}
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while unread:
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"{self._topics.aggregates}: the last values were not read within {_TIMEOUT_SECONDS:g} s")
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            partition, error = message.partition() or 0, message.error()
            if error is None:
                latest[partition] = max(latest.get(partition, 0), self._as_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
                unread.discard(partition)
            elif error.fatal():
                raise KafkaException(error)
        return latest

    def _as_of(self, message: Message) -> int:
        try:
            return int(self._codec.decode(message.value() or b"")["as_of"])
        except DecodeError:  # written by another producer; the normalizer refuses it
            return 0
