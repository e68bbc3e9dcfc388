"""A task's rows on disk and in memory: one suite for both, and tests of the disk alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_stream.fold.memory import MemoryRows
from starling_stream.fold.pending_view import PendingView
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Changed, StateView
from starling_stream.model.rows import due_bytes, row_of
from starling_stream.state.local_store import Origin, StoreDamaged, StoreMemory, StoreMismatch, TaskStore, store_memory


@pytest.fixture(scope="module")
def memory() -> StoreMemory:
    return store_memory(8 * 1024 * 1024, 8 * 1024 * 1024)


@pytest.fixture
def store(tmp_path: Path, memory: StoreMemory) -> Iterator[TaskStore]:
    opened = TaskStore(tmp_path / "0", memory)
    yield opened
    opened.close()


def _row(version: int, due: int | None, payload: bytes = b"p") -> bytes:
    return row_of(version, due_bytes(due) + payload)


def _write(store: TaskStore, rows: dict[bytes, bytes], position: int | None = None) -> None:
    before = store.rows(list(rows))
    changes = {key: Changed(was, row) for (key, row), was in zip(rows.items(), before, strict=True)}
    store.apply(changes, None, position)


def test_a_new_due_replaces_the_old_timer(store: TaskStore) -> None:
    _write(store, {b"k": _row(1, 50)})
    _write(store, {b"k": _row(2, 70)})
    assert store.due(60, 10) == []
    assert store.due(70, 10) == [(70, b"k")]


def test_a_deleted_key_has_no_timer_and_no_state_but_keeps_its_version(store: TaskStore) -> None:
    _write(store, {b"k": _row(1, 50)})
    _write(store, {b"k": row_of(2, b"")})
    assert (store.due(100, 10), store.keys(b"", 10), store.rows([b"k"])) == ([], [], [row_of(2, b"")])


def test_an_earlier_timer_is_found_after_a_scan_passed_it(store: TaskStore) -> None:
    _write(store, {b"late": _row(1, 1000)})
    assert store.due(500, 10) == []
    _write(store, {b"early": _row(1, 400)})
    assert store.due(500, 10) == [(400, b"early")]


def test_a_scan_advances_although_timers_are_written_meanwhile(store: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of timers always writes; a scan from the last start would read the tombstones of all fired timers."""
    _write(store, {b"k": _row(1, 1000)})
    scan = store._scan

    def written_meanwhile(*arguments: Any) -> Iterator[tuple[bytes, bytes]]:
        for number, entry in enumerate(scan(*arguments)):
            if not number:
                _write(store, {key: _row(1, due) for key, due in meanwhile.items()})
            yield entry

    for meanwhile, then in (({b"later": 2000}, 1000), ({b"earlier": 700, b"first": 600}, 600)):  # noqa: B007 - used above
        monkeypatch.setattr(store, "_scan", written_meanwhile)
        assert store.due(1500, 10) == [(1000, b"k")]
        assert store.earliest_ms() == then
    monkeypatch.undo()
    assert store.due(650, 10) == [(600, b"first")]


def test_rows_timers_and_position_survive_a_reopening(tmp_path: Path, memory: StoreMemory) -> None:
    first = TaskStore(tmp_path / "0", memory)
    first.apply({b"k": Changed(None, _row(1, 5))}, TaskMeta(3, 77, b"plan"), 42)
    first.close()
    second = TaskStore(tmp_path / "0", memory)
    assert (second.position(), second.meta(), second.due(5, 1)) == (42, TaskMeta(3, 77, b"plan"), [(5, b"k")])
    second.close()


def test_a_store_of_another_log_is_refused(tmp_path: Path, memory: StoreMemory) -> None:
    first = TaskStore(tmp_path / "0", memory)
    first.check_origin(Origin("c", "id-1", 8))
    first.check_origin(Origin("c", "id-1", 8))
    with pytest.raises(StoreMismatch, match="delete the directory"):
        first.check_origin(Origin("c", "id-2", 8))
    first.close()


Values = dict[bytes, tuple[int | None, bytes] | None]

keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
values = st.none() | st.tuples(st.none() | st.integers(0, 9), st.binary(max_size=2))
writes = st.lists(st.dictionaries(keys, values, max_size=4), max_size=6)


@settings(max_examples=40, deadline=None)
@given(writes, st.dictionaries(keys, values, max_size=4), st.integers(0, 10), st.integers(1, 4))
def test_disk_memory_and_pending_view_return_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    memory: StoreMemory,
    batches: list[Values],
    pending: Values,
    until: int,
    limit: int,
) -> None:
    disk, plain = TaskStore(tmp_path_factory.mktemp("rows") / "0", memory), MemoryRows()

    def changed(
        batch: dict[bytes, tuple[int | None, bytes] | None], rows: Callable[[list[bytes]], list[bytes | None]]
    ) -> dict[bytes, Changed]:
        before = dict(zip(batch, rows(list(batch)), strict=True))
        return {
            key: Changed(before[key], row_of(1, b"" if value is None else due_bytes(value[0]) + value[1]))
            for key, value in batch.items()
        }

    for batch in batches:
        changes = changed(batch, plain.rows)
        disk.apply(changes, None, None)
        plain.apply(changes)
    on_top = changed(pending, plain.rows)
    layered = PendingView(disk, on_top)
    views: list[StateView] = [disk, plain]
    expected = [view.due(until, limit) for view in views]
    assert expected[0] == expected[1]
    plain.apply(on_top)
    everything = [b"a", b"b", b"c", b"d", b"e"]
    assert layered.rows(everything) == plain.rows(everything)
    assert layered.due(until, limit) == plain.due(until, limit)
    assert layered.keys(b"a", limit) == plain.keys(b"a", limit)
    disk.close()


def test_damage_is_raised_by_every_read_and_the_store_is_not_opened_again(tmp_path: Path, memory: StoreMemory) -> None:
    path = tmp_path / "0"
    first = TaskStore(path, memory)
    _write(first, {b"k%04d" % number: _row(1, number, b"p" * 200) for number in range(4000)}, 7)
    first.close()
    TaskStore(path, memory).close()  # moves what the log has into a table
    for table in path.glob("*.sst"):
        data = bytearray(table.read_bytes())
        for position in range(0, len(data) * 9 // 10, 500):
            data[position] ^= 1
        table.write_bytes(data)
    reads: list[Callable[[TaskStore], object]] = [
        lambda store: store.rows([b"k%04d" % number for number in range(4000)]),
        lambda store: store.keys(b"", 10_000),
        lambda store: list(store.all_rows()),
        lambda store: store.due(10_000, 10_000),
        TaskStore.position,
        TaskStore.meta,
        lambda store: store.check_origin(Origin("changelog", "id", 1)),
    ]
    for read in reads:
        store = TaskStore(path, memory)
        with pytest.raises(Exception, match="Corruption"):
            read(store)
        store.close()
        with pytest.raises(StoreDamaged):
            TaskStore(path, memory)
        (path / "DAMAGED").unlink()
