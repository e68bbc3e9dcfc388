"""Edge: read a batch, write what it means, and only then commit its offsets."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Message

from starling_common.cassandra import DatabaseUnavailable
from starling_common.headers import headers_of
from starling_common.kafka import BrokerUnavailable
from starling_common.logs import log
from starling_common.metrics import Metrics
from starling_common.retries import retrying
from starling_common.topics import MEMBERSHIP, PROGRESS
from starling_common.wire import RegistryUnavailable
from starling_projector.batch import Batch, Inbound, read_batch
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.progress import Held, Progress, first_offset, hold, release
from starling_projector.source import Source
from starling_projector.store import Store
from starling_projector.tallies import Counted, Tally, count, keys_of

T = TypeVar("T")

_AWAY = (DatabaseUnavailable, RegistryUnavailable, BrokerUnavailable)
_MOST_TALLIES = 100_000
"""Tallies kept in memory before they are read anew; some 20 MB."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a projector works with."""

    source: Source
    decoder: Decoder
    store: Store
    dead_letters: DeadLetters
    metrics: Metrics


class Projector:
    """Runs in one thread until `stop`. Anything that is away is waited for; then nothing is committed and nothing lost."""

    def __init__(self, parts: Parts, batch_records: int) -> None:
        self._source = parts.source
        self._decoder = parts.decoder
        self._store = parts.store
        self._dead_letters = parts.dead_letters
        self._batch_records = batch_records
        self._stopping = threading.Event()
        self._waiting: dict[int, tuple[Held, ...]] = {}
        self._tallies: dict[Counted, Tally] = {}
        self._away: str | None = None
        self._rows_total = parts.metrics.counter("starling_projector_rows_total")
        self._batch_seconds = parts.metrics.histogram("starling_projector_batch_seconds")

    def run(self) -> None:
        """Returns after `stop`, with what was read written and committed. Raises: SchemaMissing, KafkaException, ClientFailed."""
        try:
            self._patiently(self._decoder.start)
            self._source.start()
            while not self._stopping.is_set():
                self._turn()
        except _AWAY as error:  # only while stopping: what was not committed is read again
            log(__name__).warning("stopped_with_work_left", error=str(error))
        finally:
            self._source.close()

    def stop(self) -> None:
        """Finish the batch at hand, commit, and end."""
        self._stopping.set()

    def problems(self) -> dict[str, str | None]:
        """What is not ready, by name."""
        return {"broker": self._source.problem, "stores": self._away}

    def failures(self) -> dict[str, str | None]:
        """Failed checks, by name, that only a restart of the process mends."""
        return {"broker client": self._source.client_failure}

    def _turn(self) -> None:
        # While progress waits for membership, another projector may be the one who brings it: look again soon.
        taken = self._source.take(0.1 if self._waiting else 0.5, self._batch_records)
        if taken.reassigned:
            self._waiting, self._tallies = {}, {}
        if taken.messages:
            started = time.monotonic()
            self._write(taken.messages)
            self._batch_seconds.observe(time.monotonic() - started)
        self._commit()
        if self._waiting:
            self._patiently(self._show_progress)
            self._commit()

    def _write(self, messages: list[Message]) -> None:
        batch = self._patiently(lambda: read_batch((_inbound(message) for message in messages), self._decoder.decode))
        for table, rows in self._patiently(lambda: self._store.write_rows(batch.rows)).items():
            self._rows_total.labels(table).inc(rows)
        self._patiently(lambda: self._count(batch))
        self._patiently(lambda: self._hold(batch.progress))
        self._patiently(lambda: self._dead_letters.bury(batch.refused))

    def _count(self, batch: Batch) -> None:
        keys = {key for change in batch.changes for key in keys_of(change)}
        if len(self._tallies) > _MOST_TALLIES:
            self._tallies = {}
        self._tallies |= self._store.tallies([key for key in keys if key not in self._tallies])
        altered = count(self._tallies, batch.changes)
        self._store.write_tallies(altered)
        self._tallies |= altered  # only once they are written: a repeat must count from what is in the database

    def _hold(self, progress: list[Progress]) -> None:
        ends = self._source.ends(MEMBERSHIP, {one.partition for one in progress})
        for one in progress:
            self._waiting = hold(self._waiting, Held(one, ends[one.partition]))

    def _show_progress(self) -> None:
        shown, still = release(self._waiting, self._source.committed(MEMBERSHIP, self._waiting))
        self._store.write_progress(shown)
        self._waiting = still

    def _commit(self) -> None:
        first = first_offset(self._waiting)
        self._source.commit({} if first is None else {(PROGRESS, 0): first})

    def _patiently(self, call: Callable[[], T]) -> T:
        result = retrying(None)(self._is_passing, call)
        self._away = None
        return result

    def _is_passing(self, error: Exception) -> bool:
        if not isinstance(error, _AWAY):
            return False
        self._away = str(error)
        return not self._stopping.is_set()


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
