"""Adapter: the definitions of computed traits, read from their topic."""

from threading import Lock

from confluent_kafka import Message

from starling_common.kafka import BrokerUnavailable, TopicView
from starling_common.logs import log
from starling_common.wire import Codec, DecodeError
from starling_spark.jobs.profiles.definitions import Definition, Definitions


class TraitCatalogue:
    """Follows `computed-traits.definitions` (one partition) in its own thread."""

    def __init__(self, brokers: str, topic: str, codec: Codec) -> None:
        self.topic = topic
        self._codec = codec
        self._lock = Lock()
        self._definitions = Definitions()
        self._view = TopicView(brokers, topic, self._apply)

    def start(self) -> None:
        """Read the topic to its end, and start to follow it. Raises: BrokerUnavailable."""
        self._view.start()

    def stop(self) -> None:
        """Stop following."""
        self._view.stop()

    def problem(self) -> str | None:
        """Return why the definitions are not current; None when they are."""
        return self._view.problem()

    def current(self, timeout_seconds: float = 10.0) -> tuple[tuple[Definition, ...], int]:
        """Return every definition written before this call, and the offset up to which they were read.

        Raises: BrokerUnavailable when the topic could not be read to its end in time.
        """
        if not self._view.wait_until_current(timeout_seconds):
            raise BrokerUnavailable(f"{self.topic} could not be read to its end: {self._view.problem() or 'timed out'}")
        return self.latest()

    def latest(self) -> tuple[tuple[Definition, ...], int]:
        """Return the definitions read so far and their offset, without a request to the broker."""
        position = self._view.positions().get(0, 0)  # read first, so that the definitions are at least as new
        with self._lock:
            return self._definitions.in_force(), position

    def _apply(self, message: Message) -> None:
        try:
            record = self._codec.decode(message.value() or b"")
        except DecodeError as error:
            log(__name__).error("definition_unreadable", topic=self.topic, offset=message.offset(), code=error.code)
            return
        with self._lock:
            self._definitions.apply(record)
