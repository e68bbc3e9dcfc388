"""Adapter: a task's store while some of its users are in the tier alone. Who is touched is brought first, the rest meanwhile.

Users belong to buckets; a bucket whose users are all here is warm. Of a cold bucket, a user is read when a record names them, and
when the due index says that they are due soon: so timers fire on time for users whom nothing has touched since the restore.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from starling_common.logs import log
from starling_stream.model.backing_store import SLOT_MS, Backing, BackingAway, Place, bucket_of
from starling_stream.model.rows import FIRST_MS
from starling_stream.state.local_store import TaskStore
from starling_stream.state.metrics import TierGauges

_RETRY_SECONDS: Final = 0.5
_SHARE: Final = 0.6
"""Of its time that the background may work while nobody waits for it: it shares the interpreter with the hot path."""


class TierLost(Exception):
    """Users are needed that only the tier has, and it does not answer: the worker starts anew, from the changelog alone."""


class Behind(NamedTuple):
    """The tier, and where the partition's rows are in it."""

    backing: Backing
    place: Place


class Help(NamedTuple):
    """`reads` runs what somebody waits for, `background` the rest. `warm` is called on the event loop when all users are here."""

    reads: Executor
    background: Executor
    gauges: TierGauges
    wake: Callable[[], None]
    warm: Callable[[], None]
    crash: Callable[[BaseException], None]
    patience_seconds: float


