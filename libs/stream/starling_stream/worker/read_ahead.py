"""Adapter: reads the inputs of lagging tasks ahead of them, so that they release records exactly in the order of arrival.

A task with a backlog does not have all records below the bound. It releases a record once no unread one can precede it: the records
that were appended within the next seconds are read here, and only their order is kept. A second consumer costs less than memory for
all of these records would.
"""

from collections.abc import KeysView, Mapping, Sequence
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from starling_common.kafka.clients import PARTITION_EOF, bounded_queue, consumer_config, gathering_fetches
from starling_common.telemetry.logs import log
from starling_stream.fold.arrivals import ArrivalMerge, Horizon
from starling_stream.fold.read_ahead import LogAhead

_RECORDS: Final = 1_000
_WAIT_SECONDS: Final = 0.005
_PASS_SECONDS: Final = 0.03
_PAUSE_MS: Final = 30_000
_RESUME_MS: Final = 10_000
"""How far the records are read ahead, beyond the longest time from a `received_at` to its append."""

Place = tuple[str, int]


class ReadAhead:
    """The lagging tasks of a worker, by partition, and their inputs as far as they were read. Used by one thread."""

    def __init__(self, brokers: str, topics: Sequence[str]) -> None:
        self._brokers = brokers
        self._topics = topics
        self._merges: dict[int, ArrivalMerge] = {}
        self._bounds: dict[int, tuple[int, Mapping[str, int]]] = {}
        self._logs: dict[Place, LogAhead] = {}
        self._paused: set[Place] = set()
        self._over: list[ArrivalMerge] = []
        """The tasks that no longer lag, and still have a horizon."""
        self._consumer: Consumer | None = None
        self._passed_at = 0.0

    @property
    def is_active(self) -> bool:
        """Return whether a task lags."""
        return bool(self._merges)

    @property
    def partitions(self) -> KeysView[int]:
        """Return the tasks that lag, by partition."""
        return self._merges.keys()

    def note(self, merges: Mapping[int, ArrivalMerge], bounds: Mapping[int, tuple[int, Mapping[str, int]]]) -> None:
        """Take the present tasks, and new bounds with the ends of their topics."""
        self._bounds = {number: found for number, found in (self._bounds | dict(bounds)).items() if number in merges}
        lagging = {number: merge for number, merge in merges.items() if self._is_behind(number, merge)}
        if lagging != self._merges:
            self._follow(lagging)

    def _is_behind(self, number: int, merge: ArrivalMerge) -> bool:
        found = self._bounds.get(number)
        if found is None:
            return False
        return merge.is_unread(found[1]) if self._merges.get(number) is merge else merge.is_lagging(found[1])

    def _follow(self, lagging: dict[int, ArrivalMerge]) -> None:
        if lagging and not self._merges:
            log(__name__).info("reading_ahead", partitions=sorted(lagging))
        self._over += [merge for number, merge in self._merges.items() if lagging.get(number) is not merge]
        logs: dict[Place, LogAhead] = {}
        for number, merge in lagging.items():
            is_same = self._merges.get(number) is merge
            for topic in self._topics:
                place = topic, number
                logs[place] = self._logs[place] if is_same else LogAhead(merge.reached(topic))
        self._merges, self._logs = lagging, logs
        self._paused = set()
        if self._consumer is None:
            self._consumer = Consumer(consumer_config(self._brokers, "starling-read-ahead", **_READER))
        self._consumer.assign([TopicPartition(topic, number, ahead.until) for (topic, number), ahead in logs.items()])

    def read(self) -> list[tuple[ArrivalMerge, Mapping[str, Horizon]]]:
        """Read some records; return the new horizons of the tasks, at intervals. A task that no longer lags has none."""
        over: list[tuple[ArrivalMerge, Mapping[str, Horizon]]] = [(merge, {}) for merge in self._over]
        self._over = []
        if self._consumer is None or not self._merges:
            return over
        found: dict[Place, list[tuple[int, int, bytes]]] = {}
        for message in self._consumer.consume(_RECORDS, _WAIT_SECONDS):
            self._take(message, found)
        for place, records in found.items():
            self._logs[place].add(records)
        now = monotonic()
        if now - self._passed_at < _PASS_SECONDS:
            return over
        self._passed_at = now
        horizons = [(merge, self._horizons(number, merge)) for number, merge in self._merges.items()]
        self._regulate(self._consumer)
        return [*over, *horizons]

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()

    def _take(self, message: Message, found: dict[Place, list[tuple[int, int, bytes]]]) -> None:
        place = message.topic() or "", message.partition() or 0
        error = message.error()
        if place not in self._logs:
            return
        if error is None:
            record = message.offset() or 0, message.timestamp()[1], message.value() or b""
            found.setdefault(place, []).append(record)
        elif error.code() == PARTITION_EOF:
            self._logs[place].add(found.pop(place, []))
            self._logs[place].until = max(self._logs[place].until, message.offset() or 0)
        else:
            log(__name__).warning("not_read_ahead", topic=place[0], partition=place[1], error=str(error))

    def _horizons(self, number: int, merge: ArrivalMerge) -> Mapping[str, Horizon]:
        bound, ends = self._bounds[number]
        return {topic: self._logs[topic, number].horizon(merge.reached(topic), ends[topic], bound) for topic in self._topics}

    def _regulate(self, consumer: Consumer) -> None:
        """Pause what is read far ahead of its task, which bounds the memory. Called after the passed blocks were dropped."""
        far = {place for place, ahead in self._logs.items() if ahead.is_far(_RESUME_MS if place in self._paused else _PAUSE_MS)}
        if far - self._paused:
            consumer.pause([TopicPartition(*place) for place in far - self._paused])
        if self._paused - far:
            consumer.resume([TopicPartition(*place) for place in self._paused - far])
        self._paused = far


_READER: Final = {
    "isolation.level": "read_uncommitted",
    "enable.partition.eof": True,
    **bounded_queue(8_192),
    "fetch.message.max.bytes": 262_144,
    **gathering_fetches(30),
}
