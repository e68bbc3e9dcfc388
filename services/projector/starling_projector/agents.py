"""Edge: the consumer loop: read a batch, write its rows, then commit its offsets."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from confluent_kafka import Message

from starling_common.cassandra.sessions import ConnectionsLost, DatabaseUnavailable, StatementRefused
from starling_common.failures import is_of_installation, poison, stack_digest
from starling_common.headers import headers_of
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.lost_input import InputLost
from starling_common.kafka.topics import MEMBERSHIP, PROGRESS
from starling_common.retries import retrying
from starling_common.telemetry.health import Turns
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import RegistryUnavailable
from starling_projector.counters import Counters
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.projection.batch import Inbound, MakeRows, Topics, read_batch, source_of
from starling_projector.projection.progress import PendingProgress, Progress, add_pending, first_offset, release
from starling_projector.projection.rows import rows_of
from starling_projector.projection.steps import Step, StepKey, StepTally, count_steps, keys_of_step
from starling_projector.projection.tallies import Change, Count, Tally, TallyKey, count, keys_of
from starling_projector.source import Source
from starling_projector.store import Store

T = TypeVar("T")

_TRANSIENT_ERRORS = (DatabaseUnavailable, RegistryUnavailable, BrokerUnavailable)
_MOST_TURN_SECONDS = 600.0
"""A turn writes a batch, and the calls of the database have time-outs of ten seconds; while one is retried, the loop turns."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The dependencies of a projector."""

    source: Source
    decoder: Decoder
    store: Store
    dead_letters: DeadLetters
    metrics: Metrics
    make_rows: MakeRows = rows_of
    count: Count = count
    discarded: frozenset[str] = frozenset()
    """Topics whose records are read and committed only, so that the lag stays true while no events are stored."""


class RowRefused(Exception):
    """The database refuses the values of a row, and accepts others."""


class Limits(NamedTuple):
    """The records of one batch at most, and the time that a busy projector waits for them."""

    batch_records: int
    linger_seconds: float