class Warming:
    """A `PartialView`. Used on the event loop; reads and the background run in threads."""

    def __init__(self, store: TaskStore, behind: Behind, due_from_ms: int, helped: Help) -> None:
        """Nobody in a cold bucket is due before `due_from_ms`."""
        self._store = store
        self._behind = behind
        self._help = helped
        self._loop = asyncio.get_running_loop()
        self._buckets = behind.backing.buckets
        self._cold = set(store.cold())
        self._known: set[bytes] = set()
        """Keys of cold buckets that are here, or nowhere."""
        self._reading = self._looking = False
        self._seen_slot = due_from_ms // SLOT_MS - 1
        """Everybody due in this slot or before is here."""
        self._waiting_since: float | None = None
        self._retry_at = 0.0
        self._hurried = threading.Event()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        """Held while a thread uses the store, which is closed after `stop`."""

    def start(self) -> None:
        """Begin to bring everybody."""
        self._tell()
        self._help.background.submit(self._bring_all)

    def stop(self) -> None:
        """The store is not used by any thread after this."""
        self._stopped.set()
        self._hurried.set()
        with self._lock:
            return

    def hurry(self) -> None:
        """Somebody waits for all users."""
        self._hurried.set()

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """As `StateView.rows`. A key that was not asked for with `covers` is read at once, and holds everybody up."""
        found = self._store.rows(keys)
        absent = [key for key, row in zip(keys, found, strict=True) if row is None and self._is_unknown(key)]
        if not absent:
            return found
        self._fetch(absent)
        self._known.update(absent)
        return self._store.rows(keys)

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """As `StateView.due`, but no further than everybody who is due is here."""
        # A floor that was moved before anybody was looked for says "from the first instant on": no instant lies before that.
        until_ms = min(until_ms, self._horizon_ms() - 1)
        return self._store.due(until_ms, limit) if until_ms >= FIRST_MS else []

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """Not before all are here. Raises: RuntimeError."""
        raise RuntimeError(
            f"{self._behind.place}: {len(self._cold)} buckets are cold; after {after!r}, {limit} keys were asked for"
        )

    def sees(self, until_ms: int) -> bool:
        """Whether everybody due up to that instant is here."""
        return until_ms < self._horizon_ms()

    def lowest(self) -> int:
        """As `Lowest`."""
        # Restored from a floor that says "from the first instant on", the horizon may begin before that: no row can hold it.
        return max(FIRST_MS, min(self._store.earliest_ms(), self._horizon_ms()))

    def covers(self, keys: Sequence[bytes], until_ms: int) -> bool:
        """Whether these keys can be read at once; if not, they are brought, and the runner is woken. The same for who is due."""
        self._look_ahead(until_ms)
        missing = self._missing(keys)
        if not missing:
            self._waiting_since = None
            return True
        self._waiting_since = self._waiting_since or time.monotonic()
        if time.monotonic() - self._waiting_since > self._help.patience_seconds:
            self._help.crash(TierLost(f"{self._behind.place}: {len(missing)} users are needed"))
        elif not self._reading and time.monotonic() >= self._retry_at:
            self._reading = True
            future = self._loop.run_in_executor(self._help.reads, self._fetch, missing)
            future.add_done_callback(lambda done: self._fetched(done, missing))
        return False

    def _horizon_ms(self) -> int:
        return (self._seen_slot + 1) * SLOT_MS

    def _is_unknown(self, key: bytes) -> bool:
        return bucket_of(key, self._buckets) in self._cold and key not in self._known

    def _missing(self, keys: Sequence[bytes]) -> list[bytes]:
        unknown = [key for key in dict.fromkeys(keys) if self._is_unknown(key)]
        if not unknown:
            return []
        found = self._store.rows(unknown)
        here = [key for key, row in zip(unknown, found, strict=True) if row is not None]
        self._known.update(here)
        self._help.gauges.read(len(here), 0, 0)
        return [key for key, row in zip(unknown, found, strict=True) if row is None]

    def _fetch(self, keys: Sequence[bytes]) -> int:
        """In a thread. Returns how many the tier had. Raises: BackingAway."""
        rows = self._behind.backing.rows(self._behind.place, keys)
        with self._lock:
            if rows and not self._stopped.is_set():
                self._store.adopt(rows)
        self._help.gauges.read(0, len(rows), len(keys) - len(rows))
        return len(rows)

    def _fetched(self, done: "asyncio.Future[int]", keys: Sequence[bytes]) -> None:
        self._reading = False
        cause = done.exception()
        if cause is None:
            self._known.update(keys)
        else:
            self._failed(cause)
        self._help.wake()

    def _look_ahead(self, until_ms: int) -> None:
        """Bring who is due up to then, and a minute later: so they are here before their time comes."""
        last = until_ms // SLOT_MS + 1
        if last <= self._seen_slot or self._looking or time.monotonic() < self._retry_at:
            return
        self._looking = True
        future = self._loop.run_in_executor(self._help.reads, self._bring_due, sorted(self._cold), (self._seen_slot + 1, last))
        future.add_done_callback(lambda done: self._looked(done, last))

    def _bring_due(self, buckets: Sequence[int], slots: tuple[int, int]) -> int:
        """In a thread. Raises: BackingAway."""
        backing, place = self._behind
        for bucket in buckets:
            for keys in backing.due(place, bucket, slots):
                if self._stopped.is_set():
                    return 0
                if keys:
                    self._fetch(keys)
        return 0

    def _looked(self, done: "asyncio.Future[int]", last: int) -> None:
        self._looking = False
        cause = done.exception()
        if cause is None:
            self._seen_slot = max(self._seen_slot, last)
        else:
            self._failed(cause)
        self._help.wake()

    def _failed(self, cause: BaseException) -> None:
        if not isinstance(cause, BackingAway):
            self._help.crash(cause)
            return
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        log(__name__).warning("cold_users_wait", partition=self._behind.place.partition, error=str(cause))

    def _bring_all(self) -> None:
        """In the background's thread: bucket after bucket."""
        began = time.monotonic()
        try:
            left = sorted(self._store.cold())
            while left and not self._stopped.is_set():
                try:
                    self._bring(left[0])
                except BackingAway as cause:
                    log(__name__).warning("hydration_waits", partition=self._behind.place.partition, error=str(cause))
                    self._stopped.wait(_RETRY_SECONDS)
                    continue
                self._keep(left[1:])
                self._loop.call_soon_threadsafe(self._bucket_is_warm, left.pop(0))
            log(__name__).info("hydrated", partition=self._behind.place.partition, seconds=round(time.monotonic() - began, 1))
        except Exception as cause:  # noqa: BLE001 - whatever broke it, users would stay cold for ever
            self._help.crash(cause)

    def _bring(self, bucket: int) -> None:
        backing, place = self._behind
        began = time.monotonic()
        for page in backing.scan(place, bucket):
            with self._lock:
                if self._stopped.is_set():
                    return
                self._store.adopt(dict(page))
            if not self._hurried.is_set():
                self._hurried.wait((time.monotonic() - began) * (1 / _SHARE - 1))
            began = time.monotonic()

    def _keep(self, cold: Sequence[int]) -> None:
        with self._lock:
            if not self._stopped.is_set():
                self._store.keep_cold(cold)

    def _bucket_is_warm(self, bucket: int) -> None:
        if self._stopped.is_set():
            return
        self._cold.discard(bucket)
        self._tell()
        if not self._cold:
            self._help.warm()

    def _tell(self) -> None:
        self._help.gauges.warm(self._behind.place.partition, 1 - len(self._cold) / self._buckets)
