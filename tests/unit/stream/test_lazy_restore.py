"""A store of which some users are only in the backing store."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from starling_common.settings import Clock
from starling_common.telemetry.metrics import Metrics
from starling_stream.fold.batches import Batches, Limits
from starling_stream.fold.merge import Arrival
from starling_stream.fold.task import Step, Task
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.backing_store import PartitionCopy, StateWrite, slot_of
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Changed, PartialView
from starling_stream.model.records import ReadRecord
from starling_stream.model.rows import FIRST_MS, due_bytes, row_due, row_of
from starling_stream.state.local_store import StoreMemory, TaskStore, store_memory
from starling_stream.state.metrics import BackingStoreGauges
from starling_stream.state.restore.lazy_restore import BackingCopy, BackingStoreLost, LazyRestore, LazyRestoreDependencies
from tests.contract.stream.memory_backing_store import MemoryBackingStore
from tests.unit.stream.counting import Counted, Counter, counting, event

PLACE = PartitionCopy("log", 0, 0)
HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


class Never(Executor):
    """An executor that never runs anything."""

    def submit(self, *_: Any, **__: Any) -> "Future[Any]":
        return Future()


def _state(total: int, last_ms: int, version: int = 1) -> bytes:
    due = last_ms + HOUR_MS
    return row_of(version, due_bytes(due) + Counter().encode_state(Counted(total, last_ms)))


def _write(backing_store: MemoryBackingStore, key: bytes, row: bytes, at: int = 10) -> None:
    backing_store.write(PLACE, [StateWrite(key, row, at, None, slot_of(row_due(row)))])


class PartialTask:
    """A task that was restored from a checkpoint at position 100, stream time `NOW_MS`, with no user loaded."""

    def __init__(self, path: Path, backing_store: MemoryBackingStore, background: Executor, patience: float = 60.0) -> None:
        self.backing_store = backing_store
        memory: StoreMemory = store_memory(8 * 1024 * 1024, 8 * 1024 * 1024)
        self.store = TaskStore(path, memory)
        self.store.begin_unloaded(100, TaskMeta(1, NOW_MS, b""), backing_store.buckets, 0)
        self.crashes: list[BaseException] = []
        self.all_loaded = asyncio.Event()
        self.reads = ThreadPoolExecutor(2)
        gauges = BackingStoreGauges(Metrics(CollectorRegistry()))
        dependencies = LazyRestoreDependencies(
            self.reads, background, gauges, lambda: None, self.all_loaded.set, self.crashes.append, patience
        )
        self.view = LazyRestore(self.store, BackingCopy(backing_store, PLACE), NOW_MS - HOUR_MS, dependencies)
        service = counting(Clock.EVENT)
        self.task: Task[Counted] = Task(service, 0, 1)
        self.task.run(self.view, TaskFold(service, 0, self.store.meta()), {})
        self.task.partial = self.view
        self.batches = Batches(Limits(1_000, 100), lambda: b"")
        self.outputs: list[tuple[bytes, bytes]] = []
        self.number = 0

    def receive(self, key: bytes, at_ms: int, topic: str = "in") -> None:
        self.number += 1
        record = ReadRecord(topic, 0, self.number, 0, key, event(self.number, at_ms), [])
        end = self.number + 1
        self.task.note_fetch({topic: 1}, dict.fromkeys(self.task.topics, (end, end, end, 0)))
        self.task.receive(topic, [record], Arrival(10**15))

    def turn(self) -> list[Step]:
        """Run one batch and commit it at once."""
        steps = self.batches.collect([self.task], 10**16)
        for step in steps:
            self.task.submitted(step.sealed)
            if step.sealed is not None:
                self.store.apply(step.sealed.changes, step.sealed.meta, None)
                self.outputs += [(output.key, output.value) for output in step.sealed.outputs]
            self.task.committed(step)
        return steps

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2_000):
            if condition():
                return
            self.turn()
            await asyncio.sleep(0.002)
        raise AssertionError("the condition was not met")

    def close(self) -> None:
        self.view.stop()
        self.reads.shutdown()
        self.store.close()


def _run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


def test_without_a_known_first_timer_no_user_is_due_until_the_index_was_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        partial = PartialTask(tmp_path / "store", MemoryBackingStore(), Never())
        never_scanned = partial.store.earliest_ms()
        assert never_scanned == FIRST_MS
        view = LazyRestore(partial.store, BackingCopy(partial.backing_store, PLACE), never_scanned, partial.view._dependencies)
        assert view.due(NOW_MS, 10) == []
        assert not view.is_loaded_until(0)
        assert view.earliest_due_ms() == FIRST_MS  # the next checkpoint stores it

    asyncio.run(scenario())


def test_a_user_is_loaded_when_a_record_names_the_user(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        _write(backing_store, b"default/u1", _state(41, NOW_MS - 5))
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        partial.receive(b"default/u1", NOW_MS)
        partial.receive(b"default/new", NOW_MS + 1)
        assert [step.sealed for step in partial.turn()] == [None]  # the event loop does not wait for the backing store
        await partial.until(lambda: len(partial.outputs) == 2)
        assert partial.outputs == [(b"default/u1", b"42"), (b"default/new", b"1")]
        partial.close()

    _run(scenario)


def test_each_user_is_read_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        partial = PartialTask(tmp_path / "0", MemoryBackingStore(), Never())
        for number in range(5):
            partial.receive(b"default/u", NOW_MS + number)
            await partial.until(lambda number=number: len(partial.outputs) == number + 1)  # type: ignore[misc]
        assert partial.backing_store.reads == 1
        partial.close()

    _run(scenario)


def test_timers_of_users_that_nothing_touched_fire_on_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        for number in range(20):
            _write(backing_store, b"default/%02d" % number, _state(1, NOW_MS + number * 60_000))
        _write(backing_store, b"default/far", _state(1, NOW_MS + 900 * HOUR_MS))
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        partial.receive(b"default/x", NOW_MS + HOUR_MS + 10 * 60_000 + 1)
        await partial.until(lambda: len(partial.outputs) == 12)
        fired = sorted(key for key, value in partial.outputs if value.startswith(b"quiet"))
        assert fired == [b"default/%02d" % number for number in range(11)]
        assert partial.store.rows([b"default/far"]) == [None]
        partial.close()

    _run(scenario)


def test_a_live_event_does_not_wait_for_timers_to_be_loaded_and_the_clock_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        _write(backing_store, b"default/due", _state(1, NOW_MS))
        backing_store.due_seconds = 0.05  # a bucket: the event is through long before
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        partial.receive(b"", NOW_MS + 2 * HOUR_MS, "clock")
        offsets = []
        for _ in range(2_000):
            offsets += [(step.offsets.get("clock"), len(partial.outputs)) for step in partial.turn()]
            if any(offset for offset, _ in offsets):
                break
            await asyncio.sleep(0.002)
        assert partial.task.fold.meta.stream_time_ms == NOW_MS + 2 * HOUR_MS
        assert partial.outputs == [(b"default/due", b"quiet since %d" % NOW_MS)]
        assert offsets[0] == (None, 0)
        assert all(fired for offset, fired in offsets if offset)
        partial.close()

    _run(scenario)


def test_a_task_makes_no_empty_units_while_due_users_cannot_be_loaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        backing_store.unavailable = True
        partial.task.drained = False
        # The horizon is exactly stream time: users due before it are loaded, users due at it are not.
        partial.view._loaded_slot = NOW_MS // 60_000 - 1
        while backing_store.refused == 0:
            assert [step for step in partial.turn() if step.sealed is not None] == []
            await asyncio.sleep(0.002)
        assert [step for step in partial.turn() if step.sealed is not None] == []
        partial.close()

    _run(scenario)


def test_timers_fire_in_the_order_of_their_instants_whether_loaded_or_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        _write(backing_store, b"default/cold", _state(1, NOW_MS + 5 * 60_000))
        backing_store.due_seconds = 0.02
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        partial.store.apply({b"default/local": Changed(None, _state(1, NOW_MS + 10 * 60_000))}, None, None)
        partial.receive(b"default/x", NOW_MS + 2 * HOUR_MS)
        await partial.until(lambda: len(partial.outputs) == 3)
        assert [key for key, value in partial.outputs if value.startswith(b"quiet")] == [b"default/cold", b"default/local"]
        partial.close()

    _run(scenario)


def test_the_background_loads_every_user_and_overwrites_no_newer_row(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        keys = [b"default/%d" % number for number in range(500)]
        for key in keys:
            _write(backing_store, key, _state(1, NOW_MS))
        background = ThreadPoolExecutor(1)
        partial = PartialTask(tmp_path / "0", backing_store, background)
        newer, gone = _state(9, NOW_MS, version=2), row_of(2, b"")
        partial.store.apply({keys[0]: Changed(None, newer), keys[1]: Changed(None, gone)}, None, None)
        partial.view.start()
        await asyncio.wait_for(partial.all_loaded.wait(), 20)
        assert partial.store.rows(keys[:2]) == [newer, gone]
        assert partial.store.rows(keys[2:]) == [_state(1, NOW_MS)] * 498
        assert partial.store.unloaded() == frozenset()
        assert len(partial.store.due(NOW_MS + HOUR_MS, 1_000)) == 499
        background.shutdown()
        partial.close()

    _run(scenario)


def test_a_store_that_was_closed_during_a_lazy_restore_keeps_its_unloaded_buckets(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        _write(backing_store, b"default/u1", _state(1, NOW_MS))
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        partial.store.set_unloaded([0, 1])
        partial.close()
        again = TaskStore(tmp_path / "0", store_memory(8 * 1024 * 1024, 8 * 1024 * 1024))
        assert (again.unloaded(), again.position(), again.incarnation()) == (frozenset([0, 1]), 100, 0)
        again.close()

    _run(scenario)


def test_a_switch_waits_until_all_users_are_loaded(tmp_path: Path) -> None:
    async def scenario() -> None:
        partial = PartialTask(tmp_path / "0", MemoryBackingStore(), Never())
        cast("Counter", partial.task.service.processor).plan = b"v2"
        batches = Batches(Limits(1_000, 100), lambda: b"v2")
        batches.adopt([partial.task], 0.0)
        partial.receive(b"default/u1", NOW_MS)
        assert batches.next_to_switch([partial.task]) is None
        assert batches.collect([partial.task], 10**16) == []
        partial.task.all_loaded(partial.store)
        assert batches.next_to_switch([partial.task]) is partial.task
        partial.close()

    _run(scenario)


def test_a_load_is_retried_after_an_outage(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        _write(backing_store, b"default/u1", _state(41, NOW_MS))
        partial = PartialTask(tmp_path / "0", backing_store, Never())
        backing_store.unavailable = True
        partial.receive(b"default/u1", NOW_MS)
        await partial.until(lambda: backing_store.refused > 0)
        backing_store.unavailable = False
        await partial.until(lambda: len(partial.outputs) == 1)
        assert partial.outputs == [(b"default/u1", b"42")]
        partial.close()

    _run(scenario)


def test_the_worker_ends_when_a_needed_user_cannot_be_loaded_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing_store = MemoryBackingStore()
        _write(backing_store, b"default/u1", _state(41, NOW_MS))
        partial = PartialTask(tmp_path / "0", backing_store, Never(), patience=0.6)
        backing_store.unavailable = True
        partial.receive(b"default/u1", NOW_MS)
        await partial.until(lambda: backing_store.refused > 0)
        assert (partial.outputs, partial.crashes) == ([], [])
        await partial.until(lambda: bool(partial.crashes))
        assert isinstance(partial.crashes[0], BackingStoreLost)
        assert partial.outputs == []
        partial.close()

    _run(scenario)


def test_it_implements_partial_view(tmp_path: Path) -> None:
    async def scenario() -> None:
        partial = PartialTask(tmp_path / "0", MemoryBackingStore(), Never())
        view: PartialView = partial.view
        with pytest.raises(RuntimeError, match="4 buckets are not loaded"):
            view.keys(b"", 10)
        assert view.rows([b"never asked for"]) == [None]
        partial.close()

    _run(scenario)
