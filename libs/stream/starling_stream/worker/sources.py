"""Edge: follows the low watermarks of the sources in a thread, and passes to the tasks the bound that all sources have passed."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import consumer_config, offsets
from starling_common.kafka.source_watermarks import LONGEST_LEASE_MS, ImplausibleWatermark, check_watermark, recent_offset
from starling_common.kafka.topics import WATERMARKS
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.wire import Codec, DecodeError, RegistryUnavailable
from starling_stream.fold.arrivals import ArrivalMerge, Horizon
from starling_stream.fold.task import Task
from starling_stream.model.phase import Phase
from starling_stream.worker.read_ahead import ReadAhead

_POLL_SECONDS: Final = 0.01
_REQUEST_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
_LEASE_SECONDS: Final = 0.5
"""The interval in which ended leases are looked for while no bound is needed."""

_BACKLOG_SECONDS: Final = 0.2
"""The interval of bounds for tasks that are read ahead of: they have much to process below the last one."""


class Source(NamedTuple):
    """The last watermark of a live source. `read_at`: when it was read, by the monotonic clock."""

    edge: str
    low: int
    lease_seconds: float
    read_at: float


class Sources:
    """The sources whose leases have not ended. A lease ends only when the topic is known to contain no later watermark."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._by_key: dict[bytes, Source] = {}

    def take(self, message: Message, *, is_old: bool) -> None:
        """Take one record. `is_old`: it was written before this process began to read."""
        key, value = message.key() or b"", message.value()
        if value is None:
            self._by_key.pop(key, None)
            return
        try:
            record = self._codec.decode(value)
            check_watermark(record["low"], record["lease_ms"])
        except (DecodeError, ImplausibleWatermark) as error:
            log(__name__).error("watermark_refused", key=repr(key), offset=message.offset(), reason=str(error))
            return
        age_seconds = max(0.0, (wall_clock_ms() - message.timestamp()[1]) / 1000) if is_old else 0.0
        self._by_key[key] = Source(record["edge"], record["low"], record["lease_ms"] / 1000, monotonic() - age_seconds)

    def expire(self, current_at: float) -> None:
        """Drop the sources whose leases ended before that instant, up to which all watermarks are read."""
        for key, source in list(self._by_key.items()):
            if current_at - source.read_at > source.lease_seconds:
                del self._by_key[key]
                log(__name__).warning("source_expired", source=source.edge, lease_seconds=source.lease_seconds)

    def low(self) -> int | None:
        """Return the minimum of the watermarks; None without a live source."""
        return min([source.low for source in self._by_key.values()], default=None)

    def behind_seconds(self) -> dict[str, float]:
        """Return source -> how far its watermark is behind the wall clock. May be called from any thread."""
        now = wall_clock_micros()
        found: dict[str, float] = {}
        for source in list(self._by_key.values()):
            found[source.edge] = max(found.get(source.edge, 0.0), (now - source.low) / 1e6)
        return found


class SourceFollowerDependencies(NamedTuple):
    """The dependencies of `SourceFollower`. `tasks` may be called from any thread."""

    tasks: Callable[[], Sequence[Task[Any]]]
    wake: Callable[[], None]
    crash: Callable[[BaseException], None]


