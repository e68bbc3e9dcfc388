"""The loop of batches shares its event loop with the fetches."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from starling_stream.fold.task import Step
from starling_stream.kafka.membership import Membership
from starling_stream.kafka.transactions import NextGeneration, NotOwner
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
    assigned_tasks = SimpleNamespace(
        running=lambda: [task], tasks=lambda: [task], assign=lambda *_: None, interrupt=lambda _: None, revoke=lambda _: None
    )
    flusher = SimpleNamespace(pressure=lambda: 0.0)
    metrics = SimpleNamespace(committed=lambda *_: None, passed=lambda _: None)
    made = RunnerDependencies(*cast("Any", (assigned_tasks, batches, broker, flusher, metrics, metrics)))

    async def lived() -> tuple[int, int]:
        runner = Runner(made, lambda: None, 1.0)
        await runner.assigned([0], (), Membership("g", 1, "m", None), continued=True)
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

    def interrupt(numbers: Collection[int]) -> None:
        if 0 in numbers:
            past.interrupted.set()

    def revoke(numbers: Collection[int]) -> None:
        tasks[:] = [task for task in tasks if task.partition not in numbers]

    assigned = SimpleNamespace(
        running=lambda: tasks, tasks=lambda: tasks, assign=lambda *_: None, interrupt=interrupt, revoke=revoke,
        task_history=lambda _, processor: processor,
    )  # fmt: skip
    broker = _Slow()
    broker.done.set()
    metrics = SimpleNamespace(committed=lambda *_: None, passed=lambda _: None)
    return RunnerDependencies(*cast("Any", (assigned, batches, broker, SimpleNamespace(pressure=lambda: 0.0), metrics, metrics)))


async def _with_reading(past: _Past, batches: _Switched, act: Callable[[Runner], Awaitable[None]]) -> None:
    """Run a worker with two tasks; act once the past of the first is being read."""
    runner = Runner(_switching(past, batches), lambda: None, 1.0)
    await runner.assigned([0, 1], (), Membership("g", 1, "m", None), continued=True)
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


def test_the_past_of_a_task_that_stays_is_read_on_over_a_rebalance() -> None:
    past, batches = _Past(), _Switched()

    async def rebalance(runner: Runner) -> None:
        await runner.assigned([0, 1, 2], (), Membership("g", 2, "m", None), continued=True)
        assert runner.silent_history()[0] == 0
        past.read.set()
        while runner.silent_history()[0] == 0:  # noqa: ASYNC110 - a thread ends
            await asyncio.sleep(0.001)
        assert not past.interrupted.is_set()

    asyncio.run(asyncio.wait_for(_with_reading(past, batches, rebalance), 60))
    assert past.switching


def test_the_past_of_a_task_that_moves_is_read_no_further() -> None:
    past = _Past()

    async def rebalance(runner: Runner) -> None:
        await runner.assigned([1], (), Membership("g", 2, "m", None), continued=True)
        assert past.interrupted.is_set()
        assert runner.silent_history() == (-1, 0.0)

    asyncio.run(asyncio.wait_for(_with_reading(past, _Switched(), rebalance), 60))
    assert not past.switching


class _Refusing(_Slow):
    """A broker that refuses the first commit; lists the generations of all commits."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__()
        self._refusal = refusal
        self.generations: list[int] = []
        self.committed = Event()

    def commit(self, submitted: Any, membership: Membership) -> dict[int, int]:
        self.generations.append(membership.generation)
        if len(self.generations) == 1:
            raise self._refusal
        self.committed.set()
        return {}


