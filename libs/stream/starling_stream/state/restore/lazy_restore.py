"""Adapter: a task's view while some users are only in the backing store. Users that records name are loaded first.

Users belong to buckets, which a background thread loads one by one. A user of an unloaded bucket is loaded when a record names the
user, and when the due index contains the user for the near future: timers therefore fire on time for users without a record since
the restore.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from starling_common.telemetry.logs import log
from starling_stream.model.backing_store import SLOT_MS, BackingStore, BackingStoreUnavailable, PartitionCopy, bucket_of
from starling_stream.model.rows import FIRST_MS
from starling_stream.state.local_store import TaskStore
from starling_stream.state.metrics import BackingStoreGauges

_RETRY_SECONDS: Final = 0.5
_SHARE: Final = 0.6
"""Fraction of its time that the background thread may work: it shares the interpreter with the hot path."""


class BackingStoreLost(Exception):
    """Users are needed that only the backing store has, and it does not respond: the worker restarts from the changelog alone."""


class BackingCopy(NamedTuple):
    """The backing store, and the partition's copy in it."""

    backing_store: BackingStore
    copy: PartitionCopy


class LazyRestoreDependencies(NamedTuple):
    """`reads` runs loads that a record waits for, `background` the others.

    `all_loaded` is called on the event loop when all users are loaded.
    """

    reads: Executor
    background: Executor
    gauges: BackingStoreGauges
    wake: Callable[[], None]
    all_loaded: Callable[[], None]
    crash: Callable[[BaseException], None]
    patience_seconds: float


