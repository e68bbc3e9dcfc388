"""Adapter: standby copies of the states of partitions assigned to other workers, updated from the changelog.

When such a partition is assigned to this worker, its store is available and lacks only the last commits. A copy contains committed
changes only, as any store does, and is checked like one when it is used.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.kafka.clients import bounded_queue, consumer_config
from starling_common.telemetry.logs import log
from starling_stream.state.local_store import StoreMemory, StoreMismatch, TaskStore
from starling_stream.state.metrics import Gauges
from starling_stream.state.restore.restore import Plan, apply_messages, open_or_recreate, recreated, span_of
from starling_stream.state.restore.restore_point import Span

_BATCH: Final = 1_000
_BATCH_SECONDS: Final = 0.25
_SHARE: Final = 0.4
"""Fraction of its time that the thread may work while it is far behind: it shares the interpreter with the hot path."""

_RETRY_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 2.0
_READER: Final = {
    "enable.partition.eof": True,
    "check.crcs": True,
    # Where the log starts after a copy's end, the copy is useless: the consumer must report that, not skip it.
    "auto.offset.reset": "error",
    **bounded_queue(4_096),
    "fetch.message.max.bytes": 1_048_576,
}


class Standbys:
    """All standby copies of a worker. One thread reads for them; it starts with the first copy."""

    def __init__(self, plan: Callable[[int], Plan], memory: StoreMemory, gauges: Gauges) -> None:
        self._plan = plan
        self._memory = memory
        self._gauges = gauges
        self._lock = threading.Lock()
        """Held while a store is opened, written, closed, or handed over."""
        self._wanted: frozenset[int] = frozenset()
        self._stores: dict[int, TaskStore] = {}
        self._positions: dict[int, int] = {}
        self._refused: set[int] = set()
        """Partitions that are not tried again: their stores belong to another changelog."""
        self._changed = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, partitions: Collection[int]) -> None:
        """Keep copies of exactly these partitions from now on. Returns at once. No other thread has their stores open."""
        with self._lock:
            self._wanted = frozenset(partitions)
            self._refused.clear()
        self._changed.set()
        if self._thread is None and partitions and not self._over.is_set():
            self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
            self._thread.start()

    def take(self, partition: int) -> TaskStore | None:
        """Return the open store of a partition that is now assigned to this worker; None if there is none.

        Waits for a batch at most.
        """
        with self._lock:
            self._wanted -= {partition}
            self._positions.pop(partition, None)
            return self._stores.pop(partition, None)

    def followed(self) -> frozenset[int]:
        """Return the partitions whose directories are in use."""
        with self._lock:
            return self._wanted | self._stores.keys()

    def positions(self) -> dict[int, int]:
        """Return partition -> the changelog offset of its copy."""
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
            except Exception as cause:  # noqa: BLE001 - copies are optional: their errors must not end the worker
                log(__name__).warning("standbys_restarted", error=str(cause), in_seconds=_RETRY_SECONDS)
                self._over.wait(_RETRY_SECONDS)

    def _live(self) -> None:
        """Follow until closed or an error; no store is open afterwards."""
        plan = self._plan(0)
        consumer = Consumer(consumer_config(plan.brokers, f"standby-{plan.changelog}", **_READER))
        read: frozenset[int] = frozenset()
        reported_at = 0.0
        try:
            while not self._over.is_set():
                self._changed.clear()
                read = self._settle(consumer, plan.changelog, read)
                if not read:
                    self._report(consumer, plan.changelog, read)
                    self._changed.wait()
                    continue
                began = time.monotonic()
                full = self._step(consumer)
                if time.monotonic() - reported_at > _REPORT_SECONDS:
                    self._report(consumer, plan.changelog, read)
                    reported_at = time.monotonic()
                if full:
                    self._over.wait((time.monotonic() - began) * (1 / _SHARE - 1))
        finally:
            with self._lock:
                for store in self._stores.values():
                    store.close()
                self._stores, self._positions = {}, {}
            consumer.close()

    def _settle(self, consumer: Consumer, changelog: str, read: frozenset[int]) -> frozenset[int]:
        """Open the wanted copies and close the others; return the partitions that are read from now on."""
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
            # A partition that was handed over and followed again is read from its store's position, which may be lower than before.
            if opened or wanted != read:
                starts = [TopicPartition(changelog, number, self._positions[number]) for number in sorted(wanted)]
                consumer.assign(starts)
        return wanted

    def _open(self, number: int, span: Span) -> None:
        plan = self._plan(number)
        store = open_or_recreate(plan, self._memory)
        try:
            store.check_origin(plan.origin)
            position = store.position()
            if position is not None and not span.holds(position):
                log(__name__).warning("standby_recreated", partition=number, position=position, span=span)
                store = recreated(plan, self._memory, store)
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
        log(__name__).info("standby_following", partition=number, position=self._positions[number], end=span.end)

    def _step(self, consumer: Consumer) -> bool:
        """Write one batch to its stores; return whether more records wait."""
        batch = consumer.consume(_BATCH, _BATCH_SECONDS)
        records, reached = _sorted(batch)
        with self._lock:
            for number, position in reached.items():
                store = self._stores.get(number)
                if store is not None and position > self._positions[number]:
                    apply_messages(self._plan(number), store, records.get(number, ()), position)
                    self._positions[number] = position
        return len(batch) == _BATCH

    def _report(self, consumer: Consumer, changelog: str, read: frozenset[int]) -> None:
        positions = self.positions()
        lags = {}
        for number in read & positions.keys():
            known = consumer.get_watermark_offsets(TopicPartition(changelog, number), cached=True)
            if known is not None and known[1] >= 0:  # unknown before the first fetch
                lags[number] = max(0, known[1] - positions[number])
        self._gauges.standbys(lags)


def _sorted(batch: Sequence[Message]) -> tuple[Mapping[int, Sequence[Message]], Mapping[int, int]]:
    """Return the records by partition, and the positions after them. Raises: KafkaException."""
    records: dict[int, list[Message]] = {}
    reached: dict[int, int] = {}
    for message in batch:
        error, number, offset = message.error(), message.partition() or 0, message.offset() or 0
        if error is None:
            records.setdefault(number, []).append(message)
            reached[number] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            reached[number] = max(reached.get(number, 0), offset)  # includes transaction markers
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return records, reached
