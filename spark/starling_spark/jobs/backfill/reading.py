"""Adapter: the past records of one partition, read from the broker by one task."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Message

from starling_common.failures import is_of_installation, poison
from starling_common.kafka.clients import watermarks
from starling_common.kafka.topic_range import range_consumer, read_range
from starling_common.kafka.topics import CLOCK
from starling_common.outcome import Refused
from starling_common.wire import DecodeError
from starling_rules.history import Place
from starling_stream.model.processor import Decoded, Inbound

_TIMEOUT_SECONDS: Final = 30.0
_SILENCE_SECONDS: Final = 300.0
"""Time without a record after which the task fails: a restart of the broker is shorter."""

_new = tuple.__new__


Refuse: TypeAlias = Callable[[Place, Refused], object]
"""Takes a record that makes the code raise."""


def ignore(_place: Place, _why: Refused) -> None:
    """Refuse a record without a trace."""


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
        refuse: Refuse = ignore,
    ) -> None:
        """`prefix`: of the topic names, for installations that share a broker. `refuse`: takes records that make the code raise."""
        self._refuse = refuse
        self._brokers = brokers
        self._prefix = prefix
        self._decode = decode
        self._on_read = on_read
        self._mine = mine

    def records(self, topic: str, partition: int, first: int, until: int, *, is_there: bool = False) -> Iterator[Inbound]:
        """Yield records from `first`, or the first available one, to before `until`. Unreadable ones, refused live, are skipped.

        `is_there`: the records existed when the assignment was made; PastGone reports their deletion.
        Raises: KafkaException, BrokerUnavailable; PastGone.
        """
        if until <= first:
            return
        more = {"fetch.wait.max.ms": 50, "fetch.message.max.bytes": 4 * 1024 * 1024}
        consumer = range_consumer(self._brokers, "starling-backfill", **more)
        try:
            place = (self._prefix + topic, partition)
            # The request makes the client find the partition's leader, which otherwise takes half a second longer.
            begins, _ = watermarks(consumer, *place, _TIMEOUT_SECONDS)
            if is_there and begins > first:
                raise PastGone(f"{place[0]} {partition} starts at {begins}, after {first}: restart the job to read the lake")
            for messages in read_range(consumer, {place: first or OFFSET_BEGINNING}, {place: until}, _SILENCE_SECONDS):
                yield from self._decoded(topic, partition, messages)
                self._on_read(len(messages))
        finally:
            consumer.close()

    def _again(self, place: Place, message: Message) -> Decoded | None:
        """Decode a record that made the code raise once more; it is refused if it does so again."""
        try:
            return self._decode(place[0], message.value() or b"")
        except DecodeError:
            return None
        except Exception as cause:
            if is_of_installation(cause):
                raise
            self._refuse(place, poison(cause))
            return None

    def _decoded(self, topic: str, partition: int, messages: list[Message]) -> Iterator[Inbound]:
        # Hot: runs for each past record.
        decode, mine, is_clock = self._decode, self._mine, topic == CLOCK
        for message in messages:
            offset, key = message.offset() or 0, message.key() or b""
            if not key and not is_clock:
                continue
            try:
                value, received_at, event_time_ms, own_key, _ = decode(topic, message.value() or b"")
            except DecodeError:
                continue
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                again = self._again((topic, partition, offset), message)
                if again is None:
                    continue
                value, received_at, event_time_ms, own_key, _ = again
            key = own_key or key
            if mine is not None and not mine(key):
                value = None  # advances stream time; another slice folds it
            yield _new(Inbound, (topic, partition, offset, key, value, received_at, event_time_ms, (), b"", None))
