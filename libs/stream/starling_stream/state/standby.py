"""Adapter: copies of the states of partitions that other workers have, kept up to date from the changelog.

When such a partition is assigned to this worker, its store is at hand: only what was committed in the last moment is missing.
A copy holds what committed transactions hold, as any store does, and is checked like one when it is used.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka import consumer_config
from starling_common.logs import log
from starling_stream.state.local_store import StoreMemory, StoreMismatch, TaskStore
from starling_stream.state.metrics import Gauges
from starling_stream.state.restore import Plan, apply_messages, begun_anew, open_or_begin_anew, span_of
from starling_stream.state.restore_point import Span

_BATCH: Final = 1_000
_BATCH_SECONDS: Final = 0.25
_SHARE: Final = 0.4
"""Of its time that the thread may work while it is far behind: it shares the interpreter with the hot path."""

_AGAIN_SECONDS: Final = 5.0
_TELL_SECONDS: Final = 2.0
_READER: Final = {
    "enable.partition.eof": True,
    "check.crcs": True,
    # Where the log begins only after a copy's end, the copy is of no use any more: that has to be told, not passed over.
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 4_096,
    "fetch.message.max.bytes": 1_048_576,
}


class Standbys:
    """All copies of a worker. One thread reads for them; it begins with the first that is wanted."""

    def __init__(self, plan: Callable[[int], Plan], memory: StoreMemory, gauges: Gauges) -> None:
        self._plan = plan
        self._memory = memory
        self._gauges = gauges
        self._lock = threading.Lock()
        """Held while a store is opened, written, closed, or given away."""
        self._wanted: frozenset[int] = frozenset()
        self._stores: dict[int, TaskStore] = {}
        self._positions: dict[int, int] = {}
        self._refused: set[int] = set()
        """Not to be tried again: they are of another log."""
        self._changed = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, partitions: Collection[int]) -> None:
        """Keep copies of these from now on, and of no others. Returns at once. No other thread has their stores open."""
        with self._lock:
            self._wanted = frozenset(partitions)
            self._refused.clear()
        self._changed.set()
        if self._thread is None and partitions and not self._over.is_set():
            self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
            self._thread.start()

    def take(self, partition: int) -> TaskStore | None:
        """The open store of a partition that this worker has itself now; None when there is none. Waits for a batch at most."""
        with self._lock:
            self._wanted -= {partition}
            self._positions.pop(partition, None)
            return self._stores.pop(partition, None)

    def followed(self) -> frozenset[int]:
        """Partitions whose directories are in use here."""
        with self._lock:
            return self._wanted | self._stores.keys()

    def positions(self) -> dict[int, int]:
        """Partition -> the changelog offset up to which its copy goes."""
        with self._lock:
            return dict(self._positions)

    def close(self) -> None:
        """Close all copies. Blocks for a batch at most."""
        self._over.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._live()
            except Exception as cause:  # noqa: BLE001 - copies are of use, not needed: what broke them must not end the worker
                log(__name__).warning("standbys_begin_again", error=str(cause), in_seconds=_AGAIN_SECONDS)
                self._over.wait(_AGAIN_SECONDS)

    def _live(self) -> None:
        """Follow until closed, or something breaks; no store is open afterwards."""
        plan = self._plan(0)
        consumer = Consumer(consumer_config(plan.brokers, f"standby-{plan.changelog}", **_READER))
        read: frozenset[int] = frozenset()
        told_at = 0.0
        try:
            while not self._over.is_set():
                self._changed.clear()
                read = self._settle(consumer, plan.changelog, read)
                if not read:
                    self._tell(consumer, plan.changelog, read)
                    self._changed.wait()
                    continue
                began = time.monotonic()
                full = self._step(consumer)
                if time.monotonic() - told_at > _TELL_SECONDS:
                    self._tell(consumer, plan.changelog, read)
                    told_at = time.monotonic()
                if full:
                    self._over.wait((time.monotonic() - began) * (1 / _SHARE - 1))
        finally:
            with self._lock:
                for store in self._stores.values():
                    store.close()
                self._stores, self._positions = {}, {}
            consumer.close()

    def _settle(self, consumer: Consumer, changelog: str, read: frozenset[int]) -> frozenset[int]:
        """Open what is wanted, close what is not; returns what is read from now on."""
        with self._lock:
            new = self._wanted - self._stores.keys() - self._refused
        spans = {number: span_of(self._plan(number)) for number in sorted(new)}
        with self._lock:
            for number in self._stores.keys() - self._wanted:
                self._stores.pop(number).close()
                self._positions.pop(number)
            opened = sorted(self._wanted & spans.keys())
            for number in opened:
                self._open(number, spans[number])
            wanted = frozenset(self._stores)
            # One that was away and is back is read from where its store is now, which may be behind where it was.
            if opened or wanted != read:
                places = [TopicPartition(changelog, number, self._positions[number]) for number in sorted(wanted)]
                consumer.assign(places)
        return wanted

    def _open(self, number: int, span: Span) -> None:
        plan = self._plan(number)
        store = open_or_begin_anew(plan, self._memory)
        try:
            store.check_origin(plan.origin)
            position = store.position()
            if position is not None and not span.holds(position):
                log(__name__).warning("standby_started_over", partition=number, position=position, span=span)
                store = begun_anew(plan, self._memory, store)
        except StoreMismatch as cause:
            store.close()
            self._refused.add(number)
            log(__name__).error("standby_refused", partition=number, error=str(cause))
            return
        except BaseException:
            store.close()
            raise
        self._stores[number] = store
        self._positions[number] = span.start if (position := store.position()) is None else position
        log(__name__).info("standby_follows", partition=number, position=self._positions[number], end=span.end)

    def _step(self, consumer: Consumer) -> bool:
        """One batch into the stores that it is for; whether there is more at hand."""
        batch = consumer.consume(_BATCH, _BATCH_SECONDS)
        records, reached = _sorted(batch)
        with self._lock:
            for number, position in reached.items():
                store = self._stores.get(number)
                if store is not None and position > self._positions[number]:
                    apply_messages(self._plan(number), store, records.get(number, ()), position)
                    self._positions[number] = position
        return len(batch) == _BATCH

    def _tell(self, consumer: Consumer, changelog: str, read: frozenset[int]) -> None:
        positions = self.positions()
        lags = {}
        for number in read & positions.keys():
            known = consumer.get_watermark_offsets(TopicPartition(changelog, number), cached=True)
            if known is not None and known[1] >= 0:  # nothing was fetched before
                lags[number] = max(0, known[1] - positions[number])
        self._gauges.standbys(lags)


def _sorted(batch: Sequence[Message]) -> tuple[Mapping[int, Sequence[Message]], Mapping[int, int]]:
    """By partition, the records, and the position after them. Raises: KafkaException."""
    records: dict[int, list[Message]] = {}
    reached: dict[int, int] = {}
    for message in batch:
        error, number, offset = message.error(), message.partition() or 0, message.offset() or 0
        if error is None:
            records.setdefault(number, []).append(message)
            reached[number] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            reached[number] = max(reached.get(number, 0), offset)  # beyond any markers
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return records, reached
