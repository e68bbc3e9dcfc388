"""Edge: the partitions that this worker holds: their tasks, their stores, and the restores under way."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final, Generic, NamedTuple

from starling_common.logs import log
from starling_common.outcome import Refused
from starling_stream.fold.task import Task, decode_record
from starling_stream.fold.task_fold import TaskFold
from starling_stream.kafka.assignment import NOT_OPENED, Claim
from starling_stream.kafka.transport import End
from starling_stream.model.phase import Phase
from starling_stream.model.ports import BackingTier
from starling_stream.model.processor import Inbound, S, Service
from starling_stream.model.records import RawRecord
from starling_stream.state.lazy_restore import Warming
from starling_stream.state.local_store import StoreMemory, TaskStore
from starling_stream.state.metrics import Gauges
from starling_stream.state.orphaned import delete, put_aside, stores_in
from starling_stream.state.restore import Interrupted, Plan, Restored, history, restore
from starling_stream.state.standby import Standbys

_RESTORES: Final = 4
"""At a time: most of a short one is waiting for the broker."""


_SWEEP_LATER_SECONDS: Final = 5.0
"""After an assignment, so that the stores which it took away are closed by then."""


@dataclass
class Held(Generic[S]):
    """One partition. `stop` interrupts whatever reads the broker on its behalf."""

    task: Task[S]
    plan: Plan
    stop: Event = field(default_factory=Event)
    store: TaskStore | None = None
    restoring: "asyncio.Task[None] | None" = None
    warming: Warming | None = None
    """While some of its users are in the tier alone."""

    def lowest_due_ms(self) -> int:
        """As `Lowest`; 0 once the store is gone."""
        warming, store = self.warming, self.store
        if warming is not None:
            return warming.lowest()
        return 0 if store is None else store.earliest_ms()

    def end(self) -> None:
        """Interrupt what runs, forget what is in memory. The store stays open, and no other thread uses it any more."""
        self.stop.set()
        if self.warming is not None:
            self.warming.stop()
            self.warming = None
        self.task.revoke()


class Means(NamedTuple):
    """What holding partitions takes."""

    plan: Callable[[int], Plan]
    memory: StoreMemory
    gauges: Gauges
    directory: Path
    """Where the stores are, one directory a partition."""
    keep_seconds: float
    """For the store of a partition that moved away."""
    standbys: Standbys
    replicas: int
    """How many other workers are to keep a copy of each partition."""
    tier: BackingTier
    warming: "Callable[[int, Restored, Callable[[], None]], Warming]"
    """For a partition, what was restored, and what to call when all its users are here."""
    wake: Callable[[], None]
    crash: Callable[[BaseException], None]


class Holdings(Generic[S]):
    """Used on the event loop only; restores run in threads of their own."""

    def __init__(self, service: Service[S], means: Means) -> None:
        self._service = service
        self._means = means
        self._held: dict[int, Held[S]] = {}
        self._left: dict[int, Held[S]] = {}
        """Revoked, with the store still open: it may come back in the next assignment."""
        self._ending: dict[int, asyncio.Task[None]] = {}
        """Given away; the store is being closed."""
        self._dealt = object()
        """Stands for the last assignment."""
        self._following: asyncio.Task[None] | None = None
        self._closed = False
        self.claim = self._claim()
        """What this worker says of itself when it joins the group: as of the last revocation. Read by the consumer's thread."""
        self._threads = ThreadPoolExecutor(_RESTORES, thread_name_prefix="restore")

    def tasks(self) -> list[Task[S]]:
        """Every task of the current assignment."""
        return [held.task for held in self._held.values()]

    def running(self) -> list[Task[S]]:
        """Those that are restored."""
        return [held.task for held in self._held.values() if held.task.phase is Phase.RUNNING]

    def task(self, partition: int) -> Task[S] | None:
        """Return the task of a partition; None if it is not assigned to this worker."""
        held = self._held.get(partition)
        return None if held is None else held.task

    def store(self, partition: int) -> TaskStore:
        """The store of a running task. Raises: RuntimeError for any other."""
        held = self._held.get(partition)
        if held is None or held.store is None:
            raise RuntimeError(f"partition {partition} has no store here")
        return held.store

    def past(self, task: Task[S]) -> "PastOfTask":
        """The history of a task."""
        return PastOfTask(self._held[task.partition])

    def assign(self, partitions: Sequence[int], standbys: Collection[int], generation: int) -> None:
        """Begin to restore these, and to follow those; stores of others are closed. Returns at once."""
        loop = asyncio.get_running_loop()
        for number in partitions:
            held = Held(Task(self._service, number, generation), self._means.plan(number))
            before = self._left.pop(number, None)
            self._held[number] = held
            self._means.gauges.phase(number, held.task.phase)
            held.restoring = loop.create_task(self._restore(held, before))
        gone, self._left = self._left, {}
        for number, held in gone.items():
            self._ending[number] = loop.create_task(self._let_go(held))
        self._dealt = object()
        self._following = loop.create_task(self._follow(frozenset(standbys), self._dealt))
        loop.call_later(self._means.keep_seconds + _SWEEP_LATER_SECONDS, self._sweep)

    async def _follow(self, standbys: Collection[int], dealt: object) -> None:
        """Once all that was given away is closed, unless there is another assignment by then."""
        for ending in list(self._ending.values()):
            await ending
        if dealt is self._dealt and not self._closed:
            self._ending = {}
            self._means.standbys.follow(standbys)

    def _sweep(self) -> None:
        """Delete the stores of partitions that moved away and did not come back."""
        if self._closed:
            return
        used = {*self._held, *self._left, *self._means.standbys.followed()}
        gone = put_aside(self._means.directory, used, self._means.keep_seconds)
        if gone:
            log(__name__).info("stores_of_others_deleted", directories=[path.name for path in gone])
            self._threads.submit(delete, gone)

    def interrupt(self) -> None:
        """Whatever reads the broker on behalf of a partition is to stop soon; the tasks stay."""
        for held in self._held.values():
            held.stop.set()

    def revoke(self) -> None:
        """Forget all in memory, interrupt what runs. Stores stay open until the next assignment says who keeps what."""
        for number, held in self._held.items():
            held.end()
            self._means.tier.release(number)
            self._means.gauges.phase(number, held.task.phase)
            self._left[number] = held
        self._held = {}
        self.claim = self._claim()

    def _claim(self) -> Claim:
        means, left = self._means, self._left
        ran = {number: held.store for number, held in left.items() if held.store is not None}
        stores = dict.fromkeys(stores_in(means.directory), NOT_OPENED) | means.standbys.positions()
        stores |= {number: store.position() or 0 for number, store in ran.items()}
        generation = max((held.task.generation for held in left.values()), default=-1)
        return Claim(generation, tuple(sorted(ran)), stores, means.replicas)

    async def close(self) -> None:
        """Close every store."""
        self._closed = True
        self.revoke()
        gone, self._left = self._left, {}
        for held in gone.values():
            await self._let_go(held)
        await asyncio.gather(*self._ending.values())
        await asyncio.get_running_loop().run_in_executor(self._threads, self._means.standbys.close)
        self._threads.shutdown(wait=True)

    def announce(self, batches: Mapping[Any, Sequence[RawRecord]], ends: Mapping[Any, End]) -> None:
        """A fetch happened; both mappings go by (topic, partition)."""
        for number, held in self._held.items():
            counts = {tp.topic: 1 for tp in batches if tp.partition == number}
            known = {tp.topic: end for tp, end in ends.items() if tp.partition == number}
            held.task.announce(counts, known)

    async def _restore(self, held: Held[S], before: Held[S] | None) -> None:
        task, means = held.task, self._means
        loop = asyncio.get_running_loop()
        try:
            if task.partition in self._ending:
                await self._ending[task.partition]
            if before is not None:
                held.store = await _taken_over(before)
            else:
                held.store = await loop.run_in_executor(self._threads, means.standbys.take, task.partition)
            if held.stop.is_set():
                return
            task.phase = Phase.RESTORING
            means.gauges.phase(task.partition, task.phase)
            opened, held.store = held.store, None
            found = await loop.run_in_executor(self._threads, restore, held.plan, means.memory, held.stop, opened)
            held.store = found.store
            if not held.stop.is_set():
                self._ready(held, found)
        except Interrupted:
            log(__name__).info("restore_interrupted", partition=task.partition)
        except Exception as cause:  # noqa: BLE001 - whatever broke it, the worker must not go on without this partition
            means.crash(cause)

    def _ready(self, held: Held[S], found: Restored) -> None:
        task, means = held.task, self._means
        fold = TaskFold(self._service, task.partition, found.meta)
        if found.store.cold():
            held.warming = means.warming(task.partition, found, lambda: self._warm(held))
            task.run(held.warming, fold, found.offsets)
            task.partial = held.warming
            held.warming.start()
        else:
            task.run(found.store, fold, found.offsets)
        means.tier.track(task.partition, found.store, found.tail, held.lowest_due_ms)
        means.gauges.phase(task.partition, task.phase)
        means.gauges.restored(task.partition, found.seconds, found.records, found.base)
        said = {"restored": found.records, "base": found.base.value, "seconds": found.seconds}
        log(__name__).info("task_running", partition=task.partition, **said, **found.offsets)
        means.wake()

    def _warm(self, held: Held[S]) -> None:
        """All users of the partition are local."""
        if held.store is not None and held.warming is not None:
            held.task.warm(held.store)
            held.warming = None
            self._means.wake()

    async def _let_go(self, held: Held[S]) -> None:
        if held.restoring is not None:
            await held.restoring
        if held.store is not None:
            store, held.store = held.store, None
            await asyncio.get_running_loop().run_in_executor(self._threads, store.close)


async def _taken_over(before: Held[Any]) -> TaskStore | None:
    """The store of a partition that came back, still open; None when it was never opened."""
    if before.restoring is not None:
        await before.restoring
    store, before.store = before.store, None
    return store


class PastOfTask:
    """A task's `History`: reads from the broker, in whichever thread asks."""

    def __init__(self, held: Held[Any]) -> None:
        task = held.task
        self.partition = task.partition
        self.stream_time_ms = task.committed_meta.stream_time_ms
        self.applied_plan = task.committed_meta.plan
        self._held = held

    def records(self, topic: str, first: int = 0, until: int | None = None) -> Iterator[Inbound]:
        """As `History.records`; what could not be decoded was refused when it came, and is left out.

        Raises: Interrupted when the partition is taken away meanwhile.
        """
        held = self._held
        end = held.task.committed_offset(topic) if until is None else until
        if end <= first:
            return
        for record in history(held.plan.brokers, topic, self.partition, (first, end), held.stop):
            inbound = decode_record(held.task.service, record.topic, record.partition, record)
            if not isinstance(inbound.value, Refused):
                yield inbound
