"""Edge: the driver's loop. Which definitions are in force, the query that computes them, and what is said to be done.

The consumer group's offset passes a record only when every value that follows from it is published, under every definition
written before that moment; the offset of a definition is passed only when its trait is published over all history.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from starling_common.instants import wall_clock_ms
from starling_common.kafka import BrokerUnavailable
from starling_common.logs import log
from starling_common.metrics import Metrics
from starling_spark.jobs.profiles.catalogue import TraitCatalogue
from starling_spark.jobs.profiles.definitions import Definition, read_definitions
from starling_spark.jobs.profiles.positions import GroupPositions
from starling_spark.jobs.profiles.published import Published
from starling_spark.jobs.profiles.queries import Batch, Place, Tell, TraitQuery
from starling_spark.jobs.profiles.transform import Job
from starling_spark.kafka.groups import Ends
from starling_spark.session.query_metrics import QueryMetrics

_QUERY = "profiles"
"""In metrics; Spark's own name of the query changes with the definitions."""
_POLL_SECONDS = 0.1
_IDLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with. `open_spark` is called at the first definition: without one there is no need of Spark."""

    catalogue: TraitCatalogue
    positions: GroupPositions
    published: Published
    open_spark: Callable[[], SparkSession]
    metrics: Metrics


class ProfilesJob:
    """Runs until told to stop. Any failure of the query is the process's: whoever supervises it starts it again."""

    def __init__(self, parts: Parts, place: Place, job: Job) -> None:
        """`job` without definitions: they come and go."""
        self._parts = parts
        self._place = place
        self._plain = job
        self._inputs = (job.topics.events, job.topics.clock)
        self._state = "starting"
        self._broker_problem: str | None = None

    def checks(self) -> Mapping[str, str | None]:
        """What keeps the job from being ready."""
        return {
            "query": "not started yet" if self._state == "starting" else None,
            "definitions": self._parts.catalogue.problem(),
            "broker": self._broker_problem,
        }

    def run(self, stopping: Event, stop_seconds: float) -> None:
        """Raises: StreamingQueryException, BrokerUnavailable, KafkaException, when the world stays broken."""
        self._parts.positions.load([*self._inputs, self._parts.catalogue.topic])
        while not stopping.is_set():
            definitions, _ = self._parts.catalogue.at_hand()
            self._parts.metrics.gauge("starling_profiles_definitions").set(
                sum(definition.document is not None for definition in definitions)
            )
            if definitions:
                self._stream(definitions, stopping, stop_seconds)
            else:
                self._idle(stopping)

    def _idle(self, stopping: Event) -> None:
        self._set_state("idle")
        self._attempt(self._pass_by)
        stopping.wait(min(self._place.trigger_seconds, _IDLE_SECONDS))

    def _pass_by(self) -> None:
        ends = self._parts.positions.ends(self._inputs)
        definitions, position = self._parts.catalogue.current()
        if not definitions:  # still none, so nothing follows from records before `ends`
            self._parts.positions.commit({**ends, (self._parts.catalogue.topic, 0): position}, read=False)

    def _stream(self, definitions: tuple[Definition, ...], stopping: Event, stop_seconds: float) -> None:
        for problem in read_definitions(definitions)[1]:
            log(__name__).error("definition_not_computed", problem=problem)
        history = self._parts.positions.ends(self._inputs)
        told_to = Tell(self._count, QueryMetrics(self._parts.metrics, _QUERY))
        published = self._parts.published.without_events()
        query = TraitQuery(self._parts.open_spark(), self._job(definitions), self._place, told_to, published)
        log(__name__).info("query_started", name=query.name, definitions=len(definitions))
        self._set_state("active")
        told: tuple[Ends | None, int] | None = None
        try:
            while not stopping.is_set():
                ends = query.look()
                in_force, position = self._parts.catalogue.at_hand()
                if in_force != definitions:
                    return
                tell = partial(self._tell, query, definitions, ends or {}, history)
                if (ends, position) != told and self._attempt(tell):
                    told = (ends, position)
                stopping.wait(_POLL_SECONDS)
        finally:
            query.stop(stop_seconds)
            log(__name__).info("query_stopped", name=query.name)

    def _tell(self, query: TraitQuery, definitions: Sequence[Definition], ends: Ends, history: Ends) -> None:
        """Tell the group how far the query got."""
        in_force, position = self._parts.catalogue.current()
        if in_force != definitions:
            return  # these ends were reached without the newest definition
        if all(ends.get(place, 0) >= end for place, end in history.items()):
            query.forget_others()
            ends = {**ends, (self._parts.catalogue.topic, 0): position}
        self._parts.positions.commit(ends, read=True)

    def _attempt(self, tell: Callable[[], None]) -> bool:
        """False when the broker does not answer: outputs are safe, only lag looks larger than it is until it does."""
        try:
            tell()
        except (KafkaException, BrokerUnavailable) as error:
            log(__name__).warning("positions_not_committed", error=str(error))
            self._broker_problem = str(error)
            return False
        self._broker_problem = None
        return True

    def _job(self, definitions: tuple[Definition, ...]) -> Job:
        read = tuple((topic, number, offset) for (topic, number), offset in self._parts.positions.read_up_to().items())
        to = tuple(self._parts.published.stream_times().items())
        return replace(self._plain, definitions=definitions, started_ms=wall_clock_ms(), refused_before=read, published_to=to)

    def _count(self, batch: Batch) -> None:
        rows = self._parts.metrics.counter("starling_profiles_rows_total")
        rows.labels("computed").inc(batch.published.get(self._plain.topics.aggregates, 0))
        rows.labels("refused").inc(batch.published.get(self._plain.topics.dead_letters, 0))
        self._parts.metrics.histogram("starling_profiles_batch_seconds").observe(batch.seconds)

    def _set_state(self, state: str) -> None:
        if state != self._state:
            log(__name__).info("state", now=state)
        self._state = state
