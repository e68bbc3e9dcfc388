"""Edge: the driver's loop: the definitions in force, the query that computes them, and the committed offsets.

The consumer group's offset of a record is committed after every value that follows from it is published, under the definitions in
force; the offset of a definition is committed after its trait is published over all history. The query keeps its state when
definitions change: it starts again at the same offsets, and a batch job beside it reads the history of the new ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Final

from confluent_kafka import KafkaException
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from starling_common.failpoints.ending import Ending
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.profiles.bootstrap import Bootstrap, BootstrapDependencies, State
from starling_spark.jobs.profiles.definitions.catalogue import TraitCatalogue
from starling_spark.jobs.profiles.definitions.in_force import Definition, fingerprint
from starling_spark.jobs.profiles.query.generations import Generation, Generations
from starling_spark.jobs.profiles.query.past import PastEvents
from starling_spark.jobs.profiles.query.positions import GroupPositions
from starling_spark.jobs.profiles.query.published import Published
from starling_spark.jobs.profiles.query.queries import Batch, Observers, QueryOptions, TraitQuery, layout_of
from starling_spark.jobs.profiles.query.transform import Job
from starling_spark.kafka.checkpoints import Checkpoint
from starling_spark.kafka.groups import Ends
from starling_spark.session.failures import is_late_worker
from starling_spark.session.query_metrics import QueryMetrics, count_refused
from starling_spark.session.running import Stall, completed_tasks, driver_turns

_QUERY = "profiles"
"""The label of the metrics; Spark's name of the query changes with the definitions."""
_POLL_SECONDS = 0.1
_IDLE_SECONDS = 1.0
_MOST_LATE_WORKERS = 3
_STREAM_TIME_STEP_MS = 10_000
"""Stream time that may pass until it is committed without a record, as with the heartbeats of the wall clock."""
STEP: Final = (
    "step_begins",
    "step_stopped",
    "step_stored",
    "bootstrap_read",
    "bootstrap_seeded",
    "bootstrap_visit",
    "step_batch",
)
"""The points of a step to other definitions at which a test kills the process."""


@dataclass(frozen=True, slots=True)
class ProfilesDependencies:
    """The dependencies of the loop. `open_spark` is called at the first definition. `past`: the events of before.

    `reached` and `wrote` take the positions of the query that publishes, and the number of records by topic of each micro-batch.
    """

    catalogue: TraitCatalogue
    positions: GroupPositions
    published: Published
    past: PastEvents
    open_spark: Callable[[], SparkSession]
    metrics: Metrics
    ending: Ending
    reached: Callable[[Ends], None] = lambda _: None
    wrote: Callable[[Mapping[str, int]], None] = lambda _: None


def _is_done(bootstrap: Bootstrap | None, files_read: int, has_read_topics: bool) -> bool:
    """Return whether the definitions are in force for all users: after a step, and after what the topics had at the start."""
    return has_read_topics if bootstrap is None else bootstrap.advance(files_read, has_read_topics) is State.DONE


def _history(bootstrap: Bootstrap, generation: Generation, ends: Ends, existing: Ends) -> tuple[int, int]:
    """Return how many records of the history are done, and how many there are. A first step waits for those of the topics too."""
    done, total = bootstrap.progress
    if not generation.step.is_first:
        return done, total
    return done + sum(min(ends.get(place, 0), end) for place, end in existing.items()), total + sum(existing.values())


def _reached(ends: Ends, goal: Ends) -> bool:
    return all(ends.get(partition, 0) >= end for partition, end in goal.items())


