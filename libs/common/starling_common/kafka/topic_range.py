"""Adapter: bounded reads of topics, from given offsets to given ends or to the ends as of now."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import (
    PARTITION_EOF,
    BrokerUnavailable,
    consumer_config,
    is_passing,
    offsets,
    partitions_of,
    watermarks,
)

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

_BATCH: Final = 10_000
_POLL_SECONDS: Final = 0.5


def range_consumer(brokers: str, group: str, **more: Any) -> Consumer:
    """Return a consumer for `read_range`. It never joins the group, whose name the client library requires."""
    return Consumer(consumer_config(brokers, group, **{"enable.partition.eof": True}, **more))


def spans(consumer: Consumer, topic: str, timeout_seconds: float) -> dict[Partition, tuple[int, int]]:
    """Return the log start offset and the end offset of each partition. Raises: KafkaException, also without such a topic."""
    numbers = partitions_of(consumer, topic, timeout_seconds)
    return {(topic, number): watermarks(consumer, topic, number, timeout_seconds) for number in numbers}


def read_range(
    consumer: Consumer, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None, silence_seconds: float = 30.0
) -> Iterator[list[Message]]:
    """Yield the records of each partition from its start to before its end, in batches; in order within a partition.

    `consumer` is one of `range_consumer`. `starts` are offsets or OFFSET_BEGINNING. `ends` None: the end offsets as of now, which
    for a committed reader are those before the first open transaction. After the last batch the consumer has no partition.
    Raises: KafkaException; BrokerUnavailable if nothing comes for `silence_seconds`.
    """
    if ends is None:
        ends = offsets(consumer, starts, OFFSET_END, silence_seconds)
    unread = {place: ends[place] for place, start in starts.items() if ends[place] > max(start, 0)}
    consumer.assign([TopicPartition(*place, starts[place]) for place in unread])
    deadline = time.monotonic() + silence_seconds
    while unread:
        # `consume` alone waits for a full batch or for the whole timeout.
        first = consumer.poll(_POLL_SECONDS)
        found = [] if first is None else [first, *consumer.consume(_BATCH - 1, 0)]
        messages = [message for message in found if _is_within(consumer, unread, message)]
        if messages:
            deadline = time.monotonic() + silence_seconds
            yield messages
        elif unread and time.monotonic() > deadline:
            places = ", ".join(f"{topic} {number}" for topic, number in sorted(unread))
            raise BrokerUnavailable(f"{places}: no records for {silence_seconds:g} s, before the end of the range")
    consumer.unassign()


def _is_within(consumer: Consumer, unread: dict[Partition, int], message: Message) -> bool:
    """Return whether a message is a record of the range, and remove its partition from `unread` at the end of the range."""
    place, offset, error = (message.topic() or "", message.partition() or 0), message.offset() or 0, message.error()
    if error is not None and error.code() != PARTITION_EOF:
        cause = KafkaException(error)
        if not error.retriable() and not is_passing(cause):
            raise cause
        return False
    end = unread.get(place)
    if end is None:
        return False
    # The offset of an end-of-partition event is that of the next record, after any transaction markers.
    if offset + (error is None) >= end:
        del unread[place]
        consumer.incremental_unassign([TopicPartition(*place)])
    return error is None and offset < end


def _present_partitions(consumer: Consumer, topic: str, timeout_seconds: float) -> list[int]:
    """Return the partitions of a topic; none without such a topic. Raises: KafkaException."""
    try:
        return partitions_of(consumer, topic, timeout_seconds)
    except KafkaException as cause:
        if cause.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise


def read_topic(brokers: str, topic: str, timeout_seconds: float = 30.0) -> Iterator[Message]:
    """Yield the records that a topic contains as of now, in order within a partition; none without such a topic.

    Raises: BrokerUnavailable, also if this user may not read the topic.
    """
    consumer = range_consumer(brokers, "starling-reader", log_level=0)
    try:
        starts = {(topic, number): OFFSET_BEGINNING for number in _present_partitions(consumer, topic, timeout_seconds)}
        for messages in read_range(consumer, starts, silence_seconds=timeout_seconds):
            yield from messages
    except KafkaException as cause:
        raise BrokerUnavailable(f"{topic}: {cause.args[0].str()}") from cause
    finally:
        consumer.close()
