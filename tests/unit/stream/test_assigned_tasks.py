"""A rebalance restores the partitions that a worker gains, and no others; the claim names what it has."""

import asyncio
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from starling_common.settings import Clock
from starling_stream.model.failpoints import Failpoints
from starling_stream.model.processor import Service
from starling_stream.state.restore.restore import Interrupted
from starling_stream.worker.assigned_tasks import AssignedTasks, AssignedTasksDependencies
from tests.unit.stream.counting import Counter


class Worker:
    """Assigned tasks whose restores last until they are interrupted; `restored` lists them, `released` the partitions dropped."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.restored: list[int] = []
        self.released: list[int] = []
        standbys = SimpleNamespace(positions=dict, take=lambda _: None, follow=lambda _: None, followed=set, close=lambda: None)
        dependencies = AssignedTasksDependencies(
            plan=lambda number: cast("Any", number),
            memory=cast("Any", None),
            gauges=cast("Any", SimpleNamespace(phase=lambda *_: None)),
            directory=path,
            keep_seconds=60.0,
            standbys=cast("Any", standbys),
            replicas=0,
            flusher=cast("Any", SimpleNamespace(release=self.released.append)),
            lazy_restore=cast("Any", None),
            wake=lambda: None,
            crash=self._crash,
            failpoints=Failpoints(None),
        )
        service = Service(stage="t", inputs=("in",), processor=Counter(), hold_ms=0, clock=Clock.EVENT)
        self.tasks = AssignedTasks(service, dependencies)
        monkeypatch.setattr("starling_stream.worker.assigned_tasks.restore", self._restore)

    def _restore(self, number: Any, _memory: object, stop: Event, _opened: object) -> Any:
        self.restored.append(number)
        stop.wait(60)
        raise Interrupted

    def _crash(self, cause: BaseException) -> None:
        raise cause

    async def restoring(self, count: int) -> None:
        while len(self.restored) < count:  # noqa: ASYNC110 - threads begin
            await asyncio.sleep(0.001)


def test_only_gained_partitions_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(tmp_path, monkeypatch)
    tasks = worker.tasks

    async def rebalanced() -> None:
        tasks.assign([0, 1], (), 7)
        await worker.restoring(2)
        stays = tasks.task(0)
        assert stays is not None
        tasks.interrupt({1})
        tasks.revoke({1})
        tasks.assign([0, 2], (), 8)
        await worker.restoring(3)
        assert tasks.task(0) is stays
        assert stays.generation == 8
        assert (sorted(worker.restored), worker.released) == ([0, 1, 2], [1])
        await tasks.close()

    asyncio.run(asyncio.wait_for(rebalanced(), 60))


def test_the_claim_of_a_worker_that_joins_again_names_the_partitions_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(tmp_path, monkeypatch)
    tasks = worker.tasks

    async def rebalanced() -> None:
        tasks.assign([0, 1], (), 7)
        await worker.restoring(2)
        tasks._assigned[0].store = cast("Any", SimpleNamespace(position=lambda: 42, close=lambda: None))
        tasks.update_claim()
        assert (tasks.claim.generation, tasks.claim.active, tasks.claim.stores) == (7, (0,), {0: 42})
        await tasks.close()

    asyncio.run(asyncio.wait_for(rebalanced(), 60))
