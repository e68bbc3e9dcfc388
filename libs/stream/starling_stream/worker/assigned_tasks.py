"""Edge: the tasks of the partitions assigned to this worker, their stores, and the restores in progress."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final, Generic, NamedTuple

from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_stream.fold.task import Task, decode_record
from starling_stream.fold.task_fold import TaskFold
from starling_stream.kafka.assignment import NOT_OPENED, Claim
from starling_stream.kafka.transport import End
from starling_stream.model.errors import OffsetsMisfit
from starling_stream.model.failpoints import AFTER_RESTORE, Failpoints
from starling_stream.model.phase import Phase
from starling_stream.model.ports import StateFlusher
from starling_stream.model.processor import Inbound, S, Service
from starling_stream.model.records import RawRecord, ReadRecord
from starling_stream.state.failures import StoredFailures
from starling_stream.state.local_store import StoreMemory, TaskStore
from starling_stream.state.metrics import Gauges
from starling_stream.state.orphaned import delete, set_aside, stores_in
from starling_stream.state.restore.lazy_restore import LazyRestore
from starling_stream.state.restore.range_consumers import RangeConsumers
from starling_stream.state.restore.restore import Interrupted, Plan, Restored, read_range, restore
from starling_stream.state.restore.standby import Standbys
from starling_stream.worker.processor_lock import ProcessorLock

_RESTORES: Final = 4
"""Concurrent restores: a short one mostly waits for the broker."""


_SWEEP_LATER_SECONDS: Final = 5.0
"""After an assignment, so that the stores of revoked partitions are closed by then."""


@dataclass
class AssignedTask(Generic[S]):
    """One partition. `stop` interrupts the threads that read the broker for it."""

    task: Task[S]
    plan: Plan
    stop: Event = field(default_factory=Event)
    store: TaskStore | None = None
    restoring: "asyncio.Task[None] | None" = None
    lazy_restore: LazyRestore | None = None
    """Set while some of its users are only in the backing store."""
    refusal: str | None = None
    """Why the partition is not processed until an operator has changed its offsets."""

    def earliest_due_ms(self) -> int:
        """Return an instant before which no user is due; 0 once the store is closed."""
        lazy_restore, store = self.lazy_restore, self.store
        if lazy_restore is not None:
            return lazy_restore.earliest_due_ms()
        return 0 if store is None else store.earliest_ms()

    def end(self) -> None:
        """Interrupt its threads and drop its memory. The store stays open, and no other thread uses it any more."""
        self.stop.set()
        if self.lazy_restore is not None:
            self.lazy_restore.stop()
            self.lazy_restore = None
        self.task.revoke()


class AssignedTasksDependencies(NamedTuple):
    """The dependencies of `AssignedTasks`."""

    plan: Callable[[int], Plan]
    memory: StoreMemory
    gauges: Gauges
    directory: Path
    """The directory of the stores, with one directory a partition."""
    keep_seconds: float
    """How long the store of a partition that moved away is kept."""
    standbys: Standbys
    replicas: int
    """How many other workers are to keep a standby copy of each partition."""
    flusher: StateFlusher
    lazy_restore: "Callable[[int, Restored, Callable[[], None]], LazyRestore]"
    """Called with a partition, its restore, and the function to call when all its users are loaded."""
    wake: Callable[[], None]
    crash: Callable[[BaseException], None]
    failpoints: Failpoints


class AssignedTasks(Generic[S]):
    """Used on the event loop only; restores run in threads of their own."""

    def __init__(self, service: Service[S], dependencies: AssignedTasksDependencies) -> None:
        self._service = service
        self._dependencies = dependencies
        self._assigned: dict[int, AssignedTask[S]] = {}
        self._revoked: dict[int, AssignedTask[S]] = {}
        """Revoked tasks with an open store: the next assignment may contain them again."""
        self._ending: dict[int, asyncio.Task[None]] = {}
        """Partition -> the closing of a store that moved to another worker."""
        self._last_assignment = object()
        """Identifies the last assignment."""
        self._following: asyncio.Task[None] | None = None
        self._closed = False
        self._history: RangeConsumers | None = None
        self.claim = self._claim()
        """This worker's claim as of the last revocation or `update_claim`, for the next join. Read by the consumer's thread."""
        self._threads = ThreadPoolExecutor(_RESTORES, thread_name_prefix="restore")

    def tasks(self) -> list[Task[S]]:
        """Return every task of the current assignment. May be called from any thread."""
        return [assigned.task for assigned in list(self._assigned.values())]

    def refusals(self) -> dict[int, str]:
        """Return partition -> why it is not processed until an operator has changed its offsets."""
        return {number: assigned.refusal for number, assigned in list(self._assigned.items()) if assigned.refusal is not None}

    def running(self) -> list[Task[S]]:
        """Return the restored tasks."""
        return [assigned.task for assigned in self._assigned.values() if assigned.task.phase is Phase.RUNNING]

    def task(self, partition: int) -> Task[S] | None:
        """Return the task of a partition; None if it is not assigned to this worker."""
        assigned = self._assigned.get(partition)
        return None if assigned is None else assigned.task

    def store(self, partition: int) -> TaskStore:
        """Return the store of a running task. Raises: RuntimeError for any other."""
        assigned = self._assigned.get(partition)
        if assigned is None or assigned.store is None:
            raise RuntimeError(f"partition {partition} has no store here")
        return assigned.store

    def task_history(self, task: Task[S], processor: ProcessorLock) -> "TaskHistory":
        """Return the history of a task, for a thread that holds the lock."""
        assigned = self._assigned[task.partition]
        if self._history is None:
            self._history = RangeConsumers(assigned.plan.brokers)
        return TaskHistory(assigned, self._history, processor)

    def assign(self, partitions: Sequence[int], standbys: Collection[int], generation: int) -> None:
        """Start to restore these partitions, unless they are assigned already, and to follow the standbys. Returns at once.

        The stores of partitions that were revoked, and are not assigned again, are closed.
        """
        loop = asyncio.get_running_loop()
        for number in partitions:
            if number in self._assigned:
                self._assigned[number].task.generation = generation
                continue
            assigned = AssignedTask(Task(self._service, number, generation), self._dependencies.plan(number))
            before = self._revoked.pop(number, None)
            self._assigned[number] = assigned
            self._dependencies.gauges.phase(number, assigned.task.phase)
            assigned.restoring = loop.create_task(self._restore(assigned, before))
        gone, self._revoked = self._revoked, {}
        for number, assigned in gone.items():
            self._ending[number] = loop.create_task(self._close_store(assigned))
        self._last_assignment = object()
        self._following = loop.create_task(self._follow(frozenset(standbys), self._last_assignment))
        loop.call_later(self._dependencies.keep_seconds + _SWEEP_LATER_SECONDS, self._sweep)

    async def _follow(self, standbys: Collection[int], assignment: object) -> None:
        """Follow the standbys once all other stores are closed, unless there is a newer assignment by then."""
        for ending in list(self._ending.values()):
            await ending
        if assignment is self._last_assignment and not self._closed:
            self._ending = {}
            self._dependencies.standbys.follow(standbys)

    def _sweep(self) -> None:
        """Delete the stores of partitions that moved away and did not return."""
        if self._closed:
            return
        used = {*self._assigned, *self._revoked, *self._dependencies.standbys.followed()}
        gone = set_aside(self._dependencies.directory, used, self._dependencies.keep_seconds)
        if gone:
            log(__name__).info("orphaned_stores_deleted", directories=[path.name for path in gone])
            self._threads.submit(delete, gone)

    def interrupt(self, partitions: Collection[int]) -> None:
        """Interrupt the threads that read the broker for these partitions; the tasks stay."""
        for number in partitions:
            self._assigned[number].stop.set()

    def revoke(self, partitions: Collection[int]) -> None:
        """Drop the memory of these partitions and interrupt their threads. Stores stay open until the next assignment."""
        for number in partitions:
            assigned = self._revoked[number] = self._assigned.pop(number)
            assigned.end()
            self._dependencies.flusher.release(number)
            self._dependencies.gauges.phase(number, assigned.task.phase)
        self.update_claim()

    def update_claim(self) -> None:
        """Prepare this worker's claim for the next join."""
        self.claim = self._claim()

    def _claim(self) -> Claim:
        dependencies, tasks = self._dependencies, self._revoked | self._assigned
        ran = {number: assigned.store for number, assigned in tasks.items() if assigned.store is not None}
        stores = dict.fromkeys(stores_in(dependencies.directory), NOT_OPENED) | dependencies.standbys.positions()
        stores |= {number: store.position() or 0 for number, store in ran.items()}
        generation = max((assigned.task.generation for assigned in tasks.values()), default=-1)
        return Claim(generation, tuple(sorted(ran)), stores, dependencies.replicas)

    async def close(self) -> None:
        """Close every store."""
        self._closed = True
        self.revoke(list(self._assigned))
        gone, self._revoked = self._revoked, {}
        for assigned in gone.values():
            await self._close_store(assigned)
        await asyncio.gather(*self._ending.values())
        await asyncio.get_running_loop().run_in_executor(self._threads, self._dependencies.standbys.close)
        self._threads.shutdown(wait=True)
        if self._history is not None:
            self._history.close()

    def note_fetch(self, batches: Mapping[Any, Sequence[RawRecord]], ends: Mapping[Any, End]) -> None:
        """Pass the counts and ends of a fetch to the tasks; both mappings go by (topic, partition)."""
        for number, assigned in self._assigned.items():
            counts = {tp.topic: 1 for tp in batches if tp.partition == number}
            known = {tp.topic: end for tp, end in ends.items() if tp.partition == number}
            assigned.task.note_fetch(counts, known)

    async def _restore(self, assigned: AssignedTask[S], before: AssignedTask[S] | None) -> None:
        task, dependencies = assigned.task, self._dependencies
        loop = asyncio.get_running_loop()
        try:
            if task.partition in self._ending:
                await self._ending[task.partition]
            if before is not None:
                assigned.store = await _reused_store(before)
            else:
                assigned.store = await loop.run_in_executor(self._threads, dependencies.standbys.take, task.partition)
            if assigned.stop.is_set():
                return
            task.phase = Phase.RESTORING
            dependencies.gauges.phase(task.partition, task.phase)
            opened, assigned.store = assigned.store, None
            found = await loop.run_in_executor(self._threads, restore, assigned.plan, dependencies.memory, assigned.stop, opened)
            assigned.store = found.store
            if not assigned.stop.is_set():
                dependencies.failpoints.passed(AFTER_RESTORE)
                self._ready(assigned, found)
        except Interrupted:
            log(__name__).info("restore_interrupted", partition=task.partition)
        except OffsetsMisfit as cause:
            assigned.refusal = str(cause)
            log(__name__).error("offsets_refused", partition=task.partition, error=str(cause))
        except Exception as cause:  # noqa: BLE001 - the worker must not continue without this partition
            dependencies.crash(cause)

    def _ready(self, assigned: AssignedTask[S], found: Restored) -> None:
        task, dependencies = assigned.task, self._dependencies
        fold = TaskFold(self._service, task.partition, found.meta)
        failures = StoredFailures(task.partition, found.store, dependencies.failpoints)
        if found.store.unloaded():
            assigned.lazy_restore = dependencies.lazy_restore(task.partition, found, lambda: self._all_loaded(assigned))
            task.run(assigned.lazy_restore, fold, found.offsets, failures)
            task.partial = assigned.lazy_restore
            assigned.lazy_restore.start()
        else:
            task.run(found.store, fold, found.offsets, failures)
        dependencies.flusher.track(task.partition, found.store, found.tail, assigned.earliest_due_ms)
        dependencies.gauges.phase(task.partition, task.phase)
        dependencies.gauges.restored(task.partition, found.seconds, found.records, found.base)
        summary = {"restored": found.records, "base": found.base.value, "seconds": found.seconds}
        log(__name__).info("task_running", partition=task.partition, **summary, **found.offsets)
        dependencies.wake()

    def _all_loaded(self, assigned: AssignedTask[S]) -> None:
        """Replace the task's partial view: all its users are loaded."""
        if assigned.store is not None and assigned.lazy_restore is not None:
            assigned.task.all_loaded(assigned.store)
            assigned.lazy_restore = None
            self._dependencies.wake()

    async def _close_store(self, assigned: AssignedTask[S]) -> None:
        if assigned.restoring is not None:
            await assigned.restoring
        if assigned.store is not None:
            store, assigned.store = assigned.store, None
            await asyncio.get_running_loop().run_in_executor(self._threads, store.close)


