"""The loop of the job `profiles`: one query, which starts again at each change of the definitions, one change after the other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from starling_common.failpoints.ending import Ending
from starling_common.settings import Clock
from starling_common.telemetry.metrics import Metrics
from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.bootstrap import State
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.job import ProfilesDependencies, ProfilesJob
from starling_spark.jobs.profiles.query.queries import QueryOptions
from starling_spark.jobs.profiles.query.transform import Job, Topics
from tests.unit.spark.keeping import ORDERS, defined

OLD, NEW = (defined("n", ORDERS),), (defined("m", ORDERS), defined("n", ORDERS))
EDITED = (defined("n", {"event": "Refund"}, ORDERS),)


class Query:
    """A `TraitQuery` that has read everything. `jobs`: those of the queries that run."""

    jobs: list[Job]
    progress = None

    def __init__(self, _spark: object, job: Job, *_: object) -> None:
        self.name, self._job = "q", job
        self.jobs.append(job)

    def poll(self) -> Mapping[tuple[str, int], int]:
        return {("events", 0): 9}

    def visited(self) -> int:
        return 0

    def users(self) -> int:
        return 12_000

    def waiting(self) -> int:
        return 0

    def stop(self, _seconds: float) -> None:
        if self._job in self.jobs:
            self.jobs.remove(self._job)


class Step:
    """A `Bootstrap` that ends when the test sets `is_done`."""

    is_done, problem = False, None
    progress = (3, 9)

    def __init__(self, *_: object) -> None: ...

    def advance(self, _files_read: int, _has_read_topics: bool) -> State:
        return State.DONE if self.is_done else State.READING

    def stop(self) -> None: ...


class Turns(Event):
    """The end of a process after some turns of its loop. `changes`: the definitions after each, and whether the step is done.

    `seen`: the step and the keys of the query that runs at each turn.
    """

    def __init__(self, catalogue: SimpleNamespace, changes: Sequence[tuple[tuple[Definition, ...], bool]]) -> None:
        super().__init__()
        self._catalogue, self._changes = catalogue, list(changes)
        self.seen: list[list[tuple[int, bool]]] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seen.append([(job.step, job.is_complete) for job in Query.jobs])
        if not self._changes:
            self.set()
            return True
        definitions, Step.is_done = self._changes.pop(0)
        self._catalogue.latest = self._catalogue.current = lambda: (definitions, 7)
        return False


@pytest.fixture
def committed() -> list[Mapping[tuple[str, int], int]]:
    return []


@pytest.fixture
def job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: list[Mapping[tuple[str, int], int]]
) -> tuple[ProfilesJob, SimpleNamespace]:
    monkeypatch.setattr(Query, "jobs", [], raising=False)
    monkeypatch.setattr(Step, "is_done", False)
    monkeypatch.setattr("starling_spark.jobs.profiles.job.TraitQuery", Query)
    monkeypatch.setattr("starling_spark.jobs.profiles.job.Bootstrap", Step)
    catalogue = SimpleNamespace(latest=lambda: (OLD, 7), current=lambda: (OLD, 7), topic="definitions", problem=lambda: None)

    def commit(ends: Mapping[tuple[str, int], int], **_: Any) -> None:
        committed.append(ends)

    positions = SimpleNamespace(load=lambda _: None, ends=lambda _: {("events", 0): 9}, commit=commit, read_up_to=dict)
    published, past = SimpleNamespace(without_events=dict, stream_times=dict), SimpleNamespace()
    dependencies = ProfilesDependencies(
        catalogue, positions, published, past, lambda: None, Metrics(CollectorRegistry()), Ending(None, ())  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    options = QueryOptions("", 1, LocalDirectory(tmp_path / "profiles"), 1, 0.1)
    made = ProfilesJob(dependencies, options, Job(Topics("events", "clock", "values", "letters"), None, Clock.EVENT))  # type: ignore[arg-type]
    return made, catalogue


def test_a_change_is_a_step_of_the_same_query(job: tuple[ProfilesJob, SimpleNamespace], tmp_path: Path) -> None:
    turns = Turns(job[1], [(OLD, True), (NEW, False), (NEW, False), (NEW, True), (NEW, True)])
    job[0].run(turns, 1.0)
    assert turns.seen == [[(1, False)], [(1, False)], [(2, False)], [(2, False)], [(2, False)], [(2, False)]]
    assert Query.jobs == []
    assert len(list((tmp_path / "profiles").iterdir())) == 1
    again = Turns(job[1], [])
    job[0].run(again, 1.0)
    assert again.seen == [[(2, True)]]


def test_a_change_during_a_step_waits_for_its_end(job: tuple[ProfilesJob, SimpleNamespace]) -> None:
    turns = Turns(job[1], [(OLD, True), (NEW, False), (EDITED, False), (EDITED, True), (EDITED, False), (EDITED, True)])
    job[0].run(turns, 1.0)
    assert [seen[0][0] for seen in turns.seen] == [1, 1, 2, 2, 3, 3, 3]


def test_the_offset_of_the_definitions_is_committed_when_they_are_in_force(
    job: tuple[ProfilesJob, SimpleNamespace], committed: list[Mapping[tuple[str, int], int]]
) -> None:
    job[0].run(Turns(job[1], [(OLD, True), (NEW, False), (NEW, False)]), 1.0)
    assert [("definitions", 0) in ends for ends in committed] == [False, True, False]
    job[0].run(Turns(job[1], [(NEW, True), (NEW, True)]), 1.0)
    assert ("definitions", 0) in committed[-1]
