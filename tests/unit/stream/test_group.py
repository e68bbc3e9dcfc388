"""The tasks of partitions that stay receive their fetches during a rebalance, and no task receives those of another assignment."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from faust.types import TP

from starling_stream.kafka.membership import Membership
from starling_stream.kafka.transport import Assignment, End, Fetch, Fetched
from starling_stream.worker.group import Group
from starling_stream.worker.processor_lock import ProcessorLock

STAYS, GOES, COMES = (TP("in", number) for number in (0, 1, 2))
RECORDS: Any = [SimpleNamespace(offset=5)]


class Worker:
    """A group with the tasks of two partitions; lists what they note and receive."""

    def __init__(self, path: Path) -> None:
        settings = SimpleNamespace(
            kafka=SimpleNamespace(brokers="127.0.0.1:1"),
            fetch_wait_ms=100,
            instance_id="w0",
            fetch_max_bytes=1,
            session_timeout_seconds=6.0,
            rebalance_timeout_seconds=6.0,
            heartbeat_interval_seconds=1.0,
            state_dir=path,
            buffered_records=100,
        )
        self.noted: list[tuple[set[TP], set[TP]]] = []
        self.received: list[int] = []
        self.assigned: list[tuple[list[int], bool]] = []
        self.claims = 0
        self.polls = 0
        tasks = SimpleNamespace(note_fetch=self._note, task=self._task, claim=None, update_claim=self._claim)
        runner = SimpleNamespace(wake=lambda: None, processor=ProcessorLock(), assigned=self._assigned, revoked=self._revoked)
        self.group = Group(cast("Any", SimpleNamespace(topics=("in",), settings=settings, group="g")))
        self.group.connect(cast("Any", tasks), cast("Any", runner), self._crash)
        self.held: Mapping[TP, Assignment] = {STAYS: "stays", GOES: "goes"}
        consumer = cast("Any", self.group._consumer)
        consumer.assignments = self._present
        consumer.membership = lambda: Membership("g", 7, "m", "w0")
        consumer.on_fetch = self.group._on_fetch

    def _present(self) -> Mapping[TP, Assignment]:
        self.polls += 1
        return self.held

    async def waits(self, fetch: Fetch) -> "asyncio.Task[Collection[TP]]":
        """Return the delivery of a fetch that waits for its tasks."""
        before, waiting = self.polls, asyncio.create_task(cast("Any", self.group._on_fetch(fetch)))
        while self.polls < before + 3:  # noqa: ASYNC110 - it polls too
            await asyncio.sleep(0.001)
        assert not waiting.done()
        return waiting

    def _note(self, batches: Mapping[TP, Any], ends: Mapping[TP, Any]) -> None:
        self.noted.append((set(batches), set(ends)))

    def _task(self, number: int) -> Any:
        return SimpleNamespace(receive=lambda *_: self.received.append(number))

    def _claim(self) -> None:
        self.claims += 1

    async def _assigned(self, partitions: list[int], _standbys: object, _membership: object, *, continued: bool) -> None:
        self.assigned.append((partitions, continued))

    async def _revoked(self) -> None:
        """All tasks stop."""

    def _crash(self, cause: BaseException) -> None:
        raise cause

    def fetch(self, tps: Collection[TP]) -> Fetch:
        """Return a fetch of the consumer, with records of these partitions and ends of all."""
        ends = dict.fromkeys(self.held, End(6, 6, 6, 0))
        return Fetch(self.held, dict.fromkeys(tps, RECORDS), ends, dict.fromkeys(tps))

    async def deliver(self, fetch: Fetch, tp: TP) -> None:
        await self.group._deliver(tp.topic, tp.partition, Fetched(fetch.assignments[tp], RECORDS, 0, None))


def _in_loop(path: Path, scenario: Callable[[Worker], Awaitable[None]]) -> None:
    """Run the scenario; the Faust app needs a running loop."""

    async def lived() -> None:
        await scenario(Worker(path))

    asyncio.run(asyncio.wait_for(lived(), 60))


def test_a_fetch_of_the_next_assignment_reaches_the_tasks_that_stay_at_once(tmp_path: Path) -> None:
    async def rebalanced(worker: Worker) -> None:
        await worker.group.reassigned([STAYS, GOES], continued=False)
        late = worker.fetch([STAYS, GOES])
        worker.held = {STAYS: "stays", COMES: "comes"}  # the consumer is ahead of the tasks
        early = worker.fetch([STAYS])
        assert set(await worker.group._on_fetch(early)) == {STAYS}
        await worker.group.reassigned([STAYS, COMES], continued=True)
        assert set(await worker.group._on_fetch(late)) == {STAYS}
        assert worker.noted == [({STAYS}, {STAYS}), ({STAYS}, {STAYS})]
        for tp in (STAYS, GOES):
            await worker.deliver(late, tp)
        assert worker.received == [0]
        assert worker.assigned == [([0, 1], False), ([0, 2], True)]

    _in_loop(tmp_path, rebalanced)


def test_records_of_a_partition_that_is_about_to_be_taken_over_wait_for_its_task(tmp_path: Path) -> None:
    async def rebalanced(worker: Worker) -> None:
        await worker.group.reassigned([STAYS, GOES], continued=False)
        worker.held = {STAYS: "stays", COMES: "comes"}
        waiting = await worker.waits(worker.fetch([STAYS, COMES]))
        await worker.group.reassigned([STAYS, COMES], continued=True)
        assert set(await waiting) == {STAYS, COMES}

    _in_loop(tmp_path, rebalanced)


def test_a_fetch_before_a_partition_returned_is_dropped(tmp_path: Path) -> None:
    async def rebalanced(worker: Worker) -> None:
        await worker.group.reassigned([STAYS, GOES], continued=False)
        before = worker.fetch([STAYS, GOES])
        worker.held = {STAYS: "stays", GOES: "again"}
        await worker.group.reassigned([STAYS, GOES], continued=True)
        assert set(await worker.group._on_fetch(before)) == {STAYS}
        await worker.deliver(before, GOES)
        assert worker.received == []

    _in_loop(tmp_path, rebalanced)


def test_a_worker_joins_again_with_a_present_claim_and_stays_assigned(tmp_path: Path) -> None:
    async def rebalanced(worker: Worker) -> None:
        await worker.group.reassigned([STAYS], continued=False)
        worker.group.rejoining()
        assert (worker.claims, worker.group.assigned) == (1, True)
        await worker.group.lost()
        assert not worker.group.assigned
        worker.held = {STAYS: "again"}
        waiting = await worker.waits(worker.fetch([STAYS]))
        worker.held = {STAYS: "and again"}
        assert not await waiting

    _in_loop(tmp_path, rebalanced)