async def _reused_store(before: AssignedTask[Any]) -> TaskStore | None:
    """Return the open store of a partition that was assigned again; None if it was never opened."""
    if before.restoring is not None:
        await before.restoring
    store, before.store = before.store, None
    return store


class TaskHistory:
    """A task's `History`: reads from the broker, in the calling thread, which holds the lock of the processor.

    The lock is released while the thread waits for the broker, and now and then between two records.
    """

    def __init__(self, assigned: AssignedTask[Any], consumers: RangeConsumers, processor: ProcessorLock) -> None:
        task = assigned.task
        self._consumers = consumers
        self.partition = task.partition
        self.stream_time_ms = task.committed_meta.stream_time_ms
        self.applied_plan = task.committed_meta.plan
        self._assigned = assigned
        self._processor = processor

    def records(self, topic: str, first: int = 0, until: int | None = None) -> Iterator[Inbound]:
        """Yield the records of a topic from an offset on. Records that could not be decoded are omitted.

        Raises: Interrupted when the partition is revoked meanwhile.
        """
        assigned = self._assigned
        end = assigned.task.committed_offset(topic) if until is None else until
        if end <= first:
            return
        batches = read_range(self._consumers, topic, self.partition, (first, end), assigned.stop)
        while (batch := self._next(batches)) is not None:
            for record in batch:
                self._processor.give_way()
                if assigned.stop.is_set():
                    raise Interrupted
                inbound = decode_record(assigned.task.service, record.topic, record.partition, record)
                if not isinstance(inbound.value, Refused):
                    yield inbound

    def _next(self, batches: Iterator[list[ReadRecord]]) -> list[ReadRecord] | None:
        with self._processor.released():
            return next(batches, None)
