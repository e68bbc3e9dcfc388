"""Adapter: the configuration of producers and consumers, and a view of a small topic."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from starling_common.failures import InstallationFailure
from starling_common.headers import Headers
from starling_common.kafka.security import connection_config
from starling_common.kafka.topics import MAX_RECORD_BYTES
from starling_common.retries import retrying
from starling_common.telemetry.logs import log

T = TypeVar("T")

_PASSING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors while a partition's leader or a group's coordinator changes, as after a restart of a broker. The client looks for the new
one, and a repeated request succeeds. `KafkaError.retriable()` is false for them: it is of transactions only."""
RECORD_REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError._INVALID_ARG,  # noqa: SLF001 - the library's public constant
    }
)
"""Errors of one record, which the broker or its client would refuse again."""
_LEAST_SECONDS: Final = 0.25
"""Timeout of a request that is sent shortly before the end of the whole timeout."""

_FULL_QUEUE_MS: Final = 20
_GATHERED_BYTES: Final = 65_536

PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's public constant
"""The code of an end-of-partition event, which the client reports as an error."""


class BrokerUnavailable(InstallationFailure):
    """The broker did not complete a request. The same call can succeed later."""


def producer_config(brokers: str, **more: Any) -> dict[str, Any]:
    """Return the configuration: acks=all, idempotent, lz4, and the partitioner of the JVM clients and aiokafka (murmur2).

    The topic limits the size of a record; a batch of several records stays below a megabyte.
    """
    return {
        **connection_config(brokers),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        "message.max.bytes": MAX_RECORD_BYTES,
        "batch.size": 1_000_000,
    } | more


def gathering_fetches(wait_ms: int) -> dict[str, Any]:
    """Return the options of a consumer whose fetches wait at the broker for 64 KiB, and not longer than that.

    With the default of one byte, a consumer of a busy topic fetches again at once, for a few records.
    """
    return {"fetch.min.bytes": _GATHERED_BYTES, "fetch.wait.max.ms": wait_ms}


def bounded_queue(kbytes: int) -> dict[str, Any]:
    """Return the options of a consumer that keeps at most about so many KiB of unread records in memory.

    By default the client fetches again a second after its queue was full, so a backlog is read at one queue a second.
    """
    return {"queued.max.messages.kbytes": kbytes, "fetch.queue.backoff.ms": _FULL_QUEUE_MS}


def consumer_config(brokers: str, group: str, **more: Any) -> dict[str, Any]:
    """Return the configuration: read committed, from the earliest offset if the group is new, without automatic commits."""
    return {
        **connection_config(brokers),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
    } | more


def produce_and_wait(
    producer: Producer, topic: str, *, key: bytes, value: bytes | None, headers: Headers, timestamp_ms: int = 0
) -> None:
    """Publish one record and return after every in-sync replica has it. Not for the hot path.

    `value` None: a tombstone. `timestamp_ms` 0: the wall clock.

    Raises: BrokerUnavailable.
    """
    failure: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failure.append(error)

    producer.produce(topic, value, key, on_delivery=delivered, headers=headers, timestamp=timestamp_ms)
    if producer.flush(30) > 0:
        raise BrokerUnavailable(f"{topic}: the broker did not acknowledge within 30 s")
    if failure:
        raise BrokerUnavailable(f"{topic}: {failure[0].str()}")


def watermarks(consumer: Consumer, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int]:
    """Return the log start offset and the end offset of a partition, from the broker.

    The request is repeated during a change of leader, until the timeout. Raises: KafkaException, also on a timeout.
    """

    def ask(left_seconds: float) -> tuple[int, int]:
        found: Any = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=left_seconds, cached=False)
        if found is None:  # the documented result of a timeout
            message = f"no answer about partition {partition} of {topic} within {timeout_seconds:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message))  # noqa: SLF001 - the library's public constant
        low, high = found
        return low, high

    return _until_answered(ask, timeout_seconds)


def offsets(
    consumer: Consumer, partitions: Iterable[tuple[str, int]], which: int, timeout_seconds: float
) -> dict[tuple[str, int], int]:
    """Return (topic, partition) -> first offset (`which`: OFFSET_BEGINNING) or next offset (OFFSET_END), in one request per broker.

    `which` can also be a time in epoch ms: the offset of the first record with that timestamp or a later one, or the next offset.

    The next offset is the last stable one for a `read_committed` consumer and the high watermark for a `read_uncommitted` one.
    The consumer need not have any partition assigned. The request is repeated during a change of leader, until the timeout.
    Raises: KafkaException, also on a timeout.
    """
    # Not the admin client's `list_offsets`: it sends the leader epoch that it has cached. After a restart of the broker every
    # later call can fail with FENCED_LEADER_EPOCH, while a consumer drops the epoch upon the first such error.
    wanted = [TopicPartition(topic, number, which) for topic, number in partitions]
    if not wanted:
        return {}

    def ask(left_seconds: float) -> dict[tuple[str, int], int]:
        found = _without_errors(consumer.offsets_for_times(wanted, timeout=left_seconds))
        return {(place.topic, place.partition): place.offset for place in found}

    return _until_answered(ask, timeout_seconds)


