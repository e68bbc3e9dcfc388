"""Adapter: the values that earlier queries published, read from their topic."""

from collections.abc import Mapping

from confluent_kafka import Message

from starling_common.headers import header, headers_of
from starling_common.kafka.topic_range import range_consumer, read_range, spans
from starling_common.wire import Codec, DecodeError
from starling_rules.sql.runs import PRODUCED_BY
from starling_spark.jobs.profiles.query.transform import Topics

Spans = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> the first offset, and the one after the last."""

_TIMEOUT_SECONDS = 10.0
_LAST_OFFSETS = 100
"""Last offsets of a partition to read: enough to find a record despite compaction and transaction markers."""


class Published:
    """Reads offsets and a few records, when a query starts."""

    def __init__(self, brokers: str, topics: Topics, codec: Codec) -> None:
        """`codec`: the codec of the values."""
        self._consumer = range_consumer(brokers, "profiles-published")
        self._topics = topics
        self._codec = codec

    def stream_times(self) -> dict[int, int]:
        """Return by partition the latest `as_of` of its last values, in ms. Raises: KafkaException, BrokerUnavailable."""
        found = self._spans(self._topics.aggregates)
        starts = {place: max(first, end - _LAST_OFFSETS) for place, (first, end) in found.items()}
        latest: dict[int, int] = {}
        for messages in read_range(self._consumer, starts, silence_seconds=_TIMEOUT_SECONDS):
            for message in messages:
                partition = message.partition() or 0
                latest[partition] = max(latest.get(partition, 0), self._as_of(message))
        return latest

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

    def events(self) -> Spans:
        """Return the spans of the events that the topic has. Raises: KafkaException."""
        return self._spans(self._topics.events)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _spans(self, topic: str) -> Spans:
        return spans(self._consumer, topic, _TIMEOUT_SECONDS)

    def _as_of(self, message: Message) -> int:
        # The time of a run of SQL is no stream time of this partition.
        if header(headers_of(message), "produced_by") == PRODUCED_BY:
            return 0
        try:
            return int(self._codec.decode(message.value() or b"")["as_of"])
        except DecodeError:  # written by another producer; the normalizer refuses it
            return 0
