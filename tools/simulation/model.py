"""Pure core: topics, workers that read, process and commit in batches, and their faults, as processes of simpy.

The unit is a chunk: the events that reached one partition in one tick. A chunk is never divided, so a minute at 100,000 events/s
has a million steps instead of twenty.
"""

from array import array
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import simpy
from simpy.events import Event

Steps = Generator[Event, Any, None]
ENOUGH_RECORDS: Final = 1_000
"""Records with which a batch starts although the transaction of the one before is not committed."""
_SLICE_SECONDS: Final = 0.005
"""Longest time that a process keeps a core of a shared machine."""


class Chunk(NamedTuple):
    """Events of one partition. `born`: s, the mean time of receipt; `number`: position in the partition, from 0."""

    born: float
    events: int
    number: int


class Machine:
    """Cores that several processes share. A process has one core at a time."""

    def __init__(self, env: simpy.Environment, cores: int) -> None:
        self._env = env
        self._cores = simpy.Resource(env, cores)

    def use(self, seconds: float) -> Steps:
        """Take processor time, in slices."""
        while seconds > 1e-12:
            part = min(seconds, _SLICE_SECONDS)
            with self._cores.request() as core:
                yield core
                yield self._env.timeout(part)
            seconds -= part


class Broker:
    """The brokers. While they are paused nothing is acknowledged."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._until = 0.0

    def pause(self, seconds: float) -> None:
        """Acknowledge nothing for a time."""
        self._until = self._env.now + seconds

    def answer(self) -> Steps:
        """Wait until the brokers answer."""
        if self._env.now < self._until:
            yield self._env.timeout(self._until - self._env.now)


class Topic:
    """Chunks by partition, in order of arrival. The worker that owns a partition is notified of each arrival."""

    def __init__(self, partitions: int) -> None:
        self.waiting: list[deque[Chunk]] = [deque() for _ in range(partitions)]
        self.owners: list[Worker | None] = [None] * partitions
        self.backlog = 0
        """Records that no committed batch contains."""

    def append(self, partition: int, chunk: Chunk) -> None:
        """Add a chunk at the end of a partition."""
        self.waiting[partition].append(chunk)
        self.backlog += chunk.events
        owner = self.owners[partition]
        if owner is not None:
            owner.notice(chunk.events)

    def records(self, partition: int) -> int:
        """Return the records of a partition that wait."""
        return sum(chunk.events for chunk in self.waiting[partition])


@dataclass(frozen=True, slots=True)
class Service:
    """What a stage needs for its records.

    Units: s. `transaction` draws the time of one commit; `linger` is the wait for more records after the first one;
    `shared_seconds` is the processor time of a record at the broker or the database, on a shared machine only.
    """

    record_seconds: float
    transaction: Callable[[], float]
    batch_records: int = 10_000
    linger: float = 0.0
    pipelined: bool = True
    shared_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Context:
    """What all stages of a simulation share."""

    env: simpy.Environment
    broker: Broker
    machine: Machine | None = None


Sink = Callable[[int, Sequence[Chunk]], None]
Batch = dict[int, list[Chunk]]


@dataclass(eq=False)
class Stage:
    """The workers of one service, and the topic that they divide among themselves."""

    name: str
    around: Context
    service: Service
    source: Topic
    sink: Sink
    workers: list["Worker"] = field(default_factory=list)
    busy: "array[float]" = field(default_factory=lambda: array("d"))
    """Busy worker seconds by second of the simulation."""

    def start(self, workers: int) -> None:
        """Start the workers and assign the partitions evenly, neighbours together."""
        for first, end in assignment(len(self.source.owners), workers):
            worker = Worker(self)
            self.workers.append(worker)
            for partition in range(first, end):
                worker.own(partition)

    def spent(self, seconds: float) -> None:
        """Count processor time that ends now."""
        end = self.around.env.now
        begin = end - seconds
        while begin < end - 1e-12:
            second = int(begin + 1e-9)
            if second >= len(self.busy):
                self.busy.extend([0.0] * (second + 1 - len(self.busy)))
            part = min(end, second + 1.0) - begin
            self.busy[second] += part
            begin += part

    def lose(self, worker: "Worker", session_seconds: float, rebalance_seconds: float, restore_seconds: float) -> Steps:
        """Kill a worker. After its session all workers stop to join again, and the others restore its partitions."""
        env = self.around.env
        orphans = worker.die()
        yield env.timeout(session_seconds)
        left = [one for one in self.workers if one.alive]
        for one in left:
            one.stop_for(rebalance_seconds)
        yield env.timeout(rebalance_seconds + restore_seconds)
        for number, partition in enumerate(orphans):
            left[number % len(left)].own(partition)

    def restart_worker(self, worker: "Worker", away_seconds: float) -> Steps:
        """Stop a worker, and start it again under its id: it keeps its partitions, and no other worker stops."""
        yield from worker.drain()
        yield self.around.env.timeout(away_seconds)
        worker.resume()


def assignment(partitions: int, workers: int) -> Sequence[tuple[int, int]]:
    """Return the first partition of each worker, and the one after its last."""
    return list(pairwise(partitions * number // workers for number in range(workers + 1)))


class Worker:
    """One process: takes a batch, processes it, and commits it while it processes the next one."""

    def __init__(self, stage: Stage) -> None:
        self.alive = True
        self._stage = stage
        self._env = stage.around.env
        self._owned: list[int] = []
        self._waiting = 0
        self._wanted = 1
        self._wake: Event | None = None
        self._free_at = 0.0
        self._held: deque[Batch] = deque()
        self._commit: simpy.Process | None = None
        self._process = self._env.process(self._run())

    def own(self, partition: int) -> None:
        """Take a partition over, from its first record that is not committed."""
        self._owned.append(partition)
        self._stage.source.owners[partition] = self
        self.notice(self._stage.source.records(partition))

    def notice(self, records: int) -> None:
        """Count records that arrived."""
        self._waiting += records
        if self._wake is not None and self._waiting >= self._wanted:
            self._wake.succeed()
            self._wake = None

    def stop_for(self, seconds: float) -> None:
        """Start no batch for a time."""
        self._free_at = max(self._free_at, self._env.now + seconds)

    def die(self) -> Sequence[int]:
        """End at once. Batches that are not committed are in their partitions again. Return the partitions, which have no owner."""
        self.alive = False
        for process in (self._process, self._commit):
            if process is not None and process.is_alive:
                process.interrupt()
        self._return_batches()
        for partition in self._owned:
            self._stage.source.owners[partition] = None
        owned, self._owned, self._waiting = self._owned, [], 0
        return owned

    def drain(self) -> Steps:
        """Commit the batch whose transaction is open, and stop. A batch that is processed meanwhile is in its partitions again."""
        self._free_at = float("inf")
        if self._commit is not None and self._commit.is_alive:
            yield self._commit
        if self._process.is_alive:
            self._process.interrupt()
        if self._commit is not None and self._commit.is_alive:
            self._commit.interrupt()
        self._return_batches()

    def resume(self) -> None:
        """Start again after `drain`."""
        self._free_at, self._commit, self._wake = 0.0, None, None
        self._waiting = sum(self._stage.source.records(partition) for partition in self._owned)
        self._process = self._env.process(self._run())

    def _return_batches(self) -> None:
        while self._held:
            for partition, chunks in self._held.pop().items():
                self._stage.source.waiting[partition].extendleft(reversed(chunks))

    def _until(self, records: int) -> Event:
        """Return an event that happens once so many records wait."""
        self._wanted, self._wake = records, self._env.event()
        wake = self._wake
        self.notice(0)
        return wake

    def _run(self) -> Steps:
        try:
            while True:
                yield from self._turn()
        except simpy.Interrupt:
            return

    def _turn(self) -> Steps:
        service = self._stage.service
        if self._free_at == float("inf"):
            yield self._env.event()
        while self._env.now < self._free_at:
            yield self._env.timeout(self._free_at - self._env.now)
        if self._waiting == 0:
            yield self._until(1)
        if service.linger and self._waiting < service.batch_records:
            yield self._until(service.batch_records) | self._env.timeout(service.linger)
        if self._env.now < self._free_at:
            return
        batch, count = self._take(service.batch_records)
        if not count:
            return
        yield from self._work(count * service.record_seconds)
        if self._commit is not None and self._commit.is_alive:
            yield self._commit
        self._commit = self._env.process(self._committing(batch, count))
        if not service.pipelined:
            yield self._commit
        elif self._waiting < ENOUGH_RECORDS:
            yield self._commit | self._until(ENOUGH_RECORDS)

    def _work(self, seconds: float) -> Steps:
        machine = self._stage.around.machine
        if machine is None:
            yield self._env.timeout(seconds)
        else:
            yield from machine.use(seconds)
        self._stage.spent(seconds)

    def _take(self, most: int) -> tuple[Batch, int]:
        """Return the next records of all partitions, and their number. A partition with many does not starve the others."""
        topic, batch, count = self._stage.source, Batch(), 0
        busy = [partition for partition in self._owned if topic.waiting[partition]]
        everything = self._waiting <= most
        for left, partition in zip(range(len(busy), 0, -1), sorted(busy, key=lambda one: len(topic.waiting[one])), strict=True):
            queue = topic.waiting[partition]
            if everything:
                chunks = list(queue)
                queue.clear()
            else:
                chunks, share = [], max(1, (most - count) // left)
                while queue and share > 0:
                    chunk = queue.popleft()
                    chunks.append(chunk)
                    share -= chunk.events
            if chunks:
                batch[partition] = chunks
                count += sum(chunk.events for chunk in chunks)
        self._waiting -= count
        self._held.append(batch)
        return batch, count

    def _committing(self, batch: Batch, count: int) -> Steps:
        service, around = self._stage.service, self._stage.around
        try:
            if around.machine is not None and service.shared_seconds:
                yield from around.machine.use(count * service.shared_seconds)
            yield self._env.timeout(service.transaction())
            yield from around.broker.answer()
        except simpy.Interrupt:
            return
        self._held.popleft()
        self._stage.source.backlog -= count
        for partition, chunks in batch.items():
            self._stage.sink(partition, chunks)
