"""Wiring of the backing store: Cassandra behind the local stores where it is configured, else nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from starling_common.cassandra.database import Database
from starling_stream.model.ports import NoFlusher, StateFlusher
from starling_stream.model.settings import StreamSettings
from starling_stream.state.cassandra import CassandraBackingStore
from starling_stream.state.flush.flusher import Flusher, FlusherDependencies, FlushSettings
from starling_stream.state.restore.lazy_restore import BackingCopy, LazyRestore, LazyRestoreDependencies
from starling_stream.state.restore.restore import Restored
from starling_stream.worker.installation import Installation

_LAST_FLUSH_SECONDS: Final = 10.0
_READERS: Final = 4


class WorkerBackingStore:
    """The flusher of one worker, and the lazy restores of its tasks."""

    def __init__(
        self, found: Installation, settings: StreamSettings, dependencies: FlusherDependencies, wake: Callable[[], None]
    ) -> None:
        """Opens no connection."""
        self.flusher: StateFlusher = NoFlusher()
        self._settings = settings
        self._dependencies = dependencies
        self._wake = wake
        self._flushing: Flusher | None = None
        self._reads = ThreadPoolExecutor(_READERS, thread_name_prefix="user-loads")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="background-load")
        if settings.cassandra is not None and settings.backing_store:
            backing_store = CassandraBackingStore(Database(settings.cassandra), settings.backing_store_buckets)
            dependencies.gauges.bounded(settings.backing_store_unflushed_bytes)
            how = FlushSettings(settings.backing_store_flush_seconds, settings.backing_store_unflushed_bytes)
            self.flusher = self._flushing = Flusher(backing_store, found.layout, found.origin.topic_id, how, dependencies)

    def start(self) -> None:
        """Block until Cassandra responds or `backing_store_wait_seconds` have passed. Raises: LayoutChanged."""
        if self._flushing is not None:
            self._flushing.start(self._settings.backing_store_wait_seconds)

    def close(self) -> None:
        """Flush the last states, within `_LAST_FLUSH_SECONDS`. Called after all partitions were released."""
        self._reads.shutdown(wait=False, cancel_futures=True)
        self._background.shutdown(wait=False, cancel_futures=True)
        if self._flushing is not None:
            self._flushing.close(_LAST_FLUSH_SECONDS)

    def lazy_restore(self, partition: int, found: Restored, all_loaded: Callable[[], None]) -> LazyRestore:
        """Return the view of a task with users that are only in the backing store. Raises: RuntimeError without one."""
        flusher, incarnation = self._flushing, found.store.incarnation()
        if flusher is None or incarnation is None:
            raise RuntimeError(
                f"partition {partition} has users that are only in Cassandra: configure it, or delete the local store"
            )
        dependencies = self._dependencies
        needed = LazyRestoreDependencies(
            reads=self._reads,
            background=self._background,
            gauges=dependencies.gauges,
            wake=self._wake,
            all_loaded=all_loaded,
            crash=dependencies.crash,
            patience_seconds=self._settings.backing_store_patience_seconds,
        )
        source = BackingCopy(flusher.backing_store, flusher.copy(partition, incarnation))
        return LazyRestore(found.store, source, found.due_from_ms, needed)
