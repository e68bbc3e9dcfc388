"""Adapter: the past records of one partition, read from the broker by one task."""

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
    """The broker deleted records after the assignment was made; the next start reads them from the lake."""


class PastReader:
    """Reads past records. `on_read` is called with the number of records of each batch. `mine`: whether a key is of this slice."""

    def __init__(
        self,
        brokers: str,
        decode: Callable[[str, bytes], Decoded],
        on_read: Callable[[int], None],
        mine: Callable[[bytes], bool] | None = None,
        prefix: str = "",
    ) -> None:
        """`prefix`: of the topic names, for installations that share a broker."""
        self._brokers = brokers
        self._prefix = prefix
        self._decode = decode
        self._on_read = on_read
        self._mine = mine

    def records(self, topic: str, partition: int, first: int, until: int, *, is_there: bool = False) -> Iterator[Inbound]:
        """Yield records from `first`, or the first available one, to before `until`. Unreadable ones, refused live, are skipped.

        `is_there`: the records existed when the assignment was made; PastGone reports their deletion.
        Raises: KafkaException; PastGone.
        """
        if until <= first:
            return
        more = {"enable.partition.eof": True, "fetch.wait.max.ms": 50, "fetch.message.max.bytes": 4 * 1024 * 1024}
        consumer = Consumer(consumer_config(self._brokers, "starling-backfill", **more))
        try:
            source = TopicPartition(self._prefix + topic, partition, first or OFFSET_BEGINNING)
            # The request makes the client find the partition's leader, which otherwise takes half a second longer.
            begins, _ = watermarks(consumer, source.topic, partition, _TIMEOUT_SECONDS)
            if is_there and begins > first:
                raise PastGone(f"{source.topic} {partition} starts at {begins}, after {first}: restart the job to read the lake")
            consumer.assign([source])
            position = 0
            while position < until:
                messages, position = _batch(consumer, position)
                yield from self._decoded(topic, partition, messages, until)
                self._on_read(sum((message.offset() or 0) < until for message in messages))
        finally:
            consumer.close()

    def _decoded(self, topic: str, partition: int, messages: list[Message], until: int) -> Iterator[Inbound]:
        # Hot: runs for each past record.
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
                value = None  # advances stream time; another slice folds it
            yield _new(Inbound, (topic, partition, offset, key, value, received_at, event_time_ms, (), b""))


def _batch(consumer: Consumer, position: int) -> tuple[list[Message], int]:
    messages: list[Message] = []
    # `consume` alone waits for a full batch or the whole timeout.
    first = consumer.poll(_POLL_SECONDS)
    for message in [] if first is None else [first, *consumer.consume(_BATCH, 0)]:
        error = message.error()
        if error is None:
            messages.append(message)
            position = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
            position = max(position, message.offset() or 0)  # includes transaction markers after the last record
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return messages, position