class Projector:
    """Runs in one thread until `stop`. An unavailable store delays it; nothing is committed or lost meanwhile."""

    def __init__(self, parts: Parts, limits: Limits, stage: str) -> None:
        """`stage`: its name in the catalogue."""
        self._stage = stage
        self._source = parts.source
        self._decoder = parts.decoder
        self._store = parts.store
        self._dead_letters = parts.dead_letters
        self._limits = limits
        self._make_rows = parts.make_rows
        self._discarded = parts.discarded
        self._stopping = threading.Event()
        self._pending: dict[int, tuple[PendingProgress, ...]] = {}
        store = parts.store
        self._sizes: Counters[TallyKey, Tally, Change] = Counters(keys_of, store.tallies, parts.count, store.write_tallies)
        self._steps: Counters[StepKey, StepTally, Step] = Counters(
            keys_of_step, store.step_tallies, count_steps, store.write_step_tallies
        )
        self._topics = Topics({}, 0)
        self._store_problem: str | None = None
        self._lost_connections = False
        """Whether the database may have lost rows that it had acknowledged."""
        self._turns = Turns("the loop of batches", _MOST_TURN_SECONDS)
        self._rows_total = parts.metrics.counter("starling_projector_rows_total")
        self._batch_seconds = parts.metrics.histogram("starling_projector_batch_seconds")
        self._freshness = parts.metrics.histogram("starling_projector_freshness_seconds")

    def run(self) -> None:
        """Run until `stop`, then write and commit the last batch.

        Raises: SchemaMissing, KafkaException, ClientFailed, TopicCreatedAgain.
        """
        try:
            self._with_retries(self._decoder.start)
            self._with_retries(lambda: self._source.check(self._stage))
            self._look_up_incarnations()
            self._source.start()
            while not self._stopping.is_set():
                self._step()
        except _TRANSIENT_ERRORS as error:
            if not self._stopping.is_set():
                raise
            # Uncommitted records are read again.
            log(__name__).warning("stopped_with_uncommitted_records", error=str(error))
        except InputLost as error:  # only while stopping
            log(__name__).warning("stopped_without_start", error=str(error))
        finally:
            self._turns.rest()
            self._source.close()

    def stop(self) -> None:
        """Write the current batch, commit it, and end `run`."""
        self._stopping.set()

    def problems(self) -> dict[str, str | None]:
        """Return the failed readiness checks by name."""
        return {"broker": self._source.problem, "stores": self._store_problem}

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects."""
        return {"broker client": self._source.failure(), "batches": self._turns.problem()}

    def _step(self) -> None:
        self._turns.turned()
        # Pending progress may wait for another projector's commit, so it is checked more often.
        polled = self._source.poll(0.1 if self._pending else 0.5, *self._limits)
        if polled.reassigned:
            self._forget()
            self._look_up_incarnations()
        messages = polled.messages
        if self._discarded:
            messages = [message for message in messages if message.topic() not in self._discarded]
        if messages:
            started = time.monotonic()
            self._project(messages)
            self._batch_seconds.observe(time.monotonic() - started)
        if self._lost_connections:
            self._rewind()
            return
        self._commit()
        if self._pending:
            self._with_retries(self._write_progress)
            self._commit()

    def _rewind(self) -> None:
        """Write the records since the last commit again. Writes are safe to repeat."""
        self._with_retries(self._source.rewind)
        self._lost_connections = False
        self._forget()
        log(__name__).warning("rewound_after_lost_connections")

    def _forget(self) -> None:
        self._pending = {}
        self._sizes.forget()
        self._steps.forget()

    def _project(self, messages: list[Message]) -> None:
        """Write a batch. If it fails twice for another reason than the installation, its failing records become dead letters."""
        try:
            self._write(messages)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            log(__name__).exception("batch_failed", records=len(messages), stack=stack_digest(cause))
            self._bisect(messages)

    def _bisect(self, messages: list[Message]) -> None:
        """Write the records, by halves if they fail. A single one that fails becomes a dead letter. Writes are safe to repeat."""
        try:
            self._write(messages)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            if len(messages) == 1:
                self._refuse(_inbound(messages[0]), cause)
                return
            half = len(messages) // 2
            self._bisect(messages[:half])
            self._bisect(messages[half:])

    def _refuse(self, inbound: Inbound, cause: Exception) -> None:
        self._write([])  # raises, and ends the process, if the failure is not the record's
        self._with_retries(lambda: self._dead_letters.bury([(source_of(inbound, None), poison(cause))]))

    def _look_up_incarnations(self) -> None:
        """Compare the ids of the topics with the stored ones: the topics may be others than at the last assignment."""
        incarnations = self._with_retries(lambda: self._store.incarnations(self._source.topic_ids()))
        self._topics = Topics(incarnations, self._with_retries(lambda: self._source.partitions(MEMBERSHIP)))

    def _write(self, messages: list[Message]) -> None:
        batch = self._with_retries(
            lambda: read_batch((_inbound(message) for message in messages), self._decoder.decode, self._topics, self._make_rows)
        )
        # Counted before the first write: a record that makes the counting raise has no rows either.
        sizes = self._with_retries(lambda: self._sizes.counted(batch.changes))
        steps = self._with_retries(lambda: self._steps.counted(batch.steps))
        for table, rows in self._with_retries(lambda: self._store.write_rows(batch.rows)).items():
            self._rows_total.labels(table).inc(rows)
        self._with_retries(lambda: self._sizes.write(sizes))
        self._with_retries(lambda: self._steps.write(steps))
        now = wall_clock_micros()
        for received in batch.received:
            self._freshness.observe(max(0, now - received) / 1e6)
        self._sizes.keep(sizes)
        self._steps.keep(steps)
        self._with_retries(lambda: self._add_pending(batch.progress))
        self._with_retries(lambda: self._dead_letters.bury(batch.refused))

    def _add_pending(self, progress: list[Progress]) -> None:
        ends = self._source.ends(MEMBERSHIP, {one.partition for one in progress})
        for one in progress:
            self._pending = add_pending(self._pending, PendingProgress(one, ends[one.partition]))

    def _write_progress(self) -> None:
        ready, still_pending = release(self._pending, self._source.committed(MEMBERSHIP, self._pending))
        self._store.write_progress(ready)
        self._pending = still_pending

    def _commit(self) -> None:
        first = first_offset(self._pending)
        self._source.commit({} if first is None else {(PROGRESS, 0): first})

    def _with_retries(self, call: Callable[[], T]) -> T:
        result = retrying(None)(self._is_transient, lambda: self._refusing_rows(call))
        self._store_problem = None
        return result

    def _refusing_rows(self, call: Callable[[], T]) -> T:
        """Call once. Raises: RowRefused if the database refuses the statement and accepts a valid one."""
        try:
            return call()
        except StatementRefused as cause:
            problem = self._problem_of_database()
            if problem is None:
                raise RowRefused(f"the database refuses a row of the record: {cause.__cause__}") from cause
            raise StatementRefused(problem) from cause

    def _is_transient(self, error: Exception) -> bool:
        self._turns.turned()
        if isinstance(error, InputLost):
            return not self._stopping.is_set()  # until an operator has changed the offsets
        if not isinstance(error, _TRANSIENT_ERRORS):
            return False
        self._store_problem = str(error)
        self._lost_connections |= isinstance(error, ConnectionsLost)
        return not self._stopping.is_set()

    def _problem_of_database(self) -> str | None:
        """Return why the database accepts no valid write; None if it accepts one, so that the values of a record are refused."""
        try:
            self._store.check()
        except DatabaseUnavailable as cause:
            if str(cause) != self._store_problem:
                log(__name__).error("database_misconfigured", error=str(cause))
            return str(cause)
        return None


def _inbound(message: Message) -> Inbound:
    return Inbound(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value() or b"",
        tuple(headers_of(message)),
        message.timestamp()[1],
    )