class ProfilesJob:
    """Runs until it is stopped. A failed query ends the process, and the supervisor restarts it.

    A query whose Python worker started too late is started again in the same process, a few times.
    """

    def __init__(self, dependencies: ProfilesDependencies, options: QueryOptions, job: Job) -> None:
        """`job` has no definitions; the catalogue provides them."""
        self._dependencies = dependencies
        self._options = options
        self._plain = job
        self._inputs = (job.topics.events, job.topics.clock)
        self._state = "starting"
        self._stream_times: Mapping[int, int] = {}
        """Those up to which values are published; the thread of Spark's callbacks replaces them."""
        self._broker_problem: str | None = None
        self._bootstrapping: Bootstrap | None = None
        """The step that is not complete; the thread of the health endpoint reads it."""
        self._turns = driver_turns()
        self._layout = layout_of(options, job)
        self._generations = Generations(options.checkpoints)
        self._stall = Stall(lambda _topics: dependencies.positions.ends(self._inputs), completed_tasks)

    def failures(self) -> Mapping[str, str | None]:
        """Return by check what only a restart of the process corrects; None where it is alive."""
        return {
            "driver": self._turns.problem(),
            "query": self._stall.problem,
            "definitions": self._dependencies.catalogue.problem(),
        }

    def checks(self) -> Mapping[str, str | None]:
        """Return by check why the job is not ready; None where it is."""
        return {
            "query": "not started yet" if self._state == "starting" else None,
            "definitions": self._dependencies.catalogue.problem(),
            "broker": self._broker_problem,
            "history": None if self._bootstrapping is None else self._bootstrapping.problem,
        }

    def run(self, stopping: Event, stop_seconds: float) -> None:
        """Run until `stopping`.

        Raises: TakenOver or StreamingQueryException after another process has taken over; StreamingQueryException,
        BrokerUnavailable, KafkaException when an error persists.
        """
        self._dependencies.positions.load([*self._inputs, self._dependencies.catalogue.topic])
        late = 0
        while not stopping.is_set():
            definitions = self._definitions()
            generation = self._generations.in_force(self._layout)
            if generation is not None:
                try:
                    self._stream(generation, stopping, stop_seconds)
                except StreamingQueryException as failure:
                    late += 1
                    if not is_late_worker(failure) or late > _MOST_LATE_WORKERS:
                        raise
                    # A restart of the process would start a JVM as well, on a machine that is too busy to start Python.
                    log(__name__).warning("python_worker_late", query=generation.name, times=late)
                else:
                    late = 0
            elif definitions:
                self._generations.open(fingerprint(definitions, self._layout), self._layout, definitions)
            else:
                self._idle(stopping)

    def _definitions(self) -> tuple[Definition, ...]:
        definitions, _ = self._dependencies.catalogue.latest()
        self._dependencies.metrics.gauge("starling_profiles_definitions").set(
            sum(definition.document is not None for definition in definitions)
        )
        return definitions

    def _idle(self, stopping: Event) -> None:
        self._set_state("idle")
        self._turns.turned()
        self._attempt(self._skip_records)
        stopping.wait(min(self._options.trigger_seconds, _IDLE_SECONDS))

    def _skip_records(self) -> None:
        ends = self._dependencies.positions.ends(self._inputs)
        definitions, position = self._dependencies.catalogue.current()
        if not definitions:  # still none, so no value follows from records before `ends`
            self._dependencies.positions.commit({**ends, (self._dependencies.catalogue.topic, 0): position}, read=False)

    def _stream(self, generation: Generation, stopping: Event, stop_seconds: float) -> None:
        """Run the query until `stopping`, or until it has a step to newer definitions; then it starts again."""
        self._turns.rest()  # a query begins with the values of the topic, whose number is unknown
        existing = self._dependencies.positions.ends(self._inputs)
        generation = self._generations.take_over(generation, wall_clock_ms())
        is_complete = generation.is_complete  # looked up once: in an object store this is a request
        job = self._job(generation, is_complete=is_complete)
        files = Checkpoint(generation.directory).files()
        query = self._started(generation, job)
        bootstrap = self._bootstrap(generation, job, query) if generation.step.number and not is_complete else None
        self._bootstrapping = bootstrap
        self._set_state("active")
        self._stall.begin()
        committed: tuple[object, ...] | None = None
        try:
            while not stopping.is_set():
                self._turns.turned()
                ends = query.poll()
                self._stall.look(query.progress, ends or {})
                if not is_complete and _is_done(bootstrap, max(files, query.visited()), _reached(ends or {}, existing)):
                    self._complete(generation)
                    is_complete, self._bootstrapping = True, None
                definitions = self._definitions()
                _, position = self._dependencies.catalogue.latest()
                history = None if bootstrap is None or is_complete else _history(bootstrap, generation, ends or {}, existing)
                commit = partial(self._commit, ends or {}, history, generation.definitions if is_complete else None)
                state = (ends, position, is_complete, history, max(self._stream_times.values(), default=0) // _STREAM_TIME_STEP_MS)
                if state != committed and self._attempt(commit):
                    committed = state
                if is_complete and definitions != generation.definitions:
                    self._change(query, generation, definitions, stop_seconds)
                    return
                stopping.wait(_POLL_SECONDS)
        finally:
            self._turns.rest()
            self._bootstrapping = None
            if bootstrap is not None:
                bootstrap.stop()
            query.stop(stop_seconds)
            log(__name__).info("query_stopped", name=query.name)

    def _complete(self, generation: Generation) -> None:
        self._generations.check(generation)
        self._generations.complete(generation)
        log(__name__).info("definitions_in_force", step=generation.step.number, definitions=len(generation.definitions))

    def _change(self, query: TraitQuery, generation: Generation, definitions: tuple[Definition, ...], stop_seconds: float) -> None:
        """Stop the query between two micro-batches, and store where it has to continue with which definitions."""
        passed = self._dependencies.ending.passed
        passed("step_begins")
        query.stop(stop_seconds)
        self._generations.check(generation)
        passed("step_stopped")
        made = self._generations.change(generation, definitions, max(generation.step.users, query.users()))
        passed("step_stored")
        log(__name__).info("step", number=made.step.number, state="begun", definitions=len(definitions))

    def _bootstrap(self, generation: Generation, job: Job, query: TraitQuery) -> Bootstrap:
        dependencies, options = self._dependencies, self._options
        needed = BootstrapDependencies(
            dependencies.open_spark,
            dependencies.past,
            query.users,
            query.waiting,
            dependencies.ending.passed,
            options.brokers,
            options.partitions,
            options.seeded_users,
        )
        return Bootstrap(generation, job, needed)

    def _started(self, generation: Generation, job: Job) -> TraitQuery:
        observers = Observers(partial(self._published, generation), QueryMetrics(self._dependencies.metrics, _QUERY))
        published = self._dependencies.published.without_events()
        spark = self._dependencies.open_spark()
        query = TraitQuery(spark, job, self._options, generation.directory, observers, published)
        log(__name__).info("query_started", name=query.name, definitions=len(generation.definitions))
        return query

    def _commit(self, ends: Ends, history: tuple[int, int] | None, done: tuple[Definition, ...] | None) -> None:
        """Commit the offsets of the query to the group, and that of the definitions when they are in force and published.

        `history`: of a step that is not complete, how many records of how many are read; `done`: the definitions of one that is.
        """
        self._dependencies.reached(ends)
        in_force, position = self._dependencies.catalogue.current()
        if in_force == done:
            ends = {**ends, (self._dependencies.catalogue.topic, 0): position}
        progress = {(self._dependencies.catalogue.topic, 0): history} if history is not None and history[1] else {}
        self._dependencies.positions.commit(ends, read=True, stream_times=self._stream_times, history=progress)

    def _attempt(self, commit: Callable[[], None]) -> bool:
        """Return whether the commit succeeded. Without it only the reported lag is too high; the outputs are written."""
        try:
            commit()
        except (KafkaException, BrokerUnavailable) as error:
            log(__name__).warning("positions_not_committed", error=str(error))
            self._broker_problem = str(error)
            return False
        self._broker_problem = None
        return True

    def _job(self, generation: Generation, *, is_complete: bool) -> Job:
        read = tuple((topic, number, offset) for (topic, number), offset in self._dependencies.positions.read_up_to().items())
        return replace(
            self._plain,
            entries=generation.entries,
            started_ms=wall_clock_ms(),
            refused_before=read,
            published_to=tuple(self._dependencies.published.stream_times().items()),
            epoch=generation.epoch,
            step=generation.step.number,
            is_complete=is_complete,
        )

    def _published(self, generation: Generation, batch: Batch) -> None:
        self._count(batch)
        # A micro-batch whose values the normalizer ignores must not be completed: the driver that took over repeats it.
        self._generations.check(generation)
        self._stream_times = batch.stream_times
        if self._bootstrapping is not None:
            self._dependencies.ending.passed("step_batch")

    def _count(self, batch: Batch) -> None:
        self._dependencies.wrote(batch.published)
        rows = self._dependencies.metrics.counter("starling_profiles_rows_total")
        rows.labels("computed").inc(batch.published.get(self._plain.topics.aggregates, 0))
        rows.labels("refused").inc(batch.published.get(self._plain.topics.dead_letters, 0))
        count_refused(self._dependencies.metrics, _QUERY, batch.refused)
        self._dependencies.metrics.histogram("starling_profiles_batch_seconds").observe(batch.seconds)

    def _set_state(self, state: str) -> None:
        if state != self._state:
            log(__name__).info("state", now=state)
        self._state = state
