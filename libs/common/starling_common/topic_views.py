"""Adapter: a whole topic folded into one value, in a thread of its own."""

from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

from confluent_kafka import Message

from starling_common.kafka import BrokerUnavailable, TopicView
from starling_common.logs import log
from starling_common.wire import Codec, DecodeError, Record

_TIMEOUT_SECONDS: Final = 30.0

T = TypeVar("T")


class TopicFold(Generic[T]):
    """The value that a pure fold returns for the records of a topic so far."""

    def __init__(
        self, brokers: str, topic: str, codec: Codec, initial: T, fold: Callable[[T, Record], T], *, skips_undecodable: bool = False
    ) -> None:
        """Open no connection. `skips_undecodable`: log a record that cannot be decoded; otherwise it stops the view."""
        self._codec = codec
        self._fold = fold
        self._skips_undecodable = skips_undecodable
        self._lock = Lock()
        self._value = initial
        self._view = TopicView(brokers, topic, self._apply)

    def start(self) -> None:
        """Read the present records. Raises: BrokerUnavailable."""
        self._view.start()

    def stop(self) -> None:
        """Stop reading."""
        self._view.stop()

    def refresh(self) -> None:
        """Read the records that were written before this call. Raises: BrokerUnavailable."""
        view = self._view
        if not view.wait_until_current(_TIMEOUT_SECONDS):
            raise BrokerUnavailable(f"{view.topic} could not be read to its end: {view.problem() or 'timed out'}")

    def value(self) -> T:
        """Return the value after the last record read."""
        with self._lock:
            return self._value

    def _apply(self, message: Message) -> None:
        try:
            record = self._codec.decode(message.value() or b"")
        except DecodeError as error:
            if not self._skips_undecodable:
                raise
            log(__name__).warning("record_skipped", topic=self._view.topic, offset=message.offset(), code=error.code)
            return
        value = self._fold(self._value, record)
        with self._lock:
            self._value = value
