"""Adapter: keeps the tier behind the local stores up to date, in a thread of its own. The hot path only leaves word here.

A flush: take what was committed since the last one, write all of it, then move the floor. If the tier is away, changes pile up;
beyond the bound the worker is slowed down; beyond twice the bound they are let go, and once the tier is back it is filled from
the store. Nothing is lost by it: the changelog has everything.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from starling_common.logs import log
from starling_stream.model.backing_store import Backing, BackingAway, Facts, Place, Standing, StateWrite, disagreements
from starling_stream.model.failpoints import AFTER_FLUSH, MID_FLUSH, Failpoints
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.ports import Changed, FilledStore, Lowest, Tail
from starling_stream.state.metrics import TierGauges
from starling_stream.state.tracked import RebuildAsked, Tracked, incarnation_found_late
from starling_stream.state.unflushed import Taken, filling, writes_of

_SLICE: Final = 1_000
"""Rows written before the thread looks up again."""
_LOOK_SECONDS: Final = 10.0
"""How often the tier is asked whether an operator began an incarnation."""
_RETRY_SECONDS: Final = 1.0
_FIRST: Final = Standing(0, None, b"", 0)


class FactsDiffer(Exception):
    """The installation is not the one that the states were written under; the message says what to do."""


class TierSettings(NamedTuple):
    """`dirty_bytes`: rows that wait to be written, whole process.

    `share`: of its time that the flushing thread may work, as long as little waits (see `rest_seconds`).
    """

    flush_seconds: float
    dirty_bytes: int
    share: float = 0.5


class Surroundings(NamedTuple):
    """What a tier works with besides its rows. `crash` may be called from any thread."""

    gauges: TierGauges
    failpoints: Failpoints
    crash: Callable[[BaseException], None]


class Tier:
    """A `BackingTier`."""

    def __init__(self, backing: Backing, facts: Facts, log_id: str, settings: TierSettings, around: Surroundings) -> None:
        """Opens nothing and starts nothing. `log_id`: the id of the changelog."""
        self.on = True
        self.buckets = backing.buckets
        self.backing = backing
        self._facts = facts
        self._log_id = log_id
        self._settings = settings
        self._around = around
        self._lock = threading.Lock()
        self._tracked: dict[int, Tracked] = {}
        self._leaving: list[Tracked] = []
        self._taken_bytes = 0
        self._checked = False
        self._flushed_at = time.monotonic()
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier", daemon=True)

    def start(self, wait_seconds: float) -> None:
        """Begin to flush; waits so long for the tier to answer, and goes on without it if it does not.

        Raises: FactsDiffer.
        """
        deadline = time.monotonic() + wait_seconds
        while not self._checked:
            try:
                self._check_facts()
            except BackingAway as cause:
                if time.monotonic() >= deadline:
                    log(__name__).warning("tier_away_at_start", error=str(cause))
                    break
                time.sleep(0.5)
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Flush once more if that takes no longer than so many seconds, and end."""
        self._stopping.set()
        self._hurry.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self.backing.close()

    def standing(self, partition: int) -> Standing | None:
        """As `BackingTier.standing`."""
        try:
            self._check_facts()
            return self.backing.standing(self._log_id, partition) or _FIRST
        except BackingAway as cause:
            log(__name__).warning("tier_away", partition=partition, error=str(cause))
            return None

    def begin(self, partition: int, incarnation: int) -> bool:
        """As `BackingTier.begin`."""
        try:
            self.backing.begin(Place(self._log_id, partition, incarnation))
        except BackingAway:
            return False
        log(__name__).warning("tier_incarnation_begun", partition=partition, incarnation=incarnation)
        return True

    def place(self, partition: int, incarnation: int) -> Place:
        """Where a partition's rows are."""
        return Place(self._log_id, partition, incarnation)

    def track(self, partition: int, store: FilledStore, tail: Tail, lowest: Lowest) -> None:
        """As `BackingTier.track`."""
        place = None if tail.incarnation is None else self.place(partition, tail.incarnation)
        tracked = Tracked(partition, place, store, tail, lowest)
        with self._lock:
            self._tracked[partition] = tracked

    def committed(self, partition: int, changes: Mapping[bytes, Changed], meta: TaskMeta, position: int) -> None:
        """As `BackingTier.committed`; measured at 0.3 µs a changed key."""
        with self._lock:
            tracked = self._tracked.get(partition)
            if tracked is None:
                return
            tracked.unflushed.add(changes, position, encode_meta(meta))
            bound, size = self._settings.dirty_bytes, self._size()
            if size > 2 * bound:
                self._let_go()
        if size > bound // 2:
            self._hurry.set()

    def release(self, partition: int) -> None:
        """As `BackingTier.release`: what is not flushed yet is, once more and only if that goes well."""
        with self._lock:
            tracked = self._tracked.pop(partition, None)
            if tracked is None:
                return
            self._leaving.append(tracked)
        with tracked.lock:
            tracked.store = None
        self._hurry.set()

    def pressure(self) -> float:
        """As `BackingTier.pressure`: up to a second a round when twice the bound is reached."""
        return min(1.0, max(0.0, self._filled() - 1.0))

    def _filled(self) -> float:
        with self._lock:
            return self._size() / self._settings.dirty_bytes

    def _size(self) -> int:
        return self._taken_bytes + sum(tracked.unflushed.size_bytes for tracked in self._tracked.values())

    def _let_go(self) -> None:
        for tracked in self._tracked.values():
            tracked.unflushed.lose()
        log(__name__).warning("tier_changes_let_go", bound_bytes=self._settings.dirty_bytes)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._hurry.wait(self._settings.flush_seconds)
                self._hurry.clear()
                if not self._round() and not self._stopping.is_set():
                    self._stopping.wait(_RETRY_SECONDS)
            self._round()
        except Exception as cause:  # noqa: BLE001 - whatever broke the thread, the worker must not go on without it
            self._around.crash(cause)

    def _round(self) -> bool:
        """Care for every partition once; False when the tier did not answer."""
        with self._lock:
            tracked, self._leaving = [*self._tracked.values(), *self._leaving], []
        well = True
        for one in tracked:
            try:
                self._check_facts()
                self._care(one)
            except BackingAway as cause:
                log(__name__).warning("tier_away", partition=one.partition, error=str(cause))
                well = False
                break
        if well:
            self._flushed_at = time.monotonic()
        self._tell(well)
        return well

    def _tell(self, well: bool) -> None:
        with self._lock:
            size = self._size()
            lags = {number: max(0, one.unflushed.position - max(0, one.floor)) for number, one in self._tracked.items()}
        self._around.gauges.flushed(well, time.monotonic() - self._flushed_at, size, lags)

    def _check_facts(self) -> None:
        """Once. Raises: FactsDiffer, BackingAway."""
        if self._checked:
            return
        wrong = disagreements(self.backing.freeze(self._facts), self._facts)
        if wrong:
            raise FactsDiffer("; ".join(wrong))
        self._checked = True

    def _care(self, tracked: Tracked) -> None:
        if tracked.place is None or time.monotonic() - tracked.looked_at > _LOOK_SECONDS:
            self._look(tracked)
        self._begin_fill(tracked)
        self._flush(tracked)
        if self._fill(tracked):
            self._flush(tracked)  # moves the floor

    def _look(self, tracked: Tracked) -> None:
        """Find the partition's place in the tier, or see that it is still the same."""
        standing = self.backing.standing(self._log_id, tracked.partition) or _FIRST
        tracked.looked_at = time.monotonic()
        if tracked.place is not None:
            if standing.incarnation > tracked.place.incarnation and tracked.store is not None:
                raise RebuildAsked(f"partition {tracked.partition}: incarnation {standing.incarnation} was begun elsewhere")
            return
        with tracked.lock:
            store = tracked.store
            if store is None:
                return  # let go before the tier was ever reached
            incarnation = incarnation_found_late(standing, store.incarnation(), tracked.unflushed.position)
            place = Place(self._log_id, tracked.partition, incarnation)
            if incarnation != standing.incarnation:
                self.backing.begin(place)
            store.set_incarnation(incarnation)
        tracked.place = place

    def _begin_fill(self, tracked: Tracked) -> None:
        """The tier answers, and changes were let go: what is committed from now on is kept, the rest comes from the store."""
        with self._lock:
            if not tracked.unflushed.lost:
                return
            tracked.unflushed.follow()
            tracked.filled_at = tracked.unflushed.position
        tracked.filled_to = b""

    def _flush(self, tracked: Tracked) -> None:
        place = tracked.place
        if place is None:
            return
        with self._lock:
            if tracked.unflushed.lost:
                return
            taken = tracked.unflushed.take()
            self._taken_bytes += taken.size_bytes
        lowest = tracked.lowest()
        try:
            self._write(place, writes_of(taken))
        except BaseException:
            with self._lock:
                tracked.unflushed.give_back(taken)
            raise
        finally:
            with self._lock:
                self._taken_bytes -= taken.size_bytes
        self._around.failpoints.passed(AFTER_FLUSH)
        if tracked.filled_to is None:
            self._move_floor(tracked, place, taken, lowest)

    def _move_floor(self, tracked: Tracked, place: Place, taken: Taken, lowest: int) -> None:
        if taken.position > tracked.floor:
            self.backing.move_floor(place, Standing(place.incarnation, taken.position, taken.meta, lowest))
            tracked.floor = taken.position

    def _fill(self, tracked: Tracked) -> bool:
        """Write some of the store's rows; True when the last one was among them."""
        deadline = time.monotonic() + self._settings.flush_seconds
        while tracked.filled_to is not None and tracked.place is not None and time.monotonic() < deadline:
            with tracked.lock:
                if tracked.store is None or tracked.store.cold():
                    return False  # what is still cold is in the tier: the rest follows once all is here
                rows = tracked.store.rows_after(tracked.filled_to, _SLICE)
            self._write(tracked.place, filling(rows, tracked.filled_at))
            tracked.filled_to = rows[-1][0] if len(rows) == _SLICE else None
            if tracked.filled_to is None:
                return True
        return False

    def _write(self, place: Place, writes: Iterable[StateWrite]) -> None:
        for part in _slices(writes):
            self._around.failpoints.passed(MID_FLUSH)
            began = time.monotonic()
            self.backing.write(place, part)
            took = time.monotonic() - began
            self._around.gauges.wrote(len(part))
            if not self._stopping.is_set():
                self._stopping.wait(rest_seconds(took, self._settings.share, self._filled()))


def rest_seconds(took: float, share: float, filled: float) -> float:
    """How long the flushing thread is to rest after it worked for `took` seconds: it shares the interpreter with the hot path.

    `filled`: how much waits, of what may. Up to a quarter of that the thread keeps to its share; from three quarters on it
    does not rest. So what waits settles far below the bound where changes keep coming as fast as it can write.
    """
    return took * (1 / share - 1) * min(1.0, max(0.0, 1.5 - 2 * filled))


def _slices(writes: Iterable[StateWrite]) -> Iterator[Sequence[StateWrite]]:
    source = iter(writes)
    while part := list(islice(source, _SLICE)):
        yield part