def committed(consumer: Consumer, places: Sequence[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
    """Return the committed offset and metadata of the consumer's group for each partition; the offset is negative if there is none.

    The request is repeated during a change of coordinator, until the timeout. Raises: KafkaException, also on a timeout.
    """
    return _until_answered(
        lambda left_seconds: _without_errors(consumer.committed(list(places), timeout=left_seconds)), timeout_seconds
    )


def partitions_of(consumer: Consumer | AdminClient, topic: str, timeout_seconds: float) -> list[int]:
    """Return the partitions of a topic, ascending. Raises: KafkaException, also without such a topic."""
    found = consumer.list_topics(topic, timeout=timeout_seconds).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def topic_ids(brokers: str, topics: Sequence[str]) -> Mapping[str, tuple[str, int]]:
    """Return topic -> (the broker's id, number of partitions). Raises: KafkaException."""
    admin = AdminClient({**connection_config(brokers), "log_level": 4})
    found = admin.describe_topics(TopicCollection(list(topics)), request_timeout=30)
    described = {name: future.result() for name, future in found.items()}
    return {name: (str(topic.topic_id), len(topic.partitions)) for name, topic in described.items()}


def is_passing(cause: KafkaException) -> bool:
    """Return whether the same request may succeed soon, because a leader or a coordinator changes."""
    return cause.args[0].code() in _PASSING


def _without_errors(found: list[TopicPartition]) -> list[TopicPartition]:
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return found


def _until_answered(ask: Callable[[float], T], timeout_seconds: float) -> T:
    deadline = time.monotonic() + timeout_seconds
    return retrying(timeout_seconds)(_is_passing_error, lambda: ask(max(_LEAST_SECONDS, deadline - time.monotonic())))


def _is_passing_error(error: Exception) -> bool:
    return isinstance(error, KafkaException) and is_passing(error)


class TopicView:
    """A view of a whole topic, like a GlobalKTable in Kafka Streams: a thread reads it from the start and calls `apply`.

    For master data and definitions that every worker needs. `apply` runs in the reading thread, in offset order within a
    partition. An error in it stops the view, and `problem()` returns that error.
    """

    def __init__(self, brokers: str, topic: str, apply: Callable[[Message], None], since_ms: int | None = None) -> None:
        """Open no connection; `start` does. `since_ms`: skip the records before the first with that timestamp (epoch ms)."""
        self.topic = topic
        self._since_ms = since_ms
        self._brokers = brokers
        self._apply = apply
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._positions: dict[int, int] = {}
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"view-{topic}", daemon=True)

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Start to read; return after the present records of the topic have been applied.

        Raises: BrokerUnavailable after the timeout, or if the view has failed.
        """
        self._thread.start()
        if not self.wait_until_current(timeout_seconds):
            raise BrokerUnavailable(f"{self.topic} could not be read to its end: {self._problem or 'timed out'}")

    def stop(self) -> None:
        """Stop reading; a no-op before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def problem(self) -> str | None:
        """Return the error that stopped the view, or None while it follows its topic."""
        return self._problem

    def wait_until_current(self, timeout_seconds: float) -> bool:
        """Wait until the present records of the topic have been applied; return False after the timeout or a failure."""
        deadline = time.monotonic() + timeout_seconds
        ends = self._end_offsets(timeout_seconds)
        with self._moved:
            return self._moved.wait_for(lambda: self._reached(ends), max(0.0, deadline - time.monotonic())) and not self._problem

    def wait_for(self, partition: int, offset: int, timeout_seconds: float) -> bool:
        """Wait until the record at that offset has been applied (read your own write); return False after the timeout."""
        with self._moved:
            return self._moved.wait_for(lambda: self._reached({partition: offset + 1}), timeout_seconds) and not self._problem

    def positions(self) -> dict[int, int]:
        """Return the offset of the next record to apply by partition; partitions without a record read are absent."""
        with self._moved:
            return dict(self._positions)

    def _reached(self, ends: dict[int, int]) -> bool:
        return self._problem is not None or all(self._positions.get(number, 0) >= end for number, end in ends.items())

    def _end_offsets(self, timeout_seconds: float) -> dict[int, int]:
        consumer = Consumer(consumer_config(self._brokers, f"view-{self.topic}"))
        try:
            numbers = partitions_of(consumer, self.topic, timeout_seconds)
            spans = {n: watermarks(consumer, self.topic, n, timeout_seconds) for n in numbers}
            return {n: high for n, (low, high) in spans.items() if high > low}
        except KafkaException as cause:
            raise BrokerUnavailable(f"{self.topic}: {cause}") from cause
        finally:
            consumer.close()

    def _run(self) -> None:
        consumer = Consumer(consumer_config(self._brokers, f"view-{self.topic}", **{"enable.partition.eof": True}))
        try:
            consumer.assign(self._starts(consumer))
            while not self._stopping.is_set():
                # `consume` alone waits for the full batch or the timeout, which would delay a single record.
                first = consumer.poll(0.2)
                for message in [] if first is None else [first, *consumer.consume(499, 0)]:
                    self._take(message)
        except Exception as cause:  # noqa: BLE001 - the waiting threads need the error of any kind
            log(__name__).exception("view_failed", topic=self.topic)
            with self._moved:
                self._problem = f"{type(cause).__name__}: {cause}"
                self._moved.notify_all()
        finally:
            consumer.close()

    def _starts(self, consumer: Consumer) -> list[TopicPartition]:
        numbers = partitions_of(consumer, self.topic, 30)
        if self._since_ms is None:
            return [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in numbers]
        found = offsets(consumer, [(self.topic, number) for number in numbers], self._since_ms, 30)
        return [TopicPartition(*place, offset) for place, offset in found.items()]

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() != PARTITION_EOF:
            if error.fatal():
                raise KafkaException(error)
            return  # the client reconnects automatically
        if error is None:
            self._apply(message)
        with self._moved:
            # The offset of an end-of-partition event is that of the next record, after any transaction markers.
            self._positions[message.partition() or 0] = (message.offset() or 0) + (1 if error is None else 0)
            self._moved.notify_all()
