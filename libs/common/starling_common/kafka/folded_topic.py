"""Adapter: a topic folded into a value, like a GlobalKTable in Kafka Streams with an aggregator of its own."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

from confluent_kafka import Message

from starling_common.failures import is_of_installation, poison
from starling_common.kafka.clients import BrokerUnavailable, TopicView
from starling_common.outcome import Done, Outcome, Refused
from starling_common.telemetry.logs import log
from starling_common.wire import Codec, DecodeError, Record

T = TypeVar("T")

Fold: TypeAlias = Callable[[T, bytes, Record | None], Outcome[T]]
"""(value, key, record) -> the value after the record; the record of a tombstone is None.

The fold may change the value in place if the value's readers allow that."""


class FoldedTopic(Generic[T]):
    """Follows a topic in a thread of its own. A refused record is logged, and the value stays as it was.

    Only the reading thread uses the codec.
    """

    def __init__(
        self,
        topic: tuple[str, str],
        codec: Codec,
        initial: T,
        fold: Fold[T],
        on_refused: Callable[[Refused], None] | None = None,
        since_ms: int | None = None,
    ) -> None:
        """Open no connection; `start` does. `topic`: the brokers and the name. `on_refused` runs in the reading thread.

        `since_ms`: skip the records before the first with that timestamp (epoch ms).
        """
        brokers, self.topic = topic
        self._codec = codec
        self._value = initial
        self._fold = fold
        self._on_refused = on_refused
        self._lock = Lock()
        self._view = TopicView(brokers, self.topic, self.apply, since_ms)

    def start(self) -> None:
        """Start to read; return after the present records have been folded. Raises: BrokerUnavailable."""
        self._view.start()

    def stop(self) -> None:
        """Stop reading."""
        self._view.stop()

    def problem(self) -> str | None:
        """Return the error that stopped the reading thread, or None while it follows the topic."""
        return self._view.problem()

    def refresh(self, timeout_seconds: float) -> None:
        """Return after the records written before this call have been folded. Raises: BrokerUnavailable after the timeout."""
        if not self._view.wait_until_current(timeout_seconds):
            raise BrokerUnavailable(f"{self.topic} could not be read to its end: {self.problem() or 'timed out'}")

    def value(self) -> T:
        """Return the value folded so far."""
        with self._lock:
            return self._value

    def positions(self) -> Mapping[int, int]:
        """Return the offset of the next record by partition. Read before `value`, the value is at least as new."""
        return self._view.positions()

    def apply(self, message: Message) -> None:
        """Fold one record."""
        try:
            outcome = self._folded(message)
        except Exception as first:
            if is_of_installation(first):
                raise
            outcome = self._folded_again(message)
        if isinstance(outcome, Done):
            with self._lock:
                self._value = outcome.value
        elif isinstance(outcome, Refused):
            self._refuse(message, outcome)

    def _folded(self, message: Message) -> Outcome[T]:
        key, data = message.key() or b"", message.value()
        try:
            return self._fold(self._value, key, None if data is None else self._codec.decode(data))
        except DecodeError as error:
            return Refused(error.code, str(error))

    def _folded_again(self, message: Message) -> Outcome[T]:
        """Fold a record after a failure; a second failure is the record's, and the reading thread continues after it."""
        try:
            return self._folded(message)
        except Exception as second:
            if is_of_installation(second):
                raise
            return poison(second)

    def _refuse(self, message: Message, refused: Refused) -> None:
        origin = (self.topic, message.partition(), message.offset())
        log(__name__).error("record_refused", origin=origin, key=repr(message.key()), code=refused.code, reason=refused.message)
        if self._on_refused is not None:
            self._on_refused(refused)