class LazyRestore:
    """A `PartialView`. Used on the event loop; loads run in threads."""

    def __init__(self, store: TaskStore, source: BackingCopy, due_from_ms: int, dependencies: LazyRestoreDependencies) -> None:
        """No user of an unloaded bucket is due before `due_from_ms`."""
        self._store = store
        self._source = source
        self._dependencies = dependencies
        self._loop = asyncio.get_running_loop()
        self._buckets = source.backing_store.buckets
        self._unloaded = set(store.unloaded())
        self._known: set[bytes] = set()
        """Keys of unloaded buckets that are loaded, or have no state."""
        self._reading = self._loading_due = False
        self._loaded_slot = due_from_ms // SLOT_MS - 1
        """All users due in this slot or before are loaded."""
        self._waiting_since: float | None = None
        self._retry_at = 0.0
        self._expedited = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        """Held while a thread uses the store, which is closed after `stop`."""

    def start(self) -> None:
        """Start to load all users."""
        self._report()
        self._dependencies.background.submit(self._load_all)

    def stop(self) -> None:
        """Stop: no thread uses the store after this returns."""
        self._stopped.set()
        self._expedited.set()
        with self._lock:
            return

    def expedite(self) -> None:
        """Load the remaining users without pauses."""
        self._expedited.set()

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the rows in the order of the keys; None where a key has none.

        A key that `is_loaded` was not called with is loaded at once, which blocks the event loop.
        """
        found = self._store.rows(keys)
        absent = [key for key, row in zip(keys, found, strict=True) if row is None and self._is_unknown(key)]
        if not absent:
            return found
        self._fetch(absent)
        self._known.update(absent)
        return self._store.rows(keys)

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the first (due, key), ascending, up to `until_ms` or to the last instant up to which all due users are loaded."""
        # A checkpoint saved before any timer was looked up has the first possible instant, and no instant lies before that.
        until_ms = min(until_ms, self._horizon_ms() - 1)
        return self._store.due(until_ms, limit) if until_ms >= FIRST_MS else []

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """Unavailable until all users are loaded. Raises: RuntimeError."""
        raise RuntimeError(
            f"{self._source.copy}: {len(self._unloaded)} buckets are not loaded, and {limit} keys after {after!r} were requested"
        )

    def is_loaded_until(self, until_ms: int) -> bool:
        """Return whether all users due up to that instant are loaded."""
        return until_ms < self._horizon_ms()

    def earliest_due_ms(self) -> int:
        """Return an instant before which no user is due, in milliseconds. Safe in any thread; does not block."""
        # With a checkpoint at the first possible instant the horizon may lie before it, which no row can store.
        return max(FIRST_MS, min(self._store.earliest_ms(), self._horizon_ms()))

    def is_loaded(self, keys: Sequence[bytes], until_ms: int) -> bool:
        """Return whether these keys can be read. If not, start to load them; the runner is woken when they are loaded."""
        self._load_ahead(until_ms)
        missing = self._missing(keys)
        if not missing:
            self._waiting_since = None
            return True
        self._waiting_since = self._waiting_since or time.monotonic()
        if time.monotonic() - self._waiting_since > self._dependencies.patience_seconds:
            self._dependencies.crash(BackingStoreLost(f"{self._source.copy}: {len(missing)} users are needed: check Cassandra"))
        elif not self._reading and time.monotonic() >= self._retry_at:
            self._reading = True
            future = self._loop.run_in_executor(self._dependencies.reads, self._fetch, missing)
            future.add_done_callback(lambda done: self._fetched(done, missing))
        return False

    def _horizon_ms(self) -> int:
        return (self._loaded_slot + 1) * SLOT_MS

    def _is_unknown(self, key: bytes) -> bool:
        return bucket_of(key, self._buckets) in self._unloaded and key not in self._known

    def _missing(self, keys: Sequence[bytes]) -> list[bytes]:
        unknown = [key for key in dict.fromkeys(keys) if self._is_unknown(key)]
        if not unknown:
            return []
        found = self._store.rows(unknown)
        here = [key for key, row in zip(unknown, found, strict=True) if row is not None]
        self._known.update(here)
        self._dependencies.gauges.read(len(here), 0, 0)
        return [key for key, row in zip(unknown, found, strict=True) if row is None]

    def _fetch(self, keys: Sequence[bytes]) -> int:
        """Load these keys, in a thread. Returns how many rows the backing store had. Raises: BackingStoreUnavailable."""
        rows = self._source.backing_store.rows(self._source.copy, keys)
        with self._lock:
            if rows and not self._stopped.is_set():
                self._store.adopt(rows)
        self._dependencies.gauges.read(0, len(rows), len(keys) - len(rows))
        return len(rows)

    def _fetched(self, done: "asyncio.Future[int]", keys: Sequence[bytes]) -> None:
        self._reading = False
        cause = done.exception()
        if cause is None:
            self._known.update(keys)
        else:
            self._failed(cause)
        self._dependencies.wake()

    def _load_ahead(self, until_ms: int) -> None:
        """Load the users due up to then and in the minute after, before their timers are due."""
        last = until_ms // SLOT_MS + 1
        if last <= self._loaded_slot or self._loading_due or time.monotonic() < self._retry_at:
            return
        self._loading_due = True
        slots = self._loaded_slot + 1, last
        future = self._loop.run_in_executor(self._dependencies.reads, self._load_due, sorted(self._unloaded), slots)
        future.add_done_callback(lambda done: self._due_loaded(done, last))

    def _load_due(self, buckets: Sequence[int], slots: tuple[int, int]) -> int:
        """Load the users of these slots, in a thread. Raises: BackingStoreUnavailable."""
        backing_store, copy = self._source
        for bucket in buckets:
            for keys in backing_store.due(copy, bucket, slots):
                if self._stopped.is_set():
                    return 0
                if keys:
                    self._fetch(keys)
        return 0

    def _due_loaded(self, done: "asyncio.Future[int]", last: int) -> None:
        self._loading_due = False
        cause = done.exception()
        if cause is None:
            self._loaded_slot = max(self._loaded_slot, last)
        else:
            self._failed(cause)
        self._dependencies.wake()

    def _failed(self, cause: BaseException) -> None:
        if not isinstance(cause, BackingStoreUnavailable):
            self._dependencies.crash(cause)
            return
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        log(__name__).warning("user_load_retried", partition=self._source.copy.partition, error=str(cause))

    def _load_all(self) -> None:
        """Load bucket after bucket, in the background thread."""
        began = time.monotonic()
        try:
            left = sorted(self._store.unloaded())
            while left and not self._stopped.is_set():
                try:
                    self._load_bucket(left[0])
                except BackingStoreUnavailable as cause:
                    log(__name__).warning("background_load_retried", partition=self._source.copy.partition, error=str(cause))
                    self._stopped.wait(_RETRY_SECONDS)
                    continue
                self._save_unloaded(left[1:])
                self._loop.call_soon_threadsafe(self._bucket_loaded, left.pop(0))
            seconds = round(time.monotonic() - began, 1)
            log(__name__).info("all_users_loaded", partition=self._source.copy.partition, seconds=seconds)
        except Exception as cause:  # noqa: BLE001 - without this thread users would stay unloaded
            self._dependencies.crash(cause)

    def _load_bucket(self, bucket: int) -> None:
        backing_store, copy = self._source
        began = time.monotonic()
        for page in backing_store.scan(copy, bucket):
            with self._lock:
                if self._stopped.is_set():
                    return
                self._store.adopt(dict(page))
            if not self._expedited.is_set():
                self._expedited.wait((time.monotonic() - began) * (1 / _SHARE - 1))
            began = time.monotonic()

    def _save_unloaded(self, unloaded: Sequence[int]) -> None:
        with self._lock:
            if not self._stopped.is_set():
                self._store.set_unloaded(unloaded)

    def _bucket_loaded(self, bucket: int) -> None:
        if self._stopped.is_set():
            return
        self._unloaded.discard(bucket)
        self._report()
        if not self._unloaded:
            self._dependencies.all_loaded()

    def _report(self) -> None:
        self._dependencies.gauges.loaded(self._source.copy.partition, 1 - len(self._unloaded) / self._buckets)
