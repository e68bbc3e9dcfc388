"""Adapter: how producers and consumers are set up everywhere, and a view of a small topic kept in memory."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from starling_common.headers import Headers
from starling_common.logs import log
from starling_common.topics import MAX_RECORD_BYTES

_NO_LEADER_YET: Final = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_AGAIN_SECONDS: Final = 0.25


class BrokerUnavailable(Exception):
    """The broker did not take or give what was asked; the same call may work later."""


def producer_config(brokers: str, **more: Any) -> dict[str, Any]:
    """acks=all, idempotent, lz4, and the partitioner that the JVM clients and aiokafka use (murmur2).

    How large a record may be is the topic's to say; batches of several stay below a megabyte.
    """
    return {
        "bootstrap.servers": brokers,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        "message.max.bytes": MAX_RECORD_BYTES,
        "batch.size": 1_000_000,
    } | more


def consumer_config(brokers: str, group: str, **more: Any) -> dict[str, Any]:
    """Reads only committed records, from the start when the group is new; offsets are committed by hand, after the effect."""
    return {
        "bootstrap.servers": brokers,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
    } | more


def produce_and_wait(producer: Producer, topic: str, *, key: bytes, value: bytes, headers: Headers) -> None:
    """Write one record and return once every in-sync replica has it. Not for the hot path.

    Raises: BrokerUnavailable.
    """
    failure: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failure.append(error)

    producer.produce(topic, value, key, on_delivery=delivered, headers=headers)
    if producer.flush(30) > 0:
        raise BrokerUnavailable(f"{topic}: the broker did not acknowledge within 30 s")
    if failure:
        raise BrokerUnavailable(f"{topic}: {failure[0].str()}")


def watermarks(consumer: Consumer, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int]:
    """The first offset that a partition still has, and the one after its last, asked of the broker.

    While the brokers choose a leader it is asked again, until the time is over. Raises: KafkaException, of time too.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = max(_AGAIN_SECONDS, deadline - time.monotonic())
        try:
            found: Any = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=left, cached=False)
        except KafkaException as cause:
            if cause.args[0].code() not in _NO_LEADER_YET or time.monotonic() + _AGAIN_SECONDS > deadline:
                raise
            log(__name__).warning("no_leader_yet", topic=topic, partition=partition, error=cause.args[0].str())
            time.sleep(_AGAIN_SECONDS)
            continue
        if found is None:  # so its documentation says of a time-out; whenever it was tried it raised
            told = f"no answer about partition {partition} of {topic} within {timeout_seconds:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, told))  # noqa: SLF001 - the library's public constant
        low, high = found
        return low, high


class TopicView:
    """Reads a whole topic, from its first record on, in a thread of its own, and hands each record to `apply`.

    For master data and definitions that every worker needs whole. `apply` runs in the reading thread, in the order
    of offsets a partition; an error in it stops the view, and `problem()` says so.
    """

    def __init__(self, brokers: str, topic: str, apply: Callable[[Message], None]) -> None:
        """Opens nothing; `start` does."""
        self.topic = topic
        self._brokers = brokers
        self._apply = apply
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._positions: dict[int, int] = {}
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"view-{topic}", daemon=True)

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Begin, and return once everything that was in the topic has been applied.

        Raises: BrokerUnavailable when that takes longer than the time-out or the view broke.
        """
        self._thread.start()
        if not self.wait_until_current(timeout_seconds):
            raise BrokerUnavailable(f"{self.topic} could not be read to its end: {self._problem or 'timed out'}")

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(timeout=10)

    def problem(self) -> str | None:
        """What broke the view, or None while it follows its topic."""
        return self._problem

    def wait_until_current(self, timeout_seconds: float) -> bool:
        """True once everything that is in the topic now has been applied."""
        deadline = time.monotonic() + timeout_seconds
        ends = self._end_offsets(timeout_seconds)
        with self._moved:
            return self._moved.wait_for(lambda: self._reached(ends), max(0.0, deadline - time.monotonic())) and not self._problem

    def wait_for(self, partition: int, offset: int, timeout_seconds: float) -> bool:
        """True once the record at that offset has been applied: read your own write."""
        with self._moved:
            return self._moved.wait_for(lambda: self._reached({partition: offset + 1}), timeout_seconds) and not self._problem

    def positions(self) -> dict[int, int]:
        """Partition -> offset of the next record to apply; partitions of which nothing was read yet are absent."""
        with self._moved:
            return dict(self._positions)

    def _reached(self, ends: dict[int, int]) -> bool:
        return self._problem is not None or all(self._positions.get(number, 0) >= end for number, end in ends.items())

    def _end_offsets(self, timeout_seconds: float) -> dict[int, int]:
        consumer = Consumer(consumer_config(self._brokers, f"view-{self.topic}"))
        try:
            numbers = _partitions(consumer, self.topic, timeout_seconds)
            spans = {n: watermarks(consumer, self.topic, n, timeout_seconds) for n in numbers}
            return {n: high for n, (low, high) in spans.items() if high > low}
        except KafkaException as cause:
            raise BrokerUnavailable(f"{self.topic}: {cause}") from cause
        finally:
            consumer.close()

    def _run(self) -> None:
        consumer = Consumer(consumer_config(self._brokers, f"view-{self.topic}", **{"enable.partition.eof": True}))
        try:
            numbers = _partitions(consumer, self.topic, 30)
            consumer.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in numbers])
            while not self._stopping.is_set():
                # `consume` alone would wait for 500 records or the whole time, and a definition is one.
                first = consumer.poll(0.2)
                for message in [] if first is None else [first, *consumer.consume(499, 0)]:
                    self._take(message)
        except Exception as cause:  # noqa: BLE001 - whatever broke the thread must be told to those who wait for it
            log(__name__).exception("view_broke", topic=self.topic)
            with self._moved:
                self._problem = f"{type(cause).__name__}: {cause}"
                self._moved.notify_all()
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
            if error.fatal():
                raise KafkaException(error)
            return  # the client reconnects by itself
        if error is None:
            self._apply(message)
        with self._moved:
            # At the end of a partition the offset is that of the next record, beyond any transaction markers.
            self._positions[message.partition() or 0] = (message.offset() or 0) + (1 if error is None else 0)
            self._moved.notify_all()


def _partitions(consumer: Consumer, topic: str, timeout_seconds: float) -> list[int]:
    found = consumer.list_topics(topic, timeout=timeout_seconds).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)
