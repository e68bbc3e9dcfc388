"""Edge: the driver's loop: the definitions in force, the query that computes them, and the committed offsets.

The consumer group's offset of a record is committed after every value that follows from it is published, under every definition
written before; the offset of a definition is committed after its trait is published over all history.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_spark.jobs.profiles.definitions.catalogue import TraitCatalogue
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.query.positions import GroupPositions
from starling_spark.jobs.profiles.query.published import Published
from starling_spark.jobs.profiles.query.queries import Batch, Observers, QueryOptions, TraitQuery
from starling_spark.jobs.profiles.query.transform import Job
from starling_spark.kafka.groups import Ends
from starling_spark.session.query_metrics import QueryMetrics, count_refused
from starling_spark.session.running import Stall, completed_tasks, driver_turns

_QUERY = "profiles"
"""The label of the metrics; Spark's name of the query changes with the definitions."""
_POLL_SECONDS = 0.1
_IDLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ProfilesDependencies:
    """The dependencies of the loop. `open_spark` is called at the first definition."""

    catalogue: TraitCatalogue
    positions: GroupPositions
    published: Published
    open_spark: Callable[[], SparkSession]
    metrics: Metrics


class ProfilesJob:
    """Runs until it is stopped. A failed query ends the process, and the supervisor restarts it."""

    def __init__(self, dependencies: ProfilesDependencies, options: QueryOptions, job: Job) -> None:
        """`job` has no definitions; the catalogue provides them."""
        self._dependencies = dependencies
        self._options = options
        self._plain = job
        self._inputs = (job.topics.events, job.topics.clock)
        self._state = "starting"
        self._broker_problem: str | None = None
        self._turns = driver_turns()
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
        """Run until `stopping`. Raises: StreamingQueryException, BrokerUnavailable, KafkaException when an error persists."""
        self._dependencies.positions.load([*self._inputs, self._dependencies.catalogue.topic])
        while not stopping.is_set():
            definitions, _ = self._dependencies.catalogue.latest()
            self._dependencies.metrics.gauge("starling_profiles_definitions").set(
                sum(definition.document is not None for definition in definitions)
            )
            if definitions:
                self._stream(definitions, stopping, stop_seconds)
            else:
                self._idle(stopping)

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

    def _stream(self, definitions: tuple[Definition, ...], stopping: Event, stop_seconds: float) -> None:
        self._turns.rest()  # a query begins with the values of the topic, whose number is unknown
        history = self._dependencies.positions.ends(self._inputs)
        observers = Observers(self._count, QueryMetrics(self._dependencies.metrics, _QUERY))
        published = self._dependencies.published.without_events()
        query = TraitQuery(self._dependencies.open_spark(), self._job(definitions), self._options, observers, published)
        log(__name__).info("query_started", name=query.name, definitions=len(definitions))
        self._set_state("active")
        self._stall.begin()
        committed: tuple[Ends | None, int] | None = None
        try:
            while not stopping.is_set():
                self._turns.turned()
                ends = query.poll()
                self._stall.look(query.progress, ends or {})
                in_force, position = self._dependencies.catalogue.latest()
                if in_force != definitions:
                    return
                commit = partial(self._commit, query, definitions, ends or {}, history)
                if (ends, position) != committed and self._attempt(commit):
                    committed = (ends, position)
                stopping.wait(_POLL_SECONDS)
        finally:
            self._turns.rest()
            query.stop(stop_seconds)
            log(__name__).info("query_stopped", name=query.name)

    def _commit(self, query: TraitQuery, definitions: Sequence[Definition], ends: Ends, history: Ends) -> None:
        """Commit the offsets of the query to the group."""
        in_force, position = self._dependencies.catalogue.current()
        if in_force != definitions:
            return  # these ends were reached without the newest definition
        if all(ends.get(partition, 0) >= end for partition, end in history.items()):
            query.delete_other_checkpoints()
            ends = {**ends, (self._dependencies.catalogue.topic, 0): position}
        self._dependencies.positions.commit(ends, read=True)

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

    def _job(self, definitions: tuple[Definition, ...]) -> Job:
        read = tuple((topic, number, offset) for (topic, number), offset in self._dependencies.positions.read_up_to().items())
        to = tuple(self._dependencies.published.stream_times().items())
        return replace(self._plain, definitions=definitions, started_ms=wall_clock_ms(), refused_before=read, published_to=to)

    def _count(self, batch: Batch) -> None:
        rows = self._dependencies.metrics.counter("starling_profiles_rows_total")
        rows.labels("computed").inc(batch.published.get(self._plain.topics.aggregates, 0))
        rows.labels("refused").inc(batch.published.get(self._plain.topics.dead_letters, 0))
        count_refused(self._dependencies.metrics, _QUERY, batch.refused)
        self._dependencies.metrics.histogram("starling_profiles_batch_seconds").observe(batch.seconds)

    def _set_state(self, state: str) -> None:
        if state != self._state:
            log(__name__).info("state", now=state)
        self._state = state
