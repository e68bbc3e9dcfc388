"""The loop of batches shares its event loop with the fetches."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from starling_stream.fold.task import Step
from starling_stream.kafka.transport import Membership
from starling_stream.state.restore.restore import Interrupted
from starling_stream.worker.processor_lock import ProcessorLock
from starling_stream.worker.runner import Runner, RunnerDependencies


class _Busy(Runner):
    """There always is a batch to fold, without an await; ends after a thousand."""

    def __init__(self) -> None:
        parts: Any = None
        super().__init__(parts, lambda: None, 1.0)
        self.batches = 0

    async def _turn(self) -> bool:
        self.batches += 1
        self._stopping = self.batches == 1_000
        return True


async def _batches_during_a_fetch(runner: _Busy) -> int:
    """Return how many batches ran during a fetch, which needs twenty turns of the loop."""
    before = runner.batches
    for _ in range(20):
        await asyncio.sleep(0)
    return runner.batches - before


def test_a_fetch_reaches_its_task_between_two_batches() -> None:
    async def together() -> int:
        runner = _Busy()
        during = asyncio.create_task(_batches_during_a_fetch(runner))
        await asyncio.sleep(0)  # it has begun
        await runner.run()
        return await during

    assert asyncio.run(together()) <= 2


class _Few:
    """`count` batches of one step each, small or large."""

    def __init__(self, *, are_small: bool, count: int = 3) -> None:
        self.are_small = are_small
        self.count = count
        self.folded = 0
        self.turns = 0
        self.all_folded = asyncio.Event()

    def adopt(self, tasks: Sequence[Any], now: float) -> None:
        """No plan; once a turn."""
        self.turns += 1

    def next_to_switch(self, tasks: Sequence[Any]) -> None:
        """No task."""

    def is_small(self, tasks: Sequence[Any]) -> bool:
        return self.are_small

    def collect(self, tasks: Sequence[Any], now: int) -> list[Step]:
        if self.folded == self.count:
            self.all_folded.set()
            return []
        self.folded += 1
        return [Step(0, None, (), {})]

    def next_release(self, tasks: Sequence[Any]) -> None:
        """Nothing is held."""


class _Slow:
    """A broker that delays a commit until `done` is set."""

    def __init__(self) -> None:
        self.begun, self.done = Event(), Event()

    def submit(self, units: Sequence[Any], offsets: Sequence[Any]) -> None:
        """Nothing is sent."""

    def commit(self, submitted: Any, membership: Membership) -> dict[int, int]:
        self.begun.set()
        assert self.done.wait(30)
        return {}


@pytest.mark.parametrize(("are_small", "folded"), [(True, 1), (False, 2)])
def test_a_small_batch_is_folded_once_the_last_one_is_committed(are_small: bool, folded: int) -> None:
    batches, broker = _Few(are_small=are_small), _Slow()
    fold = SimpleNamespace(switching=False)
    task: Any = SimpleNamespace(partition=0, fold=fold, submitted=lambda _: None, committed=lambda _: None)
    assigned_tasks = SimpleNamespace(running=lambda: [task], tasks=lambda: [task], assign=lambda *_: None, interrupt=lambda: None)
    flusher = SimpleNamespace(pressure=lambda: 0.0)
    metrics = SimpleNamespace(committed=lambda *_: None, passed=lambda _: None)
    made = RunnerDependencies(*cast("Any", (assigned_tasks, batches, broker, flusher, metrics, metrics)))

    async def lived() -> tuple[int, int]:
        runner = Runner(made, lambda: None, 1.0)
        await runner.assigned([0], (), Membership("g", 1, "m", None))
        running = asyncio.create_task(runner.run())
        await asyncio.to_thread(broker.begun.wait, 30)
        for _ in range(3):
            before = batches.turns
            while batches.turns == before and batches.folded == 1:
                runner.wake()
                await asyncio.sleep(0.001)
        meanwhile = batches.folded
        broker.done.set()
        await batches.all_folded.wait()
        await runner.stop()
        await running
        return meanwhile, batches.folded

    assert asyncio.run(lived()) == (folded, 3)


class _Switched(_Few):
    """Of two tasks, the first has to be switched; lists the tasks of each batch."""

    def __init__(self) -> None:
        super().__init__(are_small=False, count=4)
        self.collected: list[list[int]] = []
        self.both = asyncio.Event()

    def next_to_switch(self, tasks: Sequence[Any]) -> Any:
        return next((task for task in tasks if task.partition == 0 and not task.fold.switching), None)

    def collect(self, tasks: Sequence[Any], now: int) -> list[Step]:
        self.collected.append([task.partition for task in tasks])
        if len(tasks) == 2:
            self.both.set()
        if self.folded == self.count:
            self.all_folded.set()
            return []
        self.folded += 1
        return [Step(1, None, (), {})]


class _Past:
    """The fold of the first task: its past is read until `read` is set or its partition is revoked."""

    def __init__(self) -> None:
        self.switching = False
        self.begun, self.read, self.interrupted = Event(), Event(), Event()

    def begin_switch(self, past: ProcessorLock) -> None:
        self.begun.set()
        while not self.read.is_set():
            with past.released():
                self.read.wait(0.001)
            if self.interrupted.is_set():
                raise Interrupted
        self.switching = True


def _switching(past: _Past, batches: _Switched) -> RunnerDependencies:
    calls = {"submitted": lambda _: None, "committed": lambda _: None}
    tasks: Any = [
        SimpleNamespace(partition=0, fold=past, **calls),
        SimpleNamespace(partition=1, fold=SimpleNamespace(switching=False), **calls),
    ]
    assigned = SimpleNamespace(
        running=lambda: tasks, tasks=lambda: tasks, assign=lambda *_: None, interrupt=past.interrupted.set, revoke=tasks.clear,
        task_history=lambda _, processor: processor,
    )  # fmt: skip
    broker = _Slow()
    broker.done.set()
    metrics = SimpleNamespace(committed=lambda *_: None, passed=lambda _: None)
    return RunnerDependencies(*cast("Any", (assigned, batches, broker, SimpleNamespace(pressure=lambda: 0.0), metrics, metrics)))


async def _with_reading(past: _Past, batches: _Switched, act: Callable[[Runner], Awaitable[None]]) -> None:
    """Run a worker with two tasks; act once the past of the first is being read."""
    runner = Runner(_switching(past, batches), lambda: None, 1.0)
    await runner.assigned([0, 1], (), Membership("g", 1, "m", None))
    assert runner.silent_history() == (-1, 0.0)
    running = asyncio.create_task(runner.run())
    await asyncio.to_thread(past.begun.wait, 30)
    await act(runner)
    await runner.stop()
    await running


def test_the_other_tasks_go_on_while_the_past_of_one_is_read() -> None:
    past, batches = _Past(), _Switched()

    async def read_on(runner: Runner) -> None:
        await batches.all_folded.wait()
        assert {tuple(tasks) for tasks in batches.collected} == {(1,)}
        assert runner.silent_history()[0] == 0
        past.read.set()
        await batches.both.wait()
        assert runner.silent_history() == (-1, 0.0)

    asyncio.run(asyncio.wait_for(_with_reading(past, batches, read_on), 60))
    assert past.switching


def test_a_revoked_partition_ends_the_reading_of_its_past() -> None:
    past = _Past()

    async def revoke(runner: Runner) -> None:
        await runner.revoked()
        assert past.interrupted.is_set()

    asyncio.run(asyncio.wait_for(_with_reading(past, _Switched(), revoke), 60))
    assert not past.switching
