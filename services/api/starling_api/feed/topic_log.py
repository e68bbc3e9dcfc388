"""Adapter: reads a topic from given offsets with a pool of consumers. Thread-safe."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_api.feed.changes import FeedStep, Span, Wanted
from starling_api.http.errors import CursorExpired
from starling_common.kafka.clients import PARTITION_EOF, BrokerUnavailable, consumer_config, offsets, partitions_of
from starling_common.telemetry.logs import log
from starling_common.wire import Codec, DecodeError, Record, Registry

_NO_ANSWER_SECONDS: Final = 10.0
_GROUP: Final = "starling-api"
"""The client library requires a group id. The consumers neither join the group nor commit."""

_MOST_IDLE: Final = 4
_QUEUED_KB: Final = 256
"""Prefetch buffer of each partition. It is small: a page discards the records beyond its limit, and each stream has a buffer."""

_BACKOFF_MS: Final = 20
"""Pause of a partition with a full buffer. It survives a new assignment, so the default of a second would delay the next page."""

_RESET: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - the library's public constant


class TopicFollower:
    """One consumer and its codec. Not thread-safe."""

    def __init__(self, consumer: Consumer, topic: str, codec: Codec) -> None:
        self.consumer = consumer
        self._topic = topic
        self._codec = codec
        self._wanted: Wanted

    def begin(self, wanted: Wanted, start: Mapping[int, int]) -> None:
        """Assign the partitions in `start` at their offsets."""
        self._wanted = wanted
        self.consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in start.items()])

    def take(self, most: int, wait_seconds: float) -> Sequence[FeedStep]:
        """Wait for one record and return it with the buffered ones. Raises: CursorExpired, KafkaException, RegistryUnavailable."""
        first = self.consumer.poll(wait_seconds)
        found = [] if first is None else [first, *self.consumer.consume(most - 1, 0)]
        return [step for message in found if (step := self._step(message)) is not None]

    def _step(self, message: Message) -> FeedStep | None:
        error = message.error()
        partition, offset = message.partition() or 0, message.offset() or 0
        if error is None:
            return FeedStep(partition, offset + 1, self._record(message))
        if error.code() == PARTITION_EOF:
            # The position at the end of a partition lies after the control records of transactions.
            return FeedStep(partition, offset, None)
        if error.code() == _RESET:
            raise CursorExpired("the records after this cursor have been deleted: start again without a cursor")
        if error.fatal():
            raise KafkaException(error)
        return None  # the client reconnects automatically

    def _record(self, message: Message) -> Record | None:
        value = message.value() or b""
        if not self._wanted(message.key() or b"", value):
            return None
        try:
            return self._codec.decode(value)
        except DecodeError as error:
            origin = (message.topic(), message.partition(), message.offset())
            log(__name__).warning("record_unreadable", origin=origin, code=error.code, reason=str(error))
            return None


class TopicLog:
    """The committed records of a topic. Each reader has its own position; there is no consumer group."""

    def __init__(self, brokers: str, registry: Registry, topic: str, schema: str) -> None:
        """`schema`: the name of the records' schema. Connects at the first call."""
        self._topic = topic
        self._schema = schema
        more = {
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": _QUEUED_KB,
            "fetch.message.max.bytes": _QUEUED_KB * 1024,
            "fetch.queue.backoff.ms": _BACKOFF_MS,
        }
        self._config = consumer_config(brokers, _GROUP, **more, **{"fetch.wait.max.ms": 100, "log_level": 0})
        self._registry = registry
        self._lock = threading.Lock()
        self._idle: list[TopicFollower] = []
        self._offsets_consumer: Consumer | None = None
        self._numbers: tuple[int, ...] = ()

    def spans(self) -> Sequence[Span]:
        """Return the offsets of every partition from the broker. Raises: BrokerUnavailable."""
        with self._asking() as (consumer, numbers):
            parts = [(self._topic, number) for number in numbers]
            firsts = offsets(consumer, parts, OFFSET_BEGINNING, _NO_ANSWER_SECONDS)
            ends = offsets(consumer, parts, OFFSET_END, _NO_ANSWER_SECONDS)
        return [Span(firsts[part], ends[part]) for part in parts]

    def offsets_at(self, instant_ms: int) -> Sequence[int | None]:
        """Return for every partition the offset of its first record with that timestamp or a later one; None if it has none.

        `instant_ms`: from 1970. Raises: BrokerUnavailable.
        """
        with self._asking() as (consumer, numbers):
            wanted = [TopicPartition(self._topic, number, instant_ms) for number in numbers]
            found = consumer.offsets_for_times(wanted, timeout=_NO_ANSWER_SECONDS)
        return [one.offset if one.offset >= 0 else None for one in sorted(found, key=lambda one: one.partition)]

    @contextmanager
    def _asking(self) -> Iterator[tuple[Consumer, Sequence[int]]]:
        """Provide the consumer for offsets, and the partitions. Raises: BrokerUnavailable."""
        try:
            yield self._opened()
        except KafkaException as cause:
            with self._lock:  # the next call opens a new client, in case only this one gets no answer
                self._offsets_consumer = None
            raise BrokerUnavailable(f"{self._topic}: {cause}") from cause

    @contextmanager
    def reading(self, wanted: Wanted, start: Mapping[int, int]) -> Iterator[TopicFollower]:
        """Provide a follower from the pool. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        follower = self._take()
        try:
            follower.begin(wanted, start)
            yield follower
            follower.consumer.unassign()
        except KafkaException as cause:
            follower.consumer.close()
            raise BrokerUnavailable(f"{self._topic}: {cause}") from cause
        except BaseException:
            follower.consumer.close()
            raise
        self._return(follower)

    def close(self) -> None:
        """Close the pooled consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
            offsets_consumer, self._offsets_consumer = self._offsets_consumer, None
        for consumer in (*(follower.consumer for follower in idle), *([offsets_consumer] if offsets_consumer else [])):
            consumer.close()

    def _take(self) -> TopicFollower:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        codec = self._registry.codec(self._topic, self._schema)
        return TopicFollower(Consumer(self._config), self._topic, codec)

    def _return(self, follower: TopicFollower) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(follower)
                return
        follower.consumer.close()

    def _opened(self) -> tuple[Consumer, Sequence[int]]:
        with self._lock:
            if self._offsets_consumer is None:
                self._offsets_consumer = Consumer(self._config)
            if not self._numbers:
                self._numbers = tuple(partitions_of(self._offsets_consumer, self._topic, _NO_ANSWER_SECONDS))
            return self._offsets_consumer, self._numbers
