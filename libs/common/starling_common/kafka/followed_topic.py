"""Adapter: a folded topic that a process follows for as long as it runs, with the age of what it knows.

`FoldedTopic` ends with its process when the topic cannot be read. This one keeps the last known value and reads on.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import PARTITION_EOF, BrokerUnavailable, offsets, partitions_of
from starling_common.kafka.folded_topic import Fold, FoldedTopic
from starling_common.kafka.topic_range import range_consumer
from starling_common.telemetry.health import Degraded
from starling_common.telemetry.logs import log
from starling_common.wire import Codec

T = TypeVar("T")

_CHECK_SECONDS: Final = 1.0
"""Interval at which the ends of the topic are requested, which proves that the value is current."""
_ANSWER_SECONDS: Final = 2.0
_METADATA_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.1


class FollowedTopic(Generic[T]):
    """Follows a topic in a thread of its own. The last known value stays in use while the topic cannot be read."""

    def __init__(
        self,
        topic: tuple[str, str],
        codec: Callable[[], Codec],
        initial: Callable[[], T],
        fold: Fold[T],
        most_age_seconds: float = 5.0,
    ) -> None:
        """Open no connection; `start` does. `topic`: the brokers and the name. `most_age_seconds`: a higher age is a problem."""
        self._brokers, self.topic = topic
        self._codec = codec
        self._initial = initial
        self._fold = fold
        self._most_age_seconds = most_age_seconds
        self._value = initial()
        self._current_at: float | None = None
        self._error: str | None = None
        self._is_asked = threading.Event()
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"follow-{self.topic}", daemon=True)

    def start(self) -> None:
        """Start to read. The call does not wait for the broker."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)  # it may wait for an unreachable broker and then ends with the process

    def value(self) -> T:
        """Return the last known value; the initial one until the topic has been read. Does not block."""
        return self._value

    def is_read(self) -> bool:
        """Return whether the topic has been read to its end since the start."""
        return self._current_at is not None

    def refresh(self, timeout_seconds: float) -> T:
        """Return the value with every record that was written before this call. Raises: BrokerUnavailable after the timeout."""
        asked_at = time.monotonic()
        self._is_asked.set()
        with self._moved:
            if self._moved.wait_for(lambda: self._current_at is not None and self._current_at >= asked_at, timeout_seconds):
                return self._value
        raise BrokerUnavailable(f"{self.topic} could not be read to its end: {self._error or 'timed out'}")

    def problem(self) -> str | None:
        """Return why the value is not current, or None. It is `Degraded` if an earlier value is in use."""
        if self._current_at is None:
            return f"{self.topic} has not been read yet: {self._error or 'reading'}"
        age_seconds = time.monotonic() - self._current_at
        if age_seconds <= self._most_age_seconds:
            return None
        return Degraded(f"{self.topic} was last read {age_seconds:.0f} s ago; the entries of then are in use: {self._error}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - whatever the failure, the value stays and the topic is read again
                self._failed(error)
            self._stopping.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        """Read the topic from its start until `stop`. The new value replaces the last one when it is complete."""
        folded = FoldedTopic((self._brokers, self.topic), self._codec(), self._initial(), self._fold)
        consumer = range_consumer(self._brokers, f"follow-{self.topic}", log_level=0)
        try:
            numbers = partitions_of(consumer, self.topic, _METADATA_SECONDS)
            consumer.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in numbers])
            reading = _Reading(consumer, folded, dict.fromkeys(numbers, 0))
            asked_at, ends = 0.0, None
            while not self._stopping.is_set():
                reading.read()
                if self._is_asked.is_set() or time.monotonic() - asked_at >= _CHECK_SECONDS:
                    self._is_asked.clear()
                    asked_at, ends = time.monotonic(), self._ends(consumer, numbers)
                if ends is not None and all(reading.positions[number] >= end for number, end in ends.items()):
                    ends = None
                    self._set(folded.value(), asked_at)
        finally:
            consumer.close()

    def _ends(self, consumer: Consumer, numbers: list[int]) -> dict[int, int] | None:
        """Return the next offset by partition; None if the broker does not answer."""
        try:
            found = offsets(consumer, [(self.topic, number) for number in numbers], OFFSET_END, _ANSWER_SECONDS)
        except KafkaException as error:
            self._failed(error)
            return None
        return {number: offset for (_, number), offset in found.items()}

    def _set(self, value: T, at: float) -> None:
        with self._moved:
            self._value, self._current_at, self._error = value, at, None
            self._moved.notify_all()

    def _failed(self, error: Exception) -> None:
        reason = error.args[0].str() if isinstance(error, KafkaException) else f"{type(error).__name__}: {error}"
        if reason != self._error:
            log(__name__).warning("topic_not_followed", topic=self.topic, reason=reason)
        self._error = reason


class _Reading:
    """One pass over the topic. `positions`: the offset of the next record by partition."""

    def __init__(self, consumer: Consumer, folded: FoldedTopic[T], positions: dict[int, int]) -> None:
        self._consumer = consumer
        self._apply: Callable[[Message], None] = folded.apply
        self.positions = positions

    def read(self) -> None:
        """Wait for one record, and apply it with the buffered ones."""
        first = self._consumer.poll(_POLL_SECONDS)
        for message in [] if first is None else [first, *self._consumer.consume(499, 0)]:
            error = message.error()
            if error is not None and error.code() != PARTITION_EOF:
                if error.fatal():
                    raise KafkaException(error)
                continue  # the client reconnects automatically
            if error is None:
                self._apply(message)
            # The offset of an end-of-partition event is that of the next record, after any transaction markers.
            self.positions[message.partition() or 0] = (message.offset() or 0) + (1 if error is None else 0)
