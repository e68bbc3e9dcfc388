"""Edge: drives rounds. Folds the next round while the one before is on its way to the broker."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final, NamedTuple

from starling_common.instants import wall_clock_micros
from starling_common.logs import log
from starling_stream.fold.batches import Rounds
from starling_stream.fold.task import Step, Task
from starling_stream.kafka.transactions import Aborted, NotOwner, Offset, Submitted, Transactions
from starling_stream.kafka.transport import Membership
from starling_stream.model.failpoints import AFTER_FOLD, AFTER_STORE, Failpoints
from starling_stream.model.ports import BackingTier, Sealed
from starling_stream.state.metrics import Gauges
from starling_stream.state.restore import Interrupted
from starling_stream.worker.assigned_tasks import Holdings

_IDLE_SECONDS: Final = 0.05
"""The longest an idle loop sleeps: plans and the wall clock change without any record."""


_STEPS_OF_OTHERS: Final = 25
"""How often the loop goes round between two rounds. The fold holds it for the whole of a round, and a fetch needs some twenty
of its turns from the consumer's thread to its task: with one a round, records waited for that many rounds. Measured beside
200,000 timers in one second, p99 of a live event's way: none 2.7 s, 4 1.3 s, 10 0.6 s, 25 0.4 s.
"""


class LostGroup(Exception):
    """This worker was put out of its group and was not let in again in time."""


class Parts(NamedTuple):
    """What a runner works with."""

    holdings: Holdings[Any]
    rounds: Rounds
    transactions: Transactions
    tier: BackingTier
    gauges: Gauges
    failpoints: Failpoints


class _Work(NamedTuple):
    """What the commit thread is given of a round."""

    units: Sequence[Sealed]
    submitted: Submitted
    membership: Membership


class _InFlight(NamedTuple):
    steps: Sequence[Step]
    done: "asyncio.Future[float]"
    began: float


class Runner:
    """One loop a worker. `flow` is called between rounds: there the reading ahead is held back or let go."""

    def __init__(self, parts: Parts, flow: Callable[[], None], rejoin_seconds: float) -> None:
        self._parts = parts
        self._flow = flow
        self._rejoin_seconds = rejoin_seconds
        self._membership: Membership | None = None
        self._lost_at: float | None = None
        self._in_flight: _InFlight | None = None
        self._stopping = False
        self._wake = asyncio.Event()
        self._turn_lock = asyncio.Lock()
        self.processor_free = asyncio.Lock()
        """Held while another thread is inside the processor; whoever decodes takes it."""
        self.last_turn = monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")

    @property
    def fenced(self) -> bool:
        """Put out of the group, and not back yet."""
        return self._lost_at is not None

    def wake(self) -> None:
        """Something may have to be done."""
        self._wake.set()

    async def run(self) -> None:
        """Until stopped. Raises: Replaced, LostGroup, and whatever a processor raises; nothing of the round is done then."""
        while not self._stopping:
            async with self._turn_lock:
                worked = not self._stopping and await self._turn()
            if worked:
                await _let_others_go_on()
            else:
                await self._sleep()

    async def stop(self) -> None:
        """Finish what is on its way, begin nothing more."""
        self._stopping = True
        self._parts.holdings.interrupt()
        self.wake()
        async with self._turn_lock:
            await self._land(())
        self._thread.shutdown(wait=True)

    async def assigned(self, partitions: Sequence[int], standbys: Collection[int], membership: Membership) -> None:
        """The group gave these partition numbers to this worker, and those to keep a copy of."""
        async with self._turn_lock:
            self._membership = membership
            self._lost_at = None
            self._parts.holdings.assign(partitions, standbys, membership.generation)
        log(__name__).info("assigned", partitions=list(partitions), standbys=sorted(standbys), generation=membership.generation)
        self.wake()

    async def revoked(self) -> None:
        """The group takes all partitions back: what is on its way is finished first, nothing else."""
        self._parts.holdings.interrupt()
        async with self._turn_lock:
            await self._land(())
            self._parts.holdings.revoke()

    async def _turn(self) -> bool:
        """One round; False when there was nothing to do."""
        parts = self._parts
        self.last_turn = monotonic()
        self._check_lost()
        self._flow()
        behind_seconds = parts.tier.pressure()
        if behind_seconds > 0:
            await asyncio.sleep(behind_seconds)
        tasks = parts.holdings.running()
        if not await self._begin_switch(tasks):
            return True
        if self._is_committing() and parts.rounds.is_small(tasks):
            return False
        began = monotonic()
        steps = parts.rounds.collect(tasks, wall_clock_micros())
        if not steps:
            if not self._is_committing():
                await self._land(())
            return False
        parts.failpoints.passed(AFTER_FOLD)
        if await self._land(steps):
            self._launch(steps, began)
        return True

    def _is_committing(self) -> bool:
        return self._in_flight is not None and not self._in_flight.done.done()

    async def _begin_switch(self, tasks: Sequence[Task[Any]]) -> bool:
        """Let a task look at its past before it is switched; False when the round has to start over."""
        parts = self._parts
        parts.rounds.adopt(tasks)
        task = parts.rounds.to_begin(tasks)
        if task is None:
            return True
        if not await self._land(()):
            return False
        try:
            async with self.processor_free:
                await asyncio.get_running_loop().run_in_executor(None, task.fold.begin_switch, parts.holdings.past(task))
        except Interrupted:
            return False
        return True

    def _launch(self, steps: Sequence[Step], began: float) -> None:
        membership = self._membership
        if membership is None:
            raise RuntimeError("a round without a membership")
        by_partition = {task.partition: task for task in self._parts.holdings.running()}
        for step in steps:
            by_partition[step.partition].submitted(step.sealed)
        units = [step.sealed for step in steps if step.sealed is not None]
        offsets = [Offset(topic, step.partition, at) for step in steps for topic, at in step.offsets.items()]
        work = _Work(units, self._parts.transactions.submit(units, offsets), membership)
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._commit, work)
        done.add_done_callback(lambda _: self._wake.set())
        self._in_flight = _InFlight(steps, done, began)

    def _commit(self, work: _Work) -> float:
        """In the commit thread: the transaction, then the stores. Returns the seconds of the transaction."""
        began, parts = monotonic(), self._parts
        positions = parts.transactions.commit(work.submitted, work.membership)
        seconds = monotonic() - began
        for sealed in work.units:
            position = positions[sealed.partition]
            parts.holdings.store(sealed.partition).apply(sealed.changes, sealed.meta, position)
            parts.tier.committed(sealed.partition, sealed.changes, sealed.meta, position)
        parts.failpoints.passed(AFTER_STORE)
        return seconds

    async def _land(self, following: Sequence[Step]) -> bool:
        """Wait for the round on its way. False when it did not happen: `following` was folded on it and is given back too."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None:
            return True
        tasks = {task.partition: task for task in self._parts.holdings.running()}
        try:
            seconds = await in_flight.done
        except Aborted as cause:
            log(__name__).warning("round_aborted", reason=cause.reason, error=str(cause))
            self._parts.gauges.aborted(cause.reason)
            _give_back(tasks, [*in_flight.steps, *following])
            await asyncio.sleep(0.2)
            return False
        except NotOwner as cause:
            log(__name__).warning("fenced", error=str(cause))
            self._parts.gauges.aborted("fenced")
            self._parts.holdings.revoke()
            self._lost_at = monotonic()
            return False
        for step in in_flight.steps:
            tasks[step.partition].landed(step)
        self._parts.gauges.committed(in_flight.steps, seconds, monotonic() - in_flight.began)
        return True

    def _check_lost(self) -> None:
        if self._lost_at is not None and monotonic() - self._lost_at > self._rejoin_seconds:
            raise LostGroup(f"fenced, and not back in the group after {self._rejoin_seconds} s")

    async def _sleep(self) -> None:
        seconds = _IDLE_SECONDS
        release = None if self._is_committing() else self._parts.rounds.next_release(self._parts.holdings.tasks())
        if release is not None:
            seconds = min(seconds, max(0.0005, (release - wall_clock_micros()) / 1e6))
        handle = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        handle.cancel()
        self._wake.clear()


async def _let_others_go_on() -> None:
    for _ in range(_STEPS_OF_OTHERS):
        await asyncio.sleep(0)


def _give_back(tasks: dict[int, Task[Any]], steps: Sequence[Step]) -> None:
    """Return the steps that did not happen, each task's in their order."""
    for partition in {step.partition for step in steps}:
        tasks[partition].give_back([step for step in steps if step.partition == partition])
