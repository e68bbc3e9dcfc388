"""Edge: a step of a running query to other definitions: the history of new leaves, then the visits that put it in force.

The query folds new leaves from the cut on and publishes the former traits. A batch job beside it folds the events before the cut
for the new leaves alone, and writes the users' states as files for the query, which merges them. A reading that fails, or whose
process is killed, is done again as a whole; a state that was merged already changes nothing.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from starling_common.telemetry.logs import log
from starling_spark.jobs.profiles.query.generations import Generation
from starling_spark.jobs.profiles.query.histories import has_new_leaves, lake_hits, seed_lines, topic_hits
from starling_spark.jobs.profiles.query.past import Past, PastEvents
from starling_spark.jobs.profiles.query.transform import Job, plans_of
from starling_spark.kafka.checkpoints import Offsets
from starling_spark.kafka.sources import kafka_spans

_USERS_A_LINE: Final = 100
_RECORDS_A_TASK: Final = 40_000
"""A task is short: the live query gets a core as soon as a task of the reading ends."""
_USERS_A_VISIT: Final = 4_000
"""Users of a partition that one micro-batch visits."""
_RECORDS_A_USER: Final = 10
"""Where the number of users is unknown."""
_MARKER: Final = "step-{step:06d}-{visit:06d}"
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 300.0
"""Before a reading that failed is done again; the pause doubles each time."""


class State(Enum):
    """How far a step is. `SEEDING`: the query takes the histories; `VISITING`: it visits users."""

    READING = "reading"
    SEEDING = "seeding"
    VISITING = "visiting"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class BootstrapDependencies:
    """`users`: about how many users have a state now; `waiting`: how many of them wait for the end of the step.

    `passed`: a point at which a test kills the process. The rest is as in the options of the query.
    """

    spark: Callable[[], SparkSession]
    events: PastEvents
    users: Callable[[], int]
    waiting: Callable[[], int]
    passed: Callable[[str], None]
    brokers: str
    partitions: int
    seeded_users: int


class HistoryTasks:
    """The tasks of Spark that read a history."""

    def __init__(self, group: str) -> None:
        """`group`: the job group of the reading."""
        self._group = group
        self.jobs_before = 0
        self._looked_at, self._share = 0.0, 0.0

    def share(self) -> float:
        """Return the share of them that is completed, at most a second old. After `jobs_before` the next job of the group reads."""
        context = SparkContext._active_spark_context  # noqa: SLF001 - pyspark offers no other access to the running context
        if context is None or time.monotonic() - self._looked_at < 1:
            return self._share
        self._looked_at, tracker = time.monotonic(), context.statusTracker()
        jobs = sorted(tracker.getJobIdsForGroup(self._group))[self.jobs_before :]
        stages = [tracker.getStageInfo(stage) for job in jobs[:1] if (info := tracker.getJobInfo(job)) for stage in info.stageIds]
        tasks = [stage for stage in stages if stage is not None and stage.numTasks]
        self._share = 1.0 if len(jobs) > 1 else max((one.numCompletedTasks / one.numTasks for one in tasks), default=0.0)
        return self._share


class Bootstrap:
    """A step of one query. `advance` has one caller; the history is read in a thread of its own."""

    def __init__(self, generation: Generation, job: Job, dependencies: BootstrapDependencies) -> None:
        """`job`: that of the query."""
        self.state = State.READING
        self._generation = generation
        self._job = replace(job, started_ms=0)  # stream time is that of the records
        self._dependencies = dependencies
        self._failure: BaseException | None = None
        self._pause_seconds, self._begins_at = _FIRST_PAUSE_SECONDS, 0.0
        self._group, self._attempts = "", 0
        self._target = 0
        self._files_read = 0
        self._records = 0
        self._tasks: HistoryTasks | None = None
        self._reading: threading.Thread | None = None

    def advance(self, files_read: int, has_read_topics: bool) -> State:
        """Do what is next. `files_read`: by the query so far; `has_read_topics`: it has read what the topics had at its start.

        A query that begins with its step publishes nothing before that.
        """
        self._files_read = files_read
        if self.state is State.READING:
            self._read()
        elif self.state is State.SEEDING and files_read >= self._target and (has_read_topics or not self._generation.step.is_first):
            self._visit()
        elif self.state is State.VISITING and files_read >= self._target:
            self._enter(State.DONE)
        return self.state

    @property
    def problem(self) -> str | None:
        """Return why the history could not be read; None if the last attempt goes on."""
        return None if self._failure is None else f"the history cannot be read: {self._failure}"

    @property
    def progress(self) -> tuple[int, int]:
        """Return how many records of the history are done, and how many there are. To take the histories is a fifth of the work."""
        begun = self._generation.step.files
        taken = min(1.0, (self._files_read - begun) / (self._target - begun)) if self._target > begun else 0.0
        read = 0.0 if self._tasks is None else self._tasks.share()
        share = 0.8 * read if self.state is State.READING else 0.8 + 0.2 * taken
        return round(self._records * share), self._records

    def stop(self) -> None:
        """Give up the reading."""
        if self._reading is not None and self._reading.is_alive():
            self._dependencies.spark().sparkContext.cancelJobGroup(self._group)
            self._reading.join(30)

    def _read(self) -> None:
        if self._generation.has_read_history or not has_new_leaves(self._job):
            self._seed()
        elif self._reading is None:
            self._begin_reading()
        elif not self._reading.is_alive():
            self._reading = None
            if self._failure is not None:
                self._wait()
                return
            self._dependencies.passed("bootstrap_read")
            self._generation.note_history_read()
            self._seed()

    def _begin_reading(self) -> None:
        cut = self._generation.cut()
        if cut is None or time.monotonic() < self._begins_at:
            return
        self._failure, self._attempts = None, self._attempts + 1
        self._group = f"profiles-step-{self._generation.step.number}-{self._attempts}"
        self._tasks = HistoryTasks(self._group)
        self._reading = threading.Thread(target=self._read_history, args=(cut,), name=self._group, daemon=True)
        self._reading.start()

    def _wait(self) -> None:
        """Begin the reading later. The query goes on: what the lake or the topic lacks now concerns the new traits alone."""
        step, error = self._generation.step.number, str(self._failure)
        log(__name__).error("history_failed", step=step, error=error, pause_seconds=self._pause_seconds)
        self._begins_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _read_history(self, cut: Offsets) -> None:
        try:
            with self._dependencies.events.before(cut) as (past, table):
                self._records, step = past.records, self._generation.step.number
                if past.missing:
                    log(__name__).warning("history_missing", step=step, offsets=dict(sorted(past.missing.items())))
                lake_records = sum(past.lake_ends.values())
                log(__name__).info("history_begun", step=step, records=past.records, lake_records=lake_records)
                if past.records:
                    self._write_seeds(past, table)
        except BaseException as cause:  # noqa: BLE001 - the loop reports it
            self._failure = cause

    def _write_seeds(self, past: Past, table: DataFrame | None) -> None:
        context, dependencies = self._dependencies.spark().sparkContext, self._dependencies
        context.setJobGroup(self._group, "the history of new computed traits", interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", "history")
        hits = reduce(DataFrame.unionByName, self._hits(past, table))
        # The users of a file are those of a micro-batch, and about those of a task, of which there are fewer if they are small.
        users = max(self._users(), past.records // _RECORDS_A_USER if self._generation.step.is_first else 0)
        tasks = max(context.defaultParallelism, -(-users // dependencies.seeded_users))
        dependencies.spark().conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", tasks)
        lines = max(1, dependencies.seeded_users // _USERS_A_LINE)
        files = seed_lines(hits, self._job).write.mode("append").option("maxRecordsPerFile", lines)
        files.text(self._generation.visit_files.uri)

    def _hits(self, past: Past, table: DataFrame | None) -> list[DataFrame]:
        found, dependencies = [], self._dependencies
        if table is not None and self._tasks is not None:
            self._tasks.jobs_before = 1  # this job reads the files
            tasks = max(len(past.lake_ends), sum(past.lake_ends.values()) // _RECORDS_A_TASK)
            found.append(lake_hits(table, self._job, past.lake_ends, tasks))
        if past.spans:
            records = sum(end - first for first, end in past.spans.values())
            tasks = max(len(past.spans), records // _RECORDS_A_TASK)
            read = kafka_spans(dependencies.spark(), dependencies.brokers, past.spans, headers=False, tasks=tasks)
            found.append(topic_hits(read, self._job))
        return found

    def _seed(self) -> None:
        self._target = self._generation.step.files + len(self._files(is_marker=False))
        self._enter(State.SEEDING)

    def _visit(self) -> None:
        """Write the visits: after the histories, because the first one puts the step in force for all users."""
        self._dependencies.passed("bootstrap_seeded")
        step, known = self._generation.step, self._files(is_marker=True)
        count = self._visits(known)
        for number in range(count):
            name = _MARKER.format(step=step.number, visit=number)
            if name not in known:  # of a process that was killed
                self._generation.visit_files.write(name, f"visit {count}\n")
        self._target += count
        self._dependencies.passed("bootstrap_visit")
        self._enter(State.VISITING)

    def _visits(self, known: Sequence[str]) -> int:
        """Return the number of visits. `known`: the files of a process that was killed, which name it."""
        if known:
            return int((self._generation.visit_files.read(known[0]) or "visit 1").split()[1])
        concerns_all = any(plan.concerns_all for plan in plans_of(self._job).values())
        visited = self._users() if concerns_all else self._dependencies.waiting()
        return max(1, -(-visited // (_USERS_A_VISIT * self._dependencies.partitions)))

    def _users(self) -> int:
        """Return about how many users have a state. A query that begins with its step had none then."""
        return max(self._generation.step.users, self._dependencies.users())

    def _files(self, *, is_marker: bool) -> list[str]:
        names = [name for name in self._generation.visit_files.names() if name[0] not in "._"]
        return [name for name in names if name.startswith("step-") == is_marker]

    def _enter(self, state: State) -> None:
        self.state = state
        log(__name__).info("step", number=self._generation.step.number, state=state.value)
