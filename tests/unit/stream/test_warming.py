"""A store of which some users are in the tier alone."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from starling_common.metrics import Metrics
from starling_common.settings import Clock
from starling_stream.fold.batches import Limits, Rounds
from starling_stream.fold.merge import Arrival
from starling_stream.fold.task import Step, Task
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.backing_store import Place, StateWrite, slot_of
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Changed, PartialView
from starling_stream.model.records import ReadRecord
from starling_stream.model.rows import FIRST_MS, due_bytes, row_due, row_of
from starling_stream.state.lazy_restore import Behind, Help, TierLost, Warming
from starling_stream.state.local_store import StoreMemory, TaskStore, store_memory
from starling_stream.state.metrics import TierGauges
from tests.contract.stream.memory_backing import MemoryBacking
from tests.unit.stream.counting import Counted, Counter, counting, event

PLACE = Place("log", 0, 0)
HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


class Never(Executor):
    """The background that never gets to it."""

    def submit(self, *_: Any, **__: Any) -> "Future[Any]":
        return Future()


def _state(total: int, last_ms: int, version: int = 1) -> bytes:
    due = last_ms + HOUR_MS
    return row_of(version, due_bytes(due) + Counter().encode_state(Counted(total, last_ms)))


def _write(backing: MemoryBacking, key: bytes, row: bytes, at: int = 10) -> None:
    backing.write(PLACE, [StateWrite(key, row, at, None, slot_of(row_due(row)))])


class Cold:
    """A task that was restored from the tier at position 100, stream time `NOW_MS`, with nobody local."""

    def __init__(self, path: Path, backing: MemoryBacking, background: Executor, patience: float = 60.0) -> None:
        self.backing = backing
        memory: StoreMemory = store_memory(8 * 1024 * 1024, 8 * 1024 * 1024)
        self.store = TaskStore(path, memory)
        self.store.begin_cold(100, TaskMeta(1, NOW_MS, b""), backing.buckets, 0)
        self.crashes: list[BaseException] = []
        self.warm = asyncio.Event()
        self.reads = ThreadPoolExecutor(2)
        gauges = TierGauges(Metrics(CollectorRegistry()))
        helped = Help(self.reads, background, gauges, lambda: None, self.warm.set, self.crashes.append, patience)
        self.view = Warming(self.store, Behind(backing, PLACE), NOW_MS - HOUR_MS, helped)
        service = counting(Clock.EVENT)
        self.task: Task[Counted] = Task(service, 0, 1)
        self.task.run(self.view, TaskFold(service, 0, self.store.meta()), {})
        self.task.partial = self.view
        self.rounds = Rounds(Limits(1_000, 100), lambda: b"")
        self.outputs: list[tuple[bytes, bytes]] = []
        self.number = 0

    def arrive(self, key: bytes, at_ms: int, topic: str = "in") -> None:
        self.number += 1
        record = ReadRecord(topic, 0, self.number, 0, key, event(self.number, at_ms), [])
        self.task.announce({topic: 1}, dict.fromkeys(self.task.topics, (self.number + 1, self.number + 1, 0)))
        self.task.arrive(topic, [record], Arrival(10**15))

    def turn(self) -> list[Step]:
        """A round that is committed at once, as the runner would."""
        steps = self.rounds.collect([self.task], 10**16)
        for step in steps:
            self.task.submitted(step.sealed)
            if step.sealed is not None:
                self.store.apply(step.sealed.changes, step.sealed.meta, None)
                self.outputs += [(output.key, output.value) for output in step.sealed.outputs]
            self.task.landed(step)
        return steps

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2_000):
            if condition():
                return
            self.turn()
            await asyncio.sleep(0.002)
        raise AssertionError("it never came to be")

    def close(self) -> None:
        self.view.stop()
        self.reads.shutdown()
        self.store.close()


def _run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


def test_a_floor_from_before_anybody_was_looked_for_hides_everybody_until_they_are(tmp_path: Path) -> None:
    async def looks() -> None:
        cold = Cold(tmp_path / "store", MemoryBacking(), Never())
        never_looked = cold.store.earliest_ms()
        assert never_looked == FIRST_MS
        view = Warming(cold.store, Behind(cold.backing, PLACE), never_looked, cold.view._help)
        assert view.due(NOW_MS, 10) == []
        assert not view.sees(0)
        assert view.lowest() == FIRST_MS  # what the next floor says: it has to fit where it is written

    asyncio.run(looks())


def test_a_user_is_read_from_the_tier_when_a_record_names_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        _write(backing, b"default/u1", _state(41, NOW_MS - 5))
        cold = Cold(tmp_path / "0", backing, Never())
        cold.arrive(b"default/u1", NOW_MS)
        cold.arrive(b"default/new", NOW_MS + 1)
        assert [step.sealed for step in cold.turn()] == [None]  # nobody waits for the tier on the event loop
        await cold.until(lambda: len(cold.outputs) == 2)
        assert cold.outputs == [(b"default/u1", b"42"), (b"default/new", b"1")]
        cold.close()

    _run(scenario)


def test_each_user_is_read_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        cold = Cold(tmp_path / "0", MemoryBacking(), Never())
        for number in range(5):
            cold.arrive(b"default/u", NOW_MS + number)
            await cold.until(lambda number=number: len(cold.outputs) == number + 1)  # type: ignore[misc]
        assert cold.backing.reads == 1
        cold.close()

    _run(scenario)


def test_timers_of_users_that_nothing_touched_fire_on_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        for number in range(20):
            _write(backing, b"default/%02d" % number, _state(1, NOW_MS + number * 60_000))
        _write(backing, b"default/far", _state(1, NOW_MS + 900 * HOUR_MS))
        cold = Cold(tmp_path / "0", backing, Never())
        cold.arrive(b"default/x", NOW_MS + HOUR_MS + 10 * 60_000 + 1)
        await cold.until(lambda: len(cold.outputs) == 12)
        fired = sorted(key for key, value in cold.outputs if value.startswith(b"quiet"))
        assert fired == [b"default/%02d" % number for number in range(11)]
        assert cold.store.rows([b"default/far"]) == [None]
        cold.close()

    _run(scenario)


def test_a_live_event_does_not_wait_for_timers_that_have_to_be_brought_and_the_clock_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        _write(backing, b"default/due", _state(1, NOW_MS))
        backing.due_seconds = 0.05  # a bucket: the event is through long before
        cold = Cold(tmp_path / "0", backing, Never())
        cold.arrive(b"", NOW_MS + 2 * HOUR_MS, "clock")
        offsets = []
        for _ in range(2_000):
            offsets += [(step.offsets.get("clock"), len(cold.outputs)) for step in cold.turn()]
            if any(offset for offset, _ in offsets):
                break
            await asyncio.sleep(0.002)
        assert cold.task.fold.meta.stream_time_ms == NOW_MS + 2 * HOUR_MS
        assert cold.outputs == [(b"default/due", b"quiet since %d" % NOW_MS)]
        assert offsets[0] == (None, 0)
        assert all(fired for offset, fired in offsets if offset)
        cold.close()

    _run(scenario)


def test_a_task_does_not_turn_in_circles_while_who_is_due_cannot_be_brought(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        cold = Cold(tmp_path / "0", backing, Never())
        backing.away = True
        cold.task.drained = False
        # The horizon lies exactly at stream time: what is due before it is here, what is due at it is not.
        cold.view._seen_slot = NOW_MS // 60_000 - 1
        for _ in range(5):
            assert [step for step in cold.turn() if step.sealed is not None] == []
            await asyncio.sleep(0.01)
        cold.close()

    _run(scenario)


def test_timers_fire_in_the_order_of_their_instants_whoever_is_local(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        _write(backing, b"default/cold", _state(1, NOW_MS + 5 * 60_000))
        backing.due_seconds = 0.02
        cold = Cold(tmp_path / "0", backing, Never())
        cold.store.apply({b"default/local": Changed(None, _state(1, NOW_MS + 10 * 60_000))}, None, None)
        cold.arrive(b"default/x", NOW_MS + 2 * HOUR_MS)
        await cold.until(lambda: len(cold.outputs) == 3)
        assert [key for key, value in cold.outputs if value.startswith(b"quiet")] == [b"default/cold", b"default/local"]
        cold.close()

    _run(scenario)


def test_hydration_brings_everybody_and_overwrites_nothing_newer(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        keys = [b"default/%d" % number for number in range(500)]
        for key in keys:
            _write(backing, key, _state(1, NOW_MS))
        background = ThreadPoolExecutor(1)
        cold = Cold(tmp_path / "0", backing, background)
        newer, gone = _state(9, NOW_MS, version=2), row_of(2, b"")
        cold.store.apply({keys[0]: Changed(None, newer), keys[1]: Changed(None, gone)}, None, None)
        cold.view.start()
        await asyncio.wait_for(cold.warm.wait(), 20)
        assert cold.store.rows(keys[:2]) == [newer, gone]
        assert cold.store.rows(keys[2:]) == [_state(1, NOW_MS)] * 498
        assert cold.store.cold() == frozenset()
        assert len(cold.store.due(NOW_MS + HOUR_MS, 1_000)) == 499
        background.shutdown()
        cold.close()

    _run(scenario)


def test_a_store_that_was_closed_before_all_were_here_goes_on_with_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        _write(backing, b"default/u1", _state(1, NOW_MS))
        cold = Cold(tmp_path / "0", backing, Never())
        cold.store.keep_cold([0, 1])
        cold.close()
        again = TaskStore(tmp_path / "0", store_memory(8 * 1024 * 1024, 8 * 1024 * 1024))
        assert (again.cold(), again.position(), again.incarnation()) == (frozenset([0, 1]), 100, 0)
        again.close()

    _run(scenario)


def test_a_switch_waits_until_everybody_is_here(tmp_path: Path) -> None:
    async def scenario() -> None:
        cold = Cold(tmp_path / "0", MemoryBacking(), Never())
        rounds = Rounds(Limits(1_000, 100), lambda: b"v2")
        rounds.adopt([cold.task])
        cold.arrive(b"default/u1", NOW_MS)
        assert rounds.to_begin([cold.task]) is None
        assert rounds.collect([cold.task], 10**16) == []
        cold.task.warm(cold.store)
        assert rounds.to_begin([cold.task]) is cold.task
        cold.close()

    _run(scenario)


def test_a_tier_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        _write(backing, b"default/u1", _state(41, NOW_MS))
        cold = Cold(tmp_path / "0", backing, Never())
        backing.away = True
        cold.arrive(b"default/u1", NOW_MS)
        for _ in range(20):
            cold.turn()
            await asyncio.sleep(0.01)
        backing.away = False
        await cold.until(lambda: len(cold.outputs) == 1)
        assert cold.outputs == [(b"default/u1", b"42")]
        cold.close()

    _run(scenario)


def test_while_the_tier_is_away_who_is_needed_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        backing = MemoryBacking()
        _write(backing, b"default/u1", _state(41, NOW_MS))
        cold = Cold(tmp_path / "0", backing, Never(), patience=0.6)
        backing.away = True
        cold.arrive(b"default/u1", NOW_MS)
        for _ in range(20):
            cold.turn()
            await asyncio.sleep(0.01)
        assert (cold.outputs, cold.crashes) == ([], [])
        await cold.until(lambda: bool(cold.crashes))
        assert isinstance(cold.crashes[0], TierLost)
        assert cold.outputs == []
        cold.close()

    _run(scenario)


def test_it_is_a_view_that_tasks_can_take(tmp_path: Path) -> None:
    async def scenario() -> None:
        cold = Cold(tmp_path / "0", MemoryBacking(), Never())
        view: PartialView = cold.view
        with pytest.raises(RuntimeError, match="4 buckets are cold"):
            view.keys(b"", 10)
        assert view.rows([b"never asked for"]) == [None]
        cold.close()

    _run(scenario)
