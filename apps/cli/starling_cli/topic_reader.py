"""Adapter: reads a small topic once, from its first record to its end."""

from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka import BrokerUnavailable, consumer_config

_TIMEOUT_SECONDS = 30.0
_GROUP = "starling-local-reader"
"""The client library requires a group; the consumer never joins it and never commits."""


def read_topic(brokers: str, topic: str) -> Iterator[Message]:
    """Yield every committed record, in order within a partition; none if the topic does not exist.

    Raises: BrokerUnavailable.
    """
    consumer = Consumer(consumer_config(brokers, _GROUP, **{"enable.partition.eof": True, "log_level": 0}))
    try:
        found = consumer.list_topics(timeout=_TIMEOUT_SECONDS).topics.get(topic)
        unfinished = set(found.partitions) if found else set()
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(unfinished)])
        while unfinished:
            message = consumer.poll(_TIMEOUT_SECONDS)
            if message is None:
                raise BrokerUnavailable(f"{topic}: the broker returned no records in time")
            if (error := message.error()) is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
                unfinished.discard(message.partition() or 0)
            else:
                raise BrokerUnavailable(f"{topic}: {error.str()}")
    except KafkaException as cause:
        raise BrokerUnavailable(f"{topic}: {cause.args[0].str()}") from cause
    finally:
        consumer.close()
