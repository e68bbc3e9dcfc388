"""Edge: the driver's loop: the definitions in force, the query that computes them, and the committed offsets.

The consumer group's offset of a record is committed after every value that follows from it is published, under the definitions in
force; the offset of a definition is committed after its trait is published over all history. New definitions come into force by
a second query: it reads the history without publishing, while the first one goes on, and takes over when it has caught up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from starling_common.failpoints.ending import Ending
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.profiles.definitions.catalogue import TraitCatalogue
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.fold.silence import CatchingUp
from starling_spark.jobs.profiles.query.generations import Generation, Generations
from starling_spark.jobs.profiles.query.positions import GroupPositions
from starling_spark.jobs.profiles.query.published import Published
from starling_spark.jobs.profiles.query.queries import Batch, Observers, QueryOptions, TraitQuery, checkpoint_name, layout_of
from starling_spark.jobs.profiles.query.transform import Job
from starling_spark.kafka.checkpoints import Checkpoint
from starling_spark.kafka.groups import Ends
from starling_spark.session.failures import is_late_worker
from starling_spark.session.query_metrics import QueryMetrics, count_refused
from starling_spark.session.running import Stall, completed_tasks, driver_turns

_QUERY = "profiles"
"""The label of the metrics; Spark's name of the query changes with the definitions."""
_CATCH_UP = "profiles_catch_up"
_POLL_SECONDS = 0.1
_USERS_A_VISIT = 4_000
"""Users of a partition that one micro-batch visits when a query begins to publish."""
_IDLE_SECONDS = 1.0
_MOST_LATE_WORKERS = 3
_STREAM_TIME_STEP_MS = 10_000
"""Stream time that may pass until it is committed without a record, as with the heartbeats of the wall clock."""
HANDOVER: Final = (
    "handover_begins",
    "handover_newer_stopped",
    "handover_former_stopped",
    "handover_live",
    "handover_visit",
)
"""The points of a handover at which a test kills the process."""


@dataclass(frozen=True, slots=True)
class ProfilesDependencies:
    """The dependencies of the loop. `open_spark` is called at the first definition.

    `reached` and `wrote` take the positions of the query that publishes, and the number of records by topic of each micro-batch.
    """

    catalogue: TraitCatalogue
    positions: GroupPositions
    published: Published
    open_spark: Callable[[], SparkSession]
    metrics: Metrics
    ending: Ending
    reached: Callable[[Ends], None] = lambda _: None
    wrote: Callable[[Mapping[str, int]], None] = lambda _: None


class _Stopping(NamedTuple):
    """The end of the process, and how long a query may take to stop."""

    event: Event
    seconds: float


