"""Flushes to a backing store that can become unavailable at any write."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from starling_common.telemetry.metrics import Metrics
from starling_stream.model.backing_store import Checkpoint, PartitionCopy, StageLayout
from starling_stream.model.failpoints import Failpoints
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.ports import Changed, Tail
from starling_stream.model.rows import due_bytes, row_of
from starling_stream.state.flush.flusher import Flusher, FlusherDependencies, FlushSettings, LayoutChanged, rest_seconds
from starling_stream.state.flush.tracked import RebuildRequested
from starling_stream.state.local_store import StoreMemory, TaskStore, store_memory
from starling_stream.state.metrics import BackingStoreGauges
from tests.contract.stream.memory_backing_store import MemoryBackingStore

LOG = "log-id"
HERE = PartitionCopy(LOG, 0, 0)
LAYOUT = StageLayout("counter", 1, 4, {"counter-state-changelog": LOG})


def _row(version: int, due: int | None = None, payload: bytes = b"p") -> bytes:
    return row_of(version, due_bytes(due) + payload)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class FlushedStore:
    """A store and its flusher, as in a worker; `commit` does the work of the commit thread."""

    def __init__(self, path: Path, memory: StoreMemory, backing_store: MemoryBackingStore, flush_seconds: float = 0.01) -> None:
        self.backing_store = backing_store
        self.store = TaskStore(path, memory)
        self.crashes: list[BaseException] = []
        dependencies = FlusherDependencies(BackingStoreGauges(Metrics(CollectorRegistry())), Failpoints(None), self.crashes.append)
        self.flusher = Flusher(backing_store, LAYOUT, LOG, FlushSettings(flush_seconds, 10_000, share=1.0), dependencies)
        self.position = 0

    def begin(self, *, whole: bool = True, rows: Mapping[bytes, bytes] | None = None, known: int | None = None) -> None:
        self.flusher.start(0)
        self.flusher.track(0, self.store, Tail(known, rows or {}, self.position, TaskMeta(), whole), self.store.earliest_ms)

    def commit(self, rows: Mapping[bytes, bytes]) -> None:
        changes = {key: Changed(before, rows[key]) for key, before in zip(rows, self.store.rows(list(rows)), strict=True)}
        self.position += len(rows) + 2
        meta = TaskMeta(self.position, 0, b"")
        self.store.apply(changes, meta, self.position)
        self.flusher.committed(0, changes, meta, self.position)

    def flushed_offset(self) -> int | None:
        outage = self.backing_store.unavailable, self.backing_store.writes_left
        self.backing_store.unavailable, self.backing_store.writes_left = False, None
        try:
            checkpoint = self.backing_store.checkpoint(LOG, 0)
        finally:
            self.backing_store.unavailable, self.backing_store.writes_left = outage
        return None if checkpoint is None else checkpoint.flushed_offset

    def caught_up(self) -> bool:
        return self.flushed_offset() == self.position


@pytest.fixture(scope="module")
def memory() -> StoreMemory:
    return store_memory(8 * 1024 * 1024, 8 * 1024 * 1024)


@pytest.fixture
def flushed(tmp_path: Path, memory: StoreMemory) -> Iterator[FlushedStore]:
    made = FlushedStore(tmp_path / "0", memory, MemoryBackingStore())
    yield made
    made.flusher.close(10)
    made.store.close()


@pytest.fixture
def seldom_flushed(tmp_path: Path, memory: StoreMemory) -> Iterator[FlushedStore]:
    """A flusher whose time for a flush does not come in a test."""
    made = FlushedStore(tmp_path / "0", memory, MemoryBackingStore(), flush_seconds=1_000)
    yield made
    made.flusher.close(10)
    made.store.close()


def test_a_flush_comes_early_when_a_quarter_of_the_bound_is_unflushed(seldom_flushed: FlushedStore) -> None:
    seldom_flushed.begin()
    seldom_flushed.commit({b"%d" % number: _row(1) for number in range(5)})
    time.sleep(0.1)  # sleep: nothing is to happen, which has no sign
    assert not seldom_flushed.flushed_offset()
    seldom_flushed.commit({b"%d" % number: _row(1) for number in range(20)})
    _until(seldom_flushed.caught_up)


def test_a_flush_that_failed_is_repeated_soon(seldom_flushed: FlushedStore) -> None:
    seldom_flushed.backing_store.unavailable = True
    seldom_flushed.begin()
    refused = seldom_flushed.backing_store.refused
    seldom_flushed.commit({b"%d" % number: _row(1) for number in range(20)})
    _until(lambda: seldom_flushed.backing_store.refused > refused)
    seldom_flushed.backing_store.unavailable = False
    _until(seldom_flushed.caught_up)


def test_the_flushed_offset_follows_the_commits_with_the_tasks_own_row(flushed: FlushedStore) -> None:
    flushed.begin()
    flushed.commit({b"a": _row(1), b"b": _row(1, 90_000)})
    flushed.commit({b"a": _row(2), b"b": row_of(2, b"")})
    _until(flushed.caught_up)
    assert flushed.backing_store.rows(HERE, [b"a", b"b"]) == {b"a": _row(2), b"b": row_of(2, b"")}
    checkpoint = flushed.backing_store.checkpoint(LOG, 0)
    assert checkpoint is not None
    assert decode_meta(checkpoint.meta).units == flushed.position


def test_the_flushed_offset_never_advances_before_all_states_up_to_it_are_written(flushed: FlushedStore) -> None:
    flushed.backing_store.writes_left = 3
    flushed.begin()
    flushed.commit({b"%d" % number: _row(1) for number in range(10)})
    _until(lambda: (flushed.backing_store.writes_left or 0) < -1)  # the second attempt: the first has ended
    assert flushed.flushed_offset() in (None, 0)
    flushed.backing_store.writes_left = None
    _until(flushed.caught_up)
    assert len(flushed.backing_store.rows(HERE, [b"%d" % number for number in range(10)])) == 10


def test_commits_continue_while_the_backing_store_is_unavailable_and_are_flushed_later(flushed: FlushedStore) -> None:
    flushed.backing_store.unavailable = True
    flushed.begin()
    for version in range(1, 20):
        flushed.commit({b"a": _row(version)})
    flushed.backing_store.unavailable = False
    _until(flushed.caught_up)
    assert flushed.backing_store.rows(HERE, [b"a"]) == {b"a": _row(19)}
    assert not flushed.crashes


def test_a_slow_backing_store_delays_no_commit(flushed: FlushedStore) -> None:
    flushed.backing_store.write_seconds = 0.3
    flushed.begin()
    began, commits = time.monotonic(), 0
    while flushed.flushed_offset() is None or not flushed.flushed_offset():
        commits += 1
        flushed.commit({b"a": _row(commits)})
        assert time.monotonic() - began < 20
        time.sleep(0.001)
    assert commits > 20  # more than one for each write of the backing store
    flushed.backing_store.write_seconds = 0.0
    _until(flushed.caught_up)
    assert flushed.backing_store.rows(HERE, [b"a"]) == {b"a": _row(commits)}


@pytest.mark.parametrize(
    ("filled", "rest"), [(0.0, 3.0), (0.25, 3.0), (0.5, 1.5), (0.625, 0.75), (0.75, 0.0), (1.0, 0.0), (2.0, 0.0)]
)
def test_the_more_bytes_are_unflushed_the_less_the_thread_rests(filled: float, rest: float) -> None:
    assert rest_seconds(1.0, 0.25, filled) == pytest.approx(rest)


def test_above_the_limit_the_worker_slows_down_and_above_twice_the_limit_changes_are_dropped(flushed: FlushedStore) -> None:
    flushed.backing_store.unavailable = True
    flushed.begin()
    flushed.commit({b"%03d" % number: _row(1, 60_000 * number, b"x" * 100) for number in range(40)})
    assert 0 < flushed.flusher.pressure() <= 1
    flushed.commit({b"%03d" % number: _row(1, None, b"x" * 100) for number in range(40, 80)})
    assert flushed.flusher.pressure() == 0
    flushed.commit({b"000": _row(2)})
    _until(lambda: flushed.backing_store.refused > 0)
    flushed.backing_store.unavailable = False
    _until(flushed.caught_up)
    found = flushed.backing_store.rows(HERE, [b"%03d" % number for number in range(80)])
    assert len(found) == 80
    assert found[b"000"] == _row(2)
    due = {key for bucket in range(4) for page in flushed.backing_store.due(HERE, bucket, (1, 39)) for key in page}
    assert due == {b"%03d" % number for number in range(1, 40)}


def test_the_flushed_offset_stays_while_changes_are_dropped(flushed: FlushedStore) -> None:
    flushed.flusher.track(0, flushed.store, Tail(0, {}, 0, TaskMeta(), whole=True), flushed.store.earliest_ms)
    tracked = flushed.flusher._tracked[0]
    tracked.unflushed.drop()  # the commit thread may do this at any moment
    flushed.commit({b"a": _row(1)})
    flushed.flusher._flush(tracked)
    assert flushed.flushed_offset() is None


def test_the_backing_store_is_filled_from_the_local_store_before_the_flushed_offset_advances(flushed: FlushedStore) -> None:
    before = {b"%04d" % number: _row(3) for number in range(2_500)}
    flushed.store.apply({key: Changed(None, row) for key, row in before.items()}, TaskMeta(), 5_000)
    flushed.position = 5_000
    flushed.begin(whole=False)
    flushed.commit({b"0000": _row(4)})
    _until(flushed.caught_up)
    assert flushed.backing_store.rows(HERE, list(before)) == before | {b"0000": _row(4)}


def test_a_store_with_unloaded_users_does_not_fill_the_backing_store(flushed: FlushedStore) -> None:
    flushed.store.begin_unloaded(10, TaskMeta(), 4, 0)
    flushed.position = 10
    flushed.begin(whole=False)
    _until(lambda: not flushed.flusher._tracked[0].unflushed.dropped)
    flushed.commit({b"a": _row(1)})
    _until(lambda: b"a" in flushed.backing_store.rows(HERE, [b"a"]))
    assert flushed.flushed_offset() is None
    flushed.store.set_unloaded(())
    _until(flushed.caught_up)


def test_the_tail_of_a_restore_is_flushed_too(flushed: FlushedStore) -> None:
    flushed.position = 50
    flushed.begin(rows={b"t": _row(7, 60_000)})
    _until(flushed.caught_up)
    assert flushed.backing_store.rows(HERE, [b"t"]) == {b"t": _row(7, 60_000)}


def test_a_released_partition_is_flushed_once_more_without_its_store(flushed: FlushedStore) -> None:
    flushed.begin(known=0)
    flushed.commit({b"a": _row(1)})
    flushed.flusher.release(0)
    flushed.store.close()
    _until(flushed.caught_up)
    flushed.flusher.committed(0, {b"a": Changed(_row(1), _row(2))}, TaskMeta(), 99)
    flushed.flusher.close(10)
    assert flushed.backing_store.rows(HERE, [b"a"]) == {b"a": _row(1)}
    assert not flushed.crashes


def test_another_layout_than_the_frozen_one_is_refused(flushed: FlushedStore) -> None:
    flushed.backing_store.freeze(LAYOUT._replace(topics={"counter-state-changelog": "another"}))
    with pytest.raises(LayoutChanged, match="was deleted and created again"):
        flushed.flusher.start(0)


def test_a_layout_that_could_not_be_read_at_the_start_is_compared_later(flushed: FlushedStore) -> None:
    flushed.backing_store.freeze(LAYOUT._replace(partitions=9))
    flushed.backing_store.unavailable = True
    flushed.begin()
    flushed.backing_store.unavailable = False
    _until(lambda: bool(flushed.crashes))
    assert isinstance(flushed.crashes[0], LayoutChanged)


def test_a_flushed_offset_after_the_logs_end_leads_to_a_new_incarnation_also_after_an_outage(flushed: FlushedStore) -> None:
    flushed.backing_store.save_checkpoint(HERE, Checkpoint(0, 10_000, b"", 0))
    flushed.backing_store.unavailable = True
    flushed.begin()
    flushed.backing_store.unavailable = False
    flushed.commit({b"a": _row(1)})
    _until(flushed.caught_up)
    assert flushed.backing_store.rows(HERE._replace(incarnation=1), [b"a"]) == {b"a": _row(1)}
    assert flushed.store.incarnation() == 1


def test_a_store_of_an_older_incarnation_is_rebuilt(flushed: FlushedStore) -> None:
    flushed.store.set_incarnation(0)
    flushed.backing_store.begin(HERE._replace(incarnation=1))
    flushed.begin()
    _until(lambda: bool(flushed.crashes))
    assert isinstance(flushed.crashes[0], RebuildRequested)