class SourceFollower:
    """Follows the watermarks. `start` is called on the event loop, which then receives the bounds."""

    def __init__(
        self, brokers: str, codec: Codec, topics: Sequence[str], hold_ms: int, dependencies: SourceFollowerDependencies
    ) -> None:
        """`topics`: the inputs to which the sources write. `hold_ms`: how far the bound is behind the clock without a source."""
        self.sources = Sources(codec)
        self._brokers = brokers
        self._topics = topics
        self._hold_micros = hold_ms * 1000
        self._dependencies = dependencies
        self._stopping = threading.Event()
        self._ahead = ReadAhead(brokers, topics)
        self._bounds: dict[int, tuple[int, Mapping[str, int]]] = {}
        """The bounds of the tasks that wait for them, with the ends of their topics, that `_ahead` has not taken."""
        self._position = 0
        self._requested_at = 0.0
        self._unexpired: tuple[float, int] | None = None
        """An instant, and the offset up to which the watermarks are read before the leases that ended by then expire."""
        self._thread = threading.Thread(target=self._run, name="sources", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Start to read."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Stop to read; the thread ends within its present request."""
        self._stopping.set()

    def _run(self) -> None:
        # The requests for ends need a connection of their own: the broker answers them after the fetch that waits for a watermark.
        reader, asker = (Consumer(consumer_config(self._brokers, "starling-sources", **_READER)) for _ in range(2))
        try:
            old_until = self._assign(reader)
            while not self._stopping.is_set():
                first = reader.poll(0 if self._ahead.is_active else _POLL_SECONDS)
                for message in [] if first is None else [first, *reader.consume(1_000, 0)]:
                    if message.error() is None:
                        self._take(message, old_until)
                if self._position >= old_until:
                    self._expire()
                    self._bound(asker)
                    self._read_ahead()
        except Exception as cause:  # noqa: BLE001 - the error ends the worker
            if not self._stopping.is_set():
                self._loop.call_soon_threadsafe(self._dependencies.crash, cause)
        finally:
            reader.close()
            asker.close()
            self._ahead.close()

    def _assign(self, reader: Consumer) -> int:
        """Start with the recent watermarks; return the end of those that were written before."""
        while not self._stopping.is_set():
            try:
                start = recent_offset(reader, LONGEST_LEASE_MS, _REQUEST_SECONDS)
                end = offsets(reader, [(WATERMARKS, 0)], OFFSET_END, _REQUEST_SECONDS)[WATERMARKS, 0]
            except KafkaException as cause:
                log(__name__).warning("watermarks_unavailable", error=str(cause))
                self._stopping.wait(_RETRY_SECONDS)
                continue
            self._position = end if start == OFFSET_END else start
            reader.assign([TopicPartition(WATERMARKS, 0, self._position)])
            return end
        return 0

    def _take(self, message: Message, old_until: int) -> None:
        """Take one watermark; waits for the registry if decoding needs it."""
        position = (message.offset() or 0) + 1
        while not self._stopping.is_set():
            try:
                self.sources.take(message, is_old=position <= old_until)
            except RegistryUnavailable as cause:
                log(__name__).warning("registry_unavailable", topic=WATERMARKS, partition=0, error=str(cause))
                self._stopping.wait(_RETRY_SECONDS)
            else:
                self._position = position
                return

    def _bound(self, asker: Consumer) -> None:
        """Pass a new bound to the tasks with records below it, with the ends of their inputs as of now."""
        low = self.sources.low()
        bound = wall_clock_micros() - self._hold_micros if low is None else low
        waiting = [partition for partition, merge in self._merges().items() if merge.noted < bound and merge.first_key() < bound]
        requested_at = monotonic()
        if requested_at - self._requested_at < self._interval(waiting):
            return
        self._requested_at = requested_at
        places = [(topic, partition) for partition in waiting for topic in self._topics]
        try:
            ends = offsets(asker, [*places, (WATERMARKS, 0)], OFFSET_END, _REQUEST_SECONDS)
        except KafkaException as cause:
            log(__name__).warning("ends_unavailable", error=str(cause))
            self._stopping.wait(_RETRY_SECONDS)
            return
        if self._unexpired is None:
            self._unexpired = requested_at, ends[WATERMARKS, 0]
        if low is None and self._position < ends[WATERMARKS, 0]:
            return  # an unread watermark may be that of a live source
        if not waiting:
            return
        ends_of = {number: _of(ends, self._topics, number) for number in waiting}
        self._bounds |= {number: (bound, found) for number, found in ends_of.items()}
        self._loop.call_soon_threadsafe(self._pass, bound, ends_of)

    def _interval(self, waiting: Sequence[int]) -> float:
        """Return the seconds between requests for ends, each of which names every input of each waiting task."""
        if not waiting:
            return _LEASE_SECONDS
        return _BACKLOG_SECONDS if self._ahead.partitions >= set(waiting) else 0.0

    def _expire(self) -> None:
        """Expire leases once the watermarks up to the requested end are read. The present end moves while other sources write."""
        if self._unexpired is not None and self._position >= self._unexpired[1]:
            self.sources.expire(self._unexpired[0])
            self._unexpired = None

    def _merges(self) -> dict[int, ArrivalMerge]:
        running = [task for task in self._dependencies.tasks() if task.phase is Phase.RUNNING]
        return {task.partition: task.merge for task in running if isinstance(task.merge, ArrivalMerge)}

    def _read_ahead(self) -> None:
        """Read ahead of the tasks that lag, and pass them the horizons of their topics."""
        bounds, self._bounds = self._bounds, {}
        if not bounds and not self._ahead.is_active:
            return
        self._ahead.note(self._merges(), bounds)
        horizons = self._ahead.read()
        if horizons:
            self._loop.call_soon_threadsafe(self._pass_horizons, horizons)

    def _pass_horizons(self, horizons: Sequence[tuple[ArrivalMerge, Mapping[str, Horizon]]]) -> None:
        for merge, of_topics in horizons:
            merge.set_horizons(of_topics)
        self._dependencies.wake()

    def _pass(self, bound: int, ends: Mapping[int, Mapping[str, int]]) -> None:
        for task in self._dependencies.tasks():
            if task.partition in ends and isinstance(task.merge, ArrivalMerge):
                task.merge.note_bound(bound, ends[task.partition])
        self._dependencies.wake()


_READER: Final = {"isolation.level": "read_uncommitted"}
"""The ends must include records that are not committed yet: those of a source may lie behind them."""


def _of(ends: Mapping[tuple[str, int], int], topics: Sequence[str], partition: int) -> dict[str, int]:
    return {topic: ends[topic, partition] for topic in topics}
