"""Adapter: the positions of the segmenter, and the number of past records before them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import committed, consumer_config, watermarks
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import PROGRESS
from starling_common.wire import Codec

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cut:
    """One partition as the segmenter has processed it. `first`: topic -> the first offset that is left."""

    partition: int
    inputs: Mapping[str, int]
    first: Mapping[str, int]
    stream_time_ms: int

    def records(self, topics: Iterable[str], since: Mapping[str, int] | None = None) -> int:
        """Return the number of records of these topics from `since` on and before the cut, transaction markers included."""
        first = self.first if since is None else since
        return sum(max(0, self.inputs.get(topic, 0) - first.get(topic, 0)) for topic in topics)


def cuts(brokers: str, group: str, topics: Iterable[str], progress: Codec) -> list[Cut]:
    """Return the cut of every partition. The segmenter never reads committed records again, so a later switch includes them.

    Raises: KafkaException, BrokerUnavailable.
    """
    stream_times = _stream_times(brokers, progress)  # first: they may then be older than the positions, never newer
    names = list(topics)
    # The last committed offsets are read, not the stable ones: an open transaction would delay the response.
    consumer = Consumer(consumer_config(brokers, group, **{"isolation.level": "read_uncommitted"}))
    try:
        partitions = sorted(consumer.list_topics(names[0], timeout=_TIMEOUT_SECONDS).topics[names[0]].partitions)
        places = [TopicPartition(topic, number) for topic in names for number in partitions]
        inputs: dict[int, dict[str, int]] = {number: {} for number in partitions}
        for found in committed(consumer, places, _TIMEOUT_SECONDS):
            inputs[found.partition][found.topic] = max(0, found.offset)
        return [Cut(number, inputs[number], _first(consumer, names, number), stream_times.get(number, 0)) for number in partitions]
    finally:
        consumer.close()


def first_left(brokers: str, topics: Mapping[str, str], partition: int) -> dict[str, int]:
    """The first offset that each topic has still of a partition. `topics`: name -> as it is called here. Raises: KafkaException."""
    consumer = Consumer(consumer_config(brokers, "starling-backfill"))
    try:
        found = _first(consumer, topics.values(), partition)
    finally:
        consumer.close()
    return {name: found[called] for name, called in topics.items()}


def _first(consumer: Consumer, topics: Iterable[str], number: int) -> dict[str, int]:
    return {topic: watermarks(consumer, topic, number, _TIMEOUT_SECONDS)[0] for topic in topics}


def _stream_times(brokers: str, codec: Codec) -> dict[int, int]:
    records = (codec.decode(message.value() or b"") for message in read_topic(brokers, PROGRESS))
    return {record["partition"]: record["stream_time"] for record in records}
