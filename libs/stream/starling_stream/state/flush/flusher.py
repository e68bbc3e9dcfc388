"""Adapter: flushes committed states to the backing store, in a thread of its own.

A flush takes the changes committed since the last one, writes them, and then advances the flushed offset. While the backing store
is unavailable, unflushed changes accumulate. Above the limit the worker is slowed down. Above twice the limit the changes are
dropped, and the backing store is later filled from the local store. No state is lost, because the changelog contains every change.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from starling_common.retries import retrying
from starling_common.telemetry.logs import log
from starling_stream.model.backing_store import (
    BackingStore,
    BackingStoreUnavailable,
    Checkpoint,
    PartitionCopy,
    StageLayout,
    StateWrite,
    layout_changes,
)
from starling_stream.model.failpoints import AFTER_FLUSH, MID_FLUSH, Failpoints
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.ports import Changed, EarliestDue, FilledStore, Tail
from starling_stream.state.flush.tracked import RebuildRequested, TrackedPartition, incarnation_after_outage
from starling_stream.state.flush.unflushed import Taken, filling, writes_of
from starling_stream.state.metrics import BackingStoreGauges

_SLICE: Final = 1_000
"""Rows written before the thread checks whether to stop or rest."""
_CHECK_SECONDS: Final = 10.0
"""The least time between two checks of whether an operator created an incarnation; they belong to flushes."""
_RETRY_SECONDS: Final = 1.0
_FILL_SECONDS: Final = 5.0
"""How long a partition is filled before the others get their turn."""
_EARLY: Final = 0.25
"""The unflushed bytes, as a fraction of their limit, from which a flush does not wait for its time."""
_FIRST: Final = Checkpoint(0, None, b"", 0)


class LayoutChanged(Exception):
    """The layout of the installation differs from the frozen one; the message contains the cure."""


class FlushSettings(NamedTuple):
    """`unflushed_bytes`: limit of unflushed rows in the whole process.

    `share`: fraction of its time that the flushing thread may work while few bytes are unflushed.
    """

    flush_seconds: float
    unflushed_bytes: int
    share: float = 0.5


class FlusherDependencies(NamedTuple):
    """The dependencies of a flusher besides the backing store. `crash` may be called from any thread."""

    gauges: BackingStoreGauges
    failpoints: Failpoints
    crash: Callable[[BaseException], None]


class Flusher:
    """Flushes committed states to the backing store, in a thread of its own."""

    def __init__(
        self,
        backing_store: BackingStore,
        layout: StageLayout,
        log_id: str,
        settings: FlushSettings,
        dependencies: FlusherDependencies,
    ) -> None:
        """Opens no connection and starts no thread. `log_id`: the id of the changelog."""
        self.on = True
        self.buckets = backing_store.buckets
        self.backing_store = backing_store
        self._layout = layout
        self._log_id = log_id
        self._settings = settings
        self._dependencies = dependencies
        self._lock = threading.Lock()
        self._tracked: dict[int, TrackedPartition] = {}
        self._leaving: list[TrackedPartition] = []
        self._taken_bytes = 0
        self._checked = False
        self._flushed_at = time.monotonic()
        self._stopping = threading.Event()
        self._flush_now = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self, wait_seconds: float) -> None:
        """Start the thread, after waiting for the backing store; an unavailable one delays the start by `wait_seconds` at most.

        Raises: LayoutChanged.
        """
        try:
            retrying(wait_seconds)(BackingStoreUnavailable, self._check_layout)
        except BackingStoreUnavailable as cause:
            log(__name__).warning("backing_store_unavailable_at_start", error=str(cause))
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Flush once more, within this many seconds, and end."""
        self._stopping.set()
        self._flush_now.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self.backing_store.close()

    def checkpoint(self, partition: int) -> Checkpoint | None:
        """Return the checkpoint of a partition; None if the backing store does not respond."""
        try:
            self._check_layout()
            return self.backing_store.checkpoint(self._log_id, partition) or _FIRST
        except BackingStoreUnavailable as cause:
            log(__name__).warning("backing_store_unavailable", partition=partition, error=str(cause))
            return None

    def begin(self, partition: int, incarnation: int) -> bool:
        """Create an incarnation of the partition; return False if the backing store does not respond."""
        try:
            self.backing_store.begin(PartitionCopy(self._log_id, partition, incarnation))
        except BackingStoreUnavailable:
            return False
        log(__name__).warning("incarnation_created", partition=partition, incarnation=incarnation)
        return True

    def copy(self, partition: int, incarnation: int) -> PartitionCopy:
        """Return the id of a partition's copy."""
        return PartitionCopy(self._log_id, partition, incarnation)

    def track(self, partition: int, store: FilledStore, tail: Tail, earliest_due_ms: EarliestDue) -> None:
        """Flush the commits of this partition from now on."""
        copy = None if tail.incarnation is None else self.copy(partition, tail.incarnation)
        tracked = TrackedPartition(partition, copy, store, tail, earliest_due_ms)
        with self._lock:
            self._tracked[partition] = tracked

    def committed(self, partition: int, changes: Mapping[bytes, Changed], meta: TaskMeta, position: int) -> None:
        """Take committed changes from the commit thread; `position` is the changelog offset after them.

        Measured at 0.3 µs a changed key.
        """
        with self._lock:
            tracked = self._tracked.get(partition)
            if tracked is None:
                return
            tracked.unflushed.add(changes, position, encode_meta(meta))
            bound, size = self._settings.unflushed_bytes, self._size()
            if size > 2 * bound:
                self._drop_unflushed()
        if size > bound * _EARLY:
            self._flush_now.set()

    def release(self, partition: int) -> None:
        """Stop to flush a partition. Its unflushed changes are flushed once more, without a retry."""
        with self._lock:
            tracked = self._tracked.pop(partition, None)
            if tracked is None:
                return
            self._leaving.append(tracked)
        with tracked.lock:
            tracked.store = None
        self._flush_now.set()

    def pressure(self) -> float:
        """Return the delay of the next batch in seconds: 0 up to the bound of unflushed bytes, 1 from twice the bound on."""
        return min(1.0, max(0.0, self._filled() - 1.0))

    def _filled(self) -> float:
        with self._lock:
            return self._size() / self._settings.unflushed_bytes

    def _size(self) -> int:
        return self._taken_bytes + sum(tracked.unflushed.size_bytes for tracked in self._tracked.values())

    def _drop_unflushed(self) -> None:
        for tracked in self._tracked.values():
            tracked.unflushed.drop()
        log(__name__).warning("unflushed_changes_dropped", bound_bytes=self._settings.unflushed_bytes)

    def _run(self) -> None:
        try:
            pause = self._settings.flush_seconds
            while not self._stopping.is_set():
                self._flush_now.wait(pause)
                self._flush_now.clear()
                ok = self._flush_all()
                if not ok and not self._stopping.is_set():
                    self._stopping.wait(_RETRY_SECONDS)
                pause = self._pause_seconds(ok)
            self._flush_all()
        except Exception as cause:  # noqa: BLE001 - the worker must not continue without this thread
            self._dependencies.crash(cause)

    def _pause_seconds(self, ok: bool) -> float:
        """Return the time until the next flush, unless it comes early: shorter after a failure, and while a partition is filled."""
        if not ok:
            return min(self._settings.flush_seconds, _RETRY_SECONDS)
        with self._lock:
            filling_one = any(tracked.filled_to is not None for tracked in self._tracked.values())
        return min(self._settings.flush_seconds, _FILL_SECONDS) if filling_one else self._settings.flush_seconds

    def _flush_all(self) -> bool:
        """Flush every partition once; return False if the backing store did not respond."""
        with self._lock:
            tracked, self._leaving = [*self._tracked.values(), *self._leaving], []
        ok = True
        for one in tracked:
            try:
                self._check_layout()
                self._flush_partition(one)
            except BackingStoreUnavailable as cause:
                log(__name__).warning("backing_store_unavailable", partition=one.partition, error=str(cause))
                ok = False
                break
        if ok:
            self._flushed_at = time.monotonic()
        self._report(ok)
        return ok

    def _report(self, ok: bool) -> None:
        with self._lock:
            size = self._size()
            lags = {number: max(0, one.unflushed.position - max(0, one.flushed_offset)) for number, one in self._tracked.items()}
        self._dependencies.gauges.flushed(ok, time.monotonic() - self._flushed_at, size, lags)

    def _check_layout(self) -> None:
        """Check the layout once. Raises: LayoutChanged, BackingStoreUnavailable."""
        if self._checked:
            return
        wrong = layout_changes(self.backing_store.freeze(self._layout), self._layout)
        if wrong:
            raise LayoutChanged("; ".join(wrong))
        self._checked = True

    def _flush_partition(self, tracked: TrackedPartition) -> None:
        if tracked.copy is None or time.monotonic() - tracked.checked_at > _CHECK_SECONDS:
            self._check_incarnation(tracked)
        self._begin_fill(tracked)
        self._flush(tracked)
        if self._fill(tracked):
            self._flush(tracked)  # advances the flushed offset

    def _check_incarnation(self, tracked: TrackedPartition) -> None:
        """Find the partition's copy, or check that it is still the newest."""
        checkpoint = self.backing_store.checkpoint(self._log_id, tracked.partition) or _FIRST
        tracked.checked_at = time.monotonic()
        if tracked.copy is not None:
            if checkpoint.incarnation > tracked.copy.incarnation and tracked.store is not None:
                raise RebuildRequested(f"partition {tracked.partition}: an operator created incarnation {checkpoint.incarnation}")
            return
        with tracked.lock:
            store = tracked.store
            if store is None:
                return  # released before the backing store was reached
            incarnation = incarnation_after_outage(checkpoint, store.incarnation(), tracked.unflushed.position)
            copy = PartitionCopy(self._log_id, tracked.partition, incarnation)
            if incarnation != checkpoint.incarnation:
                self.backing_store.begin(copy)
            store.set_incarnation(incarnation)
        tracked.copy = copy

    def _begin_fill(self, tracked: TrackedPartition) -> None:
        """Start to fill the backing store after changes were dropped: new changes are kept, the others are read from the store."""
        with self._lock:
            if not tracked.unflushed.dropped:
                return
            tracked.unflushed.resume()
            tracked.filled_at = tracked.unflushed.position
        tracked.filled_to = b""

    def _flush(self, tracked: TrackedPartition) -> None:
        copy = tracked.copy
        if copy is None:
            return
        with self._lock:
            if tracked.unflushed.dropped:
                return
            taken = tracked.unflushed.take()
            self._taken_bytes += taken.size_bytes
        earliest_due_ms = tracked.earliest_due_ms()
        try:
            self._write(copy, writes_of(taken))
        except BaseException:
            with self._lock:
                tracked.unflushed.put_back(taken)
            raise
        finally:
            with self._lock:
                self._taken_bytes -= taken.size_bytes
        self._dependencies.failpoints.passed(AFTER_FLUSH)
        if tracked.filled_to is None:
            self._save_checkpoint(tracked, copy, taken, earliest_due_ms)

    def _save_checkpoint(self, tracked: TrackedPartition, copy: PartitionCopy, taken: Taken, earliest_due_ms: int) -> None:
        if taken.position > tracked.flushed_offset:
            self.backing_store.save_checkpoint(copy, Checkpoint(copy.incarnation, taken.position, taken.meta, earliest_due_ms))
            tracked.flushed_offset = taken.position

    def _fill(self, tracked: TrackedPartition) -> bool:
        """Write some of the store's rows; return True with the last one."""
        deadline = time.monotonic() + min(self._settings.flush_seconds, _FILL_SECONDS)
        while tracked.filled_to is not None and tracked.copy is not None and time.monotonic() < deadline:
            with tracked.lock:
                if tracked.store is None or tracked.store.unloaded():
                    return False  # the backing store has the users that are not loaded
                rows = tracked.store.rows_after(tracked.filled_to, _SLICE)
            self._write(tracked.copy, filling(rows, tracked.filled_at))
            tracked.filled_to = rows[-1][0] if len(rows) == _SLICE else None
            if tracked.filled_to is None:
                return True
        return False

    def _write(self, copy: PartitionCopy, writes: Iterable[StateWrite]) -> None:
        for part in _slices(writes):
            self._dependencies.failpoints.passed(MID_FLUSH)
            began = time.monotonic()
            self.backing_store.write(copy, part)
            took = time.monotonic() - began
            self._dependencies.gauges.wrote(len(part))
            if not self._stopping.is_set():
                self._stopping.wait(rest_seconds(took, self._settings.share, self._filled()))


def rest_seconds(took: float, share: float, filled: float) -> float:
    """Return how long the flushing thread rests after `took` seconds of work: it shares the interpreter with the hot path.

    `filled`: the unflushed bytes as a fraction of their limit. Up to a quarter the thread keeps to its share; from three quarters
    on it does not rest. The unflushed bytes therefore settle far below the limit when changes arrive as fast as it can write.
    """
    return took * (1 / share - 1) * min(1.0, max(0.0, 1.5 - 2 * filled))


def _slices(writes: Iterable[StateWrite]) -> Iterator[Sequence[StateWrite]]:
    source = iter(writes)
    while part := list(islice(source, _SLICE)):
        yield part