@dataclass(slots=True)
class _CatchUp:
    """A silent query. `history`: the ends of the topics when it was started."""

    generation: Generation
    query: TraitQuery
    history: Ends
    ends: Ends | None = None

    def poll(self) -> None:
        """Look at the progress. Raises: StreamingQueryException if the query failed."""
        self.ends = self.query.poll()

    def has_caught_up(self, published: Ends, most: int) -> bool:
        """Return whether the history is read, and at most `most` records are missing to the offsets of the query that publishes."""
        own = self.ends or {}
        return _reached(own, self.history) and sum(end - own.get(place, 0) for place, end in published.items()) <= most


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
                self._generations.open(self._name(definitions), self._layout, definitions, live=True)
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
        """Run the query that publishes, and beside it a silent one for newer definitions, until that one takes over."""
        self._turns.rest()  # a query begins with the values of the topic, whose number is unknown
        history = self._dependencies.positions.ends(self._inputs)
        generation = self._generations.take_over(generation, wall_clock_ms())
        query = self._started(generation, silent=False)
        newer: _CatchUp | None = None
        self._set_state("active")
        self._stall.begin()
        committed: tuple[object, ...] | None = None
        is_complete = generation.is_complete  # looked up once: in an object store this is a request
        try:
            while not stopping.is_set():
                self._turns.turned()
                ends = query.poll()
                self._stall.look(query.progress, ends or {})
                if not is_complete and query.visited() >= generation.visits and _reached(ends or {}, history):
                    self._generations.check(generation)
                    self._generations.complete(generation)
                    is_complete = True
                definitions = self._definitions()
                _, position = self._dependencies.catalogue.latest()
                commit = partial(self._commit, generation, ends or {})
                state = (ends, position, is_complete, max(self._stream_times.values(), default=0) // _STREAM_TIME_STEP_MS)
                if state != committed and self._attempt(commit):
                    committed = state
                if is_complete:
                    newer = self._catching_up(newer, generation, definitions, stop_seconds)
                if newer is not None and newer.has_caught_up(ends or {}, self._options.catch_up_records):
                    self._hand_over(query, generation, newer, _Stopping(stopping, stop_seconds))
                    return
                stopping.wait(_POLL_SECONDS)
        finally:
            self._turns.rest()
            for one in (query, newer.query if newer is not None else None):
                if one is not None:
                    one.stop(stop_seconds)
                    log(__name__).info("query_stopped", name=one.name)

    def _catching_up(
        self, newer: _CatchUp | None, generation: Generation, definitions: tuple[Definition, ...], stop_seconds: float
    ) -> _CatchUp | None:
        """Return the silent query of these definitions, started if it is not the present one; None: they are in force."""
        if newer is not None and newer.generation.definitions == definitions:
            newer.poll()
            return newer
        if newer is None and definitions == generation.definitions:
            return None
        self._generations.check(generation)
        if newer is not None:
            self._turns.rest()
            newer.query.stop(stop_seconds)
            log(__name__).info("query_stopped", name=newer.query.name)
            self._generations.delete_others(generation.name)
        if definitions == generation.definitions:
            return None
        self._turns.rest()
        name = self._name(definitions)
        self._generations.delete_others(generation.name, name)
        made = self._generations.open(name, self._layout, definitions, live=False)
        return _CatchUp(made, self._started(made, silent=True), self._dependencies.positions.ends(self._inputs))

    def _hand_over(self, query: TraitQuery, generation: Generation, newer: _CatchUp, stop: _Stopping) -> None:
        """Stop both queries, the publishing one at or after the offsets of the silent one, and let the other publish.

        A process that is killed before `make_live` has the former query in force, and afterwards the newer one.
        """
        passed = self._dependencies.ending.passed
        passed("handover_begins")
        newer.query.stop(stop.seconds)
        checkpoint = Checkpoint(newer.generation.directory)
        if checkpoint.committed is not None:
            checkpoint.move(lambda _place, offset: offset)  # a planned micro-batch is planned again, with the visits
        reached = checkpoint.offsets()
        passed("handover_newer_stopped")
        while not _reached(query.poll() or {}, reached):
            self._turns.turned()
            if stop.event.wait(_POLL_SECONDS):
                return
        query.stop(stop.seconds)
        self._generations.check(generation)
        passed("handover_former_stopped")
        self._attempt(partial(self._commit, generation, query.poll() or {}))
        visits = max(1, -(-newer.query.users() // (_USERS_A_VISIT * self._options.partitions)))
        self._generations.make_live(newer.generation, generation, visits)
        passed("handover_live")
        log(__name__).info("definitions_in_force", name=newer.generation.name, visits=visits)

    def _started(self, generation: Generation, *, silent: bool) -> TraitQuery:
        metrics = self._dependencies.metrics
        observers = Observers(partial(self._published, generation), QueryMetrics(metrics, _CATCH_UP if silent else _QUERY))
        published = self._dependencies.published.without_events()
        job = self._job(generation, silent=silent)
        query = TraitQuery(self._dependencies.open_spark(), job, self._options, observers, published)
        log(__name__).info("query_started", name=query.name, definitions=len(generation.definitions), silent=silent)
        return query

    def _commit(self, generation: Generation, ends: Ends) -> None:
        """Commit the offsets of the query to the group, and that of the definitions when they are in force and published."""
        self._dependencies.reached(ends)
        in_force, position = self._dependencies.catalogue.current()
        if in_force == generation.definitions and generation.is_complete:
            ends = {**ends, (self._dependencies.catalogue.topic, 0): position}
        self._dependencies.positions.commit(ends, read=True, stream_times=self._stream_times)

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

    def _name(self, definitions: tuple[Definition, ...]) -> str:
        return checkpoint_name(self._options, replace(self._plain, definitions=definitions))

    def _job(self, generation: Generation, *, silent: bool) -> Job:
        read = tuple((topic, number, offset) for (topic, number), offset in self._dependencies.positions.read_up_to().items())
        to = tuple(self._dependencies.published.stream_times().items())
        # With a former query, stream time is that of the records and heartbeats alone.
        started_ms = 0 if silent or generation.visits else wall_clock_ms()
        return replace(
            self._plain,
            definitions=generation.definitions,
            started_ms=started_ms,
            refused_before=read,
            published_to=to,
            catching_up=CatchingUp(silent, generation.changed),
            epoch=generation.epoch,
        )

    def _published(self, generation: Generation, batch: Batch) -> None:
        self._count(batch)
        # A micro-batch whose values the normalizer ignores must not be completed: the driver that took over repeats it.
        self._generations.check(generation)
        if generation.number:
            self._stream_times = batch.stream_times
        if generation.visits and not generation.is_complete:
            self._dependencies.ending.passed("handover_visit")

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