class _Rebalanced:
    """Tasks 0 and 1 of a worker. The broker refuses the first batch, on which the second is folded; `calls` in their order."""

    def __init__(self, refusal: Exception, count: int = 2) -> None:
        self.broker = _Refusing(refusal)
        self.batches = _Few(are_small=True, count=count)
        self.calls: list[tuple[object, ...]] = []
        self.tasks = [self._task(number) for number in (0, 1)]
        self.aborted: list[str] = []
        metrics = SimpleNamespace(committed=lambda *_: None, passed=lambda _: None, aborted=self.aborted.append)
        flusher = SimpleNamespace(pressure=lambda: 0.0)
        assigned_tasks = SimpleNamespace(
            running=lambda: self.tasks,
            tasks=lambda: self.tasks,
            assign=lambda numbers, _standbys, generation: self.calls.append(("assign", list(numbers), generation)),
            interrupt=lambda _: None,
            revoke=self._revoke,
        )
        made = RunnerDependencies(*cast("Any", (assigned_tasks, self.batches, self.broker, flusher, metrics, metrics)))
        self.runner = Runner(made, lambda: None, 60.0)

    def _task(self, number: int) -> Any:
        return SimpleNamespace(
            partition=number,
            fold=SimpleNamespace(switching=False),
            submitted=lambda _: None,
            committed=lambda _: self.calls.append(("committed", number)),
            roll_back=lambda steps: self.calls.append(("roll_back", number, len(steps))),
        )

    def _revoke(self, numbers: Collection[int]) -> None:
        self.calls.append(("revoke", sorted(numbers)))
        self.tasks = [task for task in self.tasks if task.partition not in numbers]

    async def refused(self) -> "asyncio.Task[None]":
        """Run until both batches are rolled back."""
        await self.runner.assigned([0, 1], (), Membership("g", 7, "m", None), continued=True)
        self.calls.clear()
        running = asyncio.create_task(self.runner.run())
        while not self.calls:  # noqa: ASYNC110 - the commit is in a thread
            await asyncio.sleep(0.001)
        return running


@pytest.mark.parametrize(("refusal", "reason"), [(NextGeneration("late"), "rebalanced"), (NotOwner("removed"), "fenced")])
def test_a_batch_that_the_next_generation_refuses_is_folded_again_once_the_task_is_assigned_again(
    refusal: Exception, reason: str
) -> None:
    made = _Rebalanced(refusal, count=3)

    async def lived() -> None:
        running = await made.refused()
        for _ in range(3):  # no batch is folded before the assignment
            before = made.runner.last_turn
            made.runner.wake()
            while made.runner.last_turn == before:  # noqa: ASYNC110 - it turns without an event
                await asyncio.sleep(0.001)
        assert (made.calls, made.batches.folded, made.runner.fenced) == ([("roll_back", 0, 2)], 2, True)
        await made.runner.assigned([0, 2], (), Membership("g", 8, "m", None), continued=True)
        assert not made.runner.fenced
        await asyncio.to_thread(made.broker.committed.wait, 30)
        await made.runner.stop()
        await running

    asyncio.run(asyncio.wait_for(lived(), 60))
    assert made.calls == [("roll_back", 0, 2), ("revoke", [1]), ("assign", [0, 2], 8), ("committed", 0)]
    assert (made.broker.generations, made.aborted) == ([7, 8], [reason])


def test_all_tasks_begin_again_if_none_may_continue() -> None:
    made = _Rebalanced(NotOwner("removed"))

    async def lived() -> None:
        running = await made.refused()
        await made.runner.assigned([0, 1], (), Membership("g", 9, "other", None), continued=False)
        await made.runner.stop()
        await running

    asyncio.run(asyncio.wait_for(lived(), 60))
    assert made.calls == [("roll_back", 0, 2), ("revoke", [0, 1]), ("assign", [0, 1], 9)]


def test_a_worker_that_stops_takes_no_new_partitions() -> None:
    made = _Rebalanced(NotOwner("removed"))

    async def lived() -> None:
        running = await made.refused()
        await made.runner.stop()
        await running
        await made.runner.assigned([0, 2], (), Membership("g", 8, "m", None), continued=True)
        await made.runner.revoked()

    asyncio.run(asyncio.wait_for(lived(), 60))
    assert made.calls == [("roll_back", 0, 2)]
