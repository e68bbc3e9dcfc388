"""Edge: the loop of batches. It folds the next batch while the transaction of the last one is committed."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros
from starling_stream.fold.batches import Batches
from starling_stream.fold.task import Step, Task
from starling_stream.kafka.membership import Membership
from starling_stream.kafka.transactions import Aborted, NextGeneration, NotOwner, Offset, OutputRefused, Submitted, Transactions
from starling_stream.model.failpoints import AFTER_FOLD, AFTER_SLICE, AFTER_STORE, AFTER_TIMERS, BEFORE_RELEASE, Failpoints
from starling_stream.model.ports import Sealed, StateFlusher
from starling_stream.model.processor import History
from starling_stream.state.metrics import Gauges
from starling_stream.state.restore.restore import Interrupted
from starling_stream.worker.assigned_tasks import AssignedTasks
from starling_stream.worker.processor_lock import ProcessorLock

_IDLE_SECONDS: Final = 0.05
"""The longest sleep of an idle loop: plans and the wall clock change without any record."""


_STEPS_OF_OTHERS: Final = 25
"""Turns of the event loop between two batches.

The fold blocks the loop for a whole batch, and a fetch needs some twenty turns from the consumer's thread to its task: with one
turn a batch, records waited for as many batches. Measured beside 200,000 timers in one second, p99 of a live event's latency: none
2.7 s, 4 1.3 s, 10 0.6 s, 25 0.4 s.
"""


class LostGroup(Exception):
    """The group removed this worker, which did not rejoin in time."""


class RunnerDependencies(NamedTuple):
    """The dependencies of a runner."""

    assigned_tasks: AssignedTasks[Any]
    batches: Batches
    transactions: Transactions
    flusher: StateFlusher
    gauges: Gauges
    failpoints: Failpoints


class _CommitWork(NamedTuple):
    """The input of the commit thread for one batch."""

    units: Sequence[Sealed]
    submitted: Submitted
    membership: Membership


class _InFlight(NamedTuple):
    steps: Sequence[Step]
    done: "asyncio.Future[float]"
    began: float


class _Preparation(NamedTuple):
    """A task whose past is read in another thread, before it is switched to a new plan."""

    task: Task[Any]
    done: "asyncio.Future[None]"
    began: float


class Runner:
    """One loop a worker. `flow` is called between batches: it pauses and resumes the reading ahead."""

    def __init__(self, dependencies: RunnerDependencies, flow: Callable[[], None], rejoin_seconds: float) -> None:
        self._dependencies = dependencies
        self._flow = flow
        self._rejoin_seconds = rejoin_seconds
        self._membership: Membership | None = None
        self._lost_at: float | None = None
        """When the broker refused the membership. No batch starts before the next assignment."""
        self._in_flight: _InFlight | None = None
        self._stopping = False
        self._wake = asyncio.Event()
        self._turn_lock = asyncio.Lock()
        self._preparation: _Preparation | None = None
        self.processor = ProcessorLock()
        """Held by every caller of the processor, decoding included."""
        self.last_turn = monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")

    @property
    def fenced(self) -> bool:
        """Return whether the broker refused the membership, and no assignment has followed."""
        return self._lost_at is not None

    def silent_history(self) -> tuple[int, float]:
        """Return the partition whose past is read, and the seconds since its last records; (-1, 0) if none is read."""
        preparation = self._preparation
        if preparation is None or preparation.done.done():
            return -1, 0.0
        return preparation.task.partition, monotonic() - max(preparation.began, self.processor.acquired_at)

    def wake(self) -> None:
        """Run the loop again: there may be work."""
        self._wake.set()

    async def run(self) -> None:
        """Run until stopped. Raises: Replaced, LostGroup, and the processor's exceptions; the batch is then discarded."""
        while not self._stopping:
            async with self._turn_lock:
                worked = not self._stopping and await self._turn()
            if worked:
                await _yield_to_others()
            else:
                await self._sleep()

    async def stop(self) -> None:
        """Await the commit in progress and start no other."""
        self._stopping = True
        self._dependencies.assigned_tasks.interrupt({task.partition for task in self._dependencies.assigned_tasks.tasks()})
        self.wake()
        async with self._turn_lock:
            await self._await_commit(())
            await self._end_preparation()
        self._thread.shutdown(wait=True)

    async def assigned(
        self, partitions: Sequence[int], standbys: Collection[int], membership: Membership, *, continued: bool = False
    ) -> None:
        """Take over these partition numbers from the group, and the standby copies to keep.

        `continued`: the tasks of partitions that were assigned before go on. The others stop after the commit in progress, which
        the broker refuses if it is too late. So no transaction has the offsets of a partition under a generation that assigned
        it to another worker.
        """
        assigned_tasks = self._dependencies.assigned_tasks
        before = {task.partition for task in assigned_tasks.tasks()}
        kept = before & set(partitions) if continued else set()
        gone = before - kept
        if gone:
            self._dependencies.failpoints.passed(BEFORE_RELEASE)
            assigned_tasks.interrupt(gone)
        async with self._turn_lock:
            if self._stopping:
                return
            await self._await_commit(())
            if self._preparation is not None and self._preparation.task.partition in gone:
                await self._end_preparation()
            assigned_tasks.revoke(gone)
            self._membership = membership
            self._lost_at = None
            assigned_tasks.assign(partitions, standbys, membership.generation)
        numbers = {"partitions": list(partitions), "continued": sorted(kept), "standbys": sorted(standbys)}
        log(__name__).info("assigned", **numbers, generation=membership.generation)
        self.wake()

    async def revoked(self) -> None:
        """Give all partitions back to the group, after the commit in progress."""
        everything = {task.partition for task in self._dependencies.assigned_tasks.tasks()}
        self._dependencies.assigned_tasks.interrupt(everything)
        async with self._turn_lock:
            if self._stopping:
                return
            await self._await_commit(())
            await self._end_preparation()
            self._dependencies.assigned_tasks.revoke(everything)

    async def _turn(self) -> bool:
        """Run one batch; return False if there was nothing to do."""
        dependencies = self._dependencies
        self.last_turn = monotonic()
        if self._lost_at is not None:
            self._check_lost(self._lost_at)
            return False
        self._flow()
        behind_seconds = dependencies.flusher.pressure()
        if behind_seconds > 0:
            await asyncio.sleep(behind_seconds)
        tasks = dependencies.assigned_tasks.running()
        if not await self._prepare_switch(tasks):
            return True
        if self._preparation is not None:
            tasks = [task for task in tasks if task is not self._preparation.task]
        if self._is_committing() and dependencies.batches.is_small(tasks):
            return False
        began = monotonic()
        switching = any(task.fold.switching for task in tasks)
        async with self.processor:
            steps = dependencies.batches.collect(tasks, wall_clock_micros())
        if not steps:
            if not self._is_committing():
                await self._await_commit(())
            return False
        _pass_failpoints(dependencies.failpoints, steps, switching=switching)
        if await self._await_commit(steps):
            self._start_commit(steps, began)
        return True

    def _is_committing(self) -> bool:
        return self._in_flight is not None and not self._in_flight.done.done()

    async def _prepare_switch(self, tasks: Sequence[Task[Any]]) -> bool:
        """Let the next task read its past in another thread, while the others go on; return False if the batch must start over."""
        dependencies = self._dependencies
        if self._preparation is not None:
            if not self._preparation.done.done():
                return True
            done, self._preparation = self._preparation.done, None
            with suppress(Interrupted):
                done.result()
        async with self.processor:
            dependencies.batches.adopt(tasks, monotonic())
        task = dependencies.batches.next_to_switch(tasks)
        if task is None:
            return True
        if not await self._await_commit(()):
            return False
        past = dependencies.assigned_tasks.task_history(task, self.processor)
        done = asyncio.get_running_loop().run_in_executor(None, self._read_past, task, past)
        done.add_done_callback(lambda _: self._wake.set())
        self._preparation = _Preparation(task, done, monotonic())
        return True

    def _read_past(self, task: Task[Any], past: History) -> None:
        with self.processor.held():
            task.fold.begin_switch(past)

    async def _end_preparation(self) -> None:
        """Wait for the thread that reads a task's past, which was interrupted. The next owner of the partition reads it again."""
        preparation, self._preparation = self._preparation, None
        if preparation is not None:
            await asyncio.wait((preparation.done,))
            error = preparation.done.exception()
            if error is not None and not isinstance(error, Interrupted):
                log(__name__).warning("switch_not_prepared", partition=preparation.task.partition, error=repr(error))

    def _start_commit(self, steps: Sequence[Step], began: float) -> None:
        membership = self._membership
        if membership is None:
            raise RuntimeError("a batch was started without a membership: this is a defect")
        by_partition = {task.partition: task for task in self._dependencies.assigned_tasks.running()}
        for step in steps:
            by_partition[step.partition].submitted(step.sealed)
        units = [_with_offsets(step.sealed, by_partition[step.partition]) for step in steps if step.sealed is not None]
        offsets = [
            Offset(topic, step.partition, at, by_partition[step.partition].fold.meta.units)
            for step in steps
            for topic, at in step.offsets.items()
        ]
        work = _CommitWork(units, self._dependencies.transactions.submit(units, offsets), membership)
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._commit, work)
        done.add_done_callback(lambda _: self._wake.set())
        self._in_flight = _InFlight(steps, done, began)

    def _commit(self, work: _CommitWork) -> float:
        """Commit in the commit thread: the transaction, then the stores. Returns the seconds of the transaction."""
        began, dependencies = monotonic(), self._dependencies
        positions = dependencies.transactions.commit(work.submitted, work.membership)
        seconds = monotonic() - began
        for sealed in work.units:
            position = positions[sealed.partition]
            dependencies.assigned_tasks.store(sealed.partition).apply(sealed.changes, sealed.meta, position)
            dependencies.flusher.committed(sealed.partition, sealed.changes, sealed.meta, position)
        dependencies.failpoints.passed(AFTER_STORE)
        return seconds

    async def _await_commit(self, following: Sequence[Step]) -> bool:
        """Wait for the commit in progress; return False if it failed.

        The steps of `following`, folded on top of it, are then rolled back too.
        """
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None:
            return True
        tasks = {task.partition: task for task in self._dependencies.assigned_tasks.running()}
        try:
            seconds = await in_flight.done
        except Aborted as cause:
            log(__name__).warning("batch_aborted", reason=cause.reason, error=str(cause))
            self._dependencies.gauges.aborted(cause.reason)
            steps = in_flight.steps
            if isinstance(cause, OutputRefused):
                refused, number = cause.cause, cause.partition
                steps = [tasks[number].output_refused(step, refused) if step.partition == number else step for step in steps]
            _roll_back(tasks, [*steps, *following])
            await asyncio.sleep(0.2)
            return False
        except NotOwner as cause:
            reason = "rebalanced" if isinstance(cause, NextGeneration) else "fenced"
            log(__name__).warning(reason, error=str(cause))
            self._dependencies.gauges.aborted(reason)
            _roll_back(tasks, [*in_flight.steps, *following])
            self._lost_at = monotonic()
            return False
        for step in in_flight.steps:
            tasks[step.partition].committed(step)
        self._dependencies.gauges.committed(in_flight.steps, seconds, monotonic() - in_flight.began)
        return True

    def _check_lost(self, lost_at: float) -> None:
        if monotonic() - lost_at > self._rejoin_seconds:
            raise LostGroup(f"removed from the group, and did not rejoin within {self._rejoin_seconds} s")

    async def _sleep(self) -> None:
        seconds = _IDLE_SECONDS
        tasks = self._dependencies.assigned_tasks.tasks()
        release = None if self._is_committing() or self._lost_at is not None else self._dependencies.batches.next_release(tasks)
        if release is not None:
            seconds = min(seconds, max(0.0005, (release - wall_clock_micros()) / 1e6))
        handle = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        handle.cancel()
        self._wake.clear()


async def _yield_to_others() -> None:
    for _ in range(_STEPS_OF_OTHERS):
        await asyncio.sleep(0)


def _pass_failpoints(failpoints: Failpoints, steps: Sequence[Step], *, switching: bool) -> None:
    failpoints.passed(AFTER_FOLD)
    if switching:
        failpoints.passed(AFTER_SLICE)
    elif not any(step.records for step in steps) and any(step.sealed is not None and step.sealed.fired for step in steps):
        failpoints.passed(AFTER_TIMERS)


def _with_offsets(sealed: Sealed, task: Task[Any]) -> Sealed:
    """Return the unit with the offsets of its transaction in the task's own row."""
    meta = msgspec.structs.replace(sealed.meta, offsets=task.submitted_offsets(), beyond=task.submitted_beyond())
    return sealed._replace(meta=meta)


def _roll_back(tasks: dict[int, Task[Any]], steps: Sequence[Step]) -> None:
    """Roll back the aborted steps, each task's in their order."""
    for partition in {step.partition for step in steps}:
        tasks[partition].roll_back([step for step in steps if step.partition == partition])
