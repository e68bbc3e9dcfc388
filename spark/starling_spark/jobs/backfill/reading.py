"""Adapter: the past of one partition, read from the broker by one task."""

from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka import consumer_config, watermarks
from starling_common.topics import CLOCK
from starling_common.wire import DecodeError
from starling_stream.model.processor import Decoded, Inbound

_BATCH: Final = 10_000
_POLL_SECONDS: Final = 0.5
_TIMEOUT_SECONDS: Final = 30.0

_new = tuple.__new__


class PastGone(Exception):
    """The broker let go of what was to be read, after it was looked for: the next start takes it from the lake."""


class PastReader:
    """`told` is called with the number of records of each batch. `mine`: whether a key is of this slice."""

    def __init__(
        self,
        brokers: str,
        decode: Callable[[str, bytes], Decoded],
        told: Callable[[int], None],
        mine: Callable[[bytes], bool] | None = None,
        prefix: str = "",
    ) -> None:
        """`prefix`: before the topics' names, where installations share a broker."""
        self._brokers = brokers
        self._prefix = prefix
        self._decode = decode
        self._told = told
        self._mine = mine

    def records(self, topic: str, partition: int, first: int, until: int, *, is_there: bool = False) -> Iterator[Inbound]:
        """From `first`, or the first that is left, up to and without `until`; what cannot be decoded was refused when it came.

        `is_there`: all of that was there a moment ago.
        Raises: KafkaException; PastGone.
        """
        if until <= first:
            return
        more = {"enable.partition.eof": True, "fetch.wait.max.ms": 50, "fetch.message.max.bytes": 4 * 1024 * 1024}
        consumer = Consumer(consumer_config(self._brokers, "starling-backfill", **more))
        try:
            place = TopicPartition(self._prefix + topic, partition, first or OFFSET_BEGINNING)
            # Asked first, for the client then knows who leads the partition; else it finds that out half a second later.
            begins, _ = watermarks(consumer, place.topic, partition, _TIMEOUT_SECONDS)
            if is_there and begins > first:
                raise PastGone(f"{place.topic} of partition {partition} begins at {begins} now, and no longer at {first}")
            consumer.assign([place])
            position = 0
            while position < until:
                messages, position = _batch(consumer, position)
                yield from self._decoded(topic, partition, messages, until)
                self._told(sum((message.offset() or 0) < until for message in messages))
        finally:
            consumer.close()

    def _decoded(self, topic: str, partition: int, messages: list[Message], until: int) -> Iterator[Inbound]:
        # Hot: once for each record of the past.
        decode, mine, is_clock = self._decode, self._mine, topic == CLOCK
        for message in messages:
            offset, key = message.offset() or 0, message.key() or b""
            if offset >= until:
                return
            if not key and not is_clock:
                continue
            try:
                value, received_at, event_time_ms, own_key = decode(topic, message.value() or b"")
            except DecodeError:
                continue
            key = own_key or key
            if mine is not None and not mine(key):
                value = None  # it moves stream time, and is folded in another slice
            yield _new(Inbound, (topic, partition, offset, key, value, received_at, event_time_ms, (), b""))


def _batch(consumer: Consumer, position: int) -> tuple[list[Message], int]:
    messages: list[Message] = []
    # `consume` alone would wait for all of them or the whole time.
    first = consumer.poll(_POLL_SECONDS)
    for message in [] if first is None else [first, *consumer.consume(_BATCH, 0)]:
        error = message.error()
        if error is None:
            messages.append(message)
            position = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
            position = max(position, message.offset() or 0)  # beyond any markers, as the last record's own would not be
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return messages, position
