"""Adapter: a stage's states for those who only look: Cassandra's rows, and over them what the changelog holds after the floor.

A restore reads the same two, so what is seen here is what a worker that starts now would go on from: every state as of the last
committed transaction. A tail that is too long to be read is left out; then the states are those of the floor, or newer ones.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.database import Database
from starling_common.kafka import BrokerUnavailable, consumer_config, watermarks
from starling_common.partitioning import partition_of
from starling_common.wire import Codec, Registry
from starling_stream.model.backing_store import BackingAway, Facts, Place, Standing, bucket_of
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.rows import META_KEY, row_of, row_state, row_version
from starling_stream.state.cassandra import CassandraBacking

TAIL_RECORDS: Final = 30_000
"""So many records of the changelog are read for one look, all partitions together: a fraction of a second."""
_TAIL_SECONDS: Final = 5.0
_FACTS_SECONDS: Final = 30.0
_MOST_IDLE: Final = 4
_BATCH: Final = 5_000
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's public constant


class Cell(NamedTuple):
    """One bucket of one partition: which one a user is in depends on two hashes of the user's key and on nothing else."""

    partition: int
    bucket: int


class Seen(NamedTuple):
    """One partition at the moment of the look. `whole`: its changelog was read to the end; `meta`: the task's own row."""

    place: Place
    meta: TaskMeta
    whole: bool
    tail: Mapping[bytes, bytes]
    """Key -> row, of what was committed after the floor."""


class Look:
    """What was found at one moment. Every method may block and raises BackingAway."""

    def __init__(self, backing: CassandraBacking, facts: Facts, seen: Mapping[int, Seen]) -> None:
        self.partitions: Mapping[int, Seen] = seen
        self.of = facts.partitions
        """How many partitions there are, looked at or not."""
        self._backing = backing
        self._facts = facts

    def cells(self) -> list[Cell]:
        """All cells of the partitions looked at."""
        return [Cell(partition, bucket) for partition in self.partitions for bucket in range(self._facts.buckets)]

    def users(self, cells: Sequence[Cell], prefix: bytes) -> list[list[tuple[bytes, bytes]]]:
        """For each cell, (key, state) of the keys that begin with the prefix; side by side."""
        asked = [(self.partitions[cell.partition].place, cell.bucket) for cell in cells]
        found = self._backing.spans(asked, (prefix, _after(prefix)))
        return [self._merged(cell, prefix, rows) for cell, rows in zip(cells, found, strict=True)]

    def some(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The states of those that have one; their partitions must be among those looked at."""
        by_partition: dict[int, list[bytes]] = {}
        for key in keys:
            by_partition.setdefault(partition_of(key, self.of), []).append(key)
        states: dict[bytes, bytes] = {}
        for partition, own in by_partition.items():
            seen = self.partitions[partition]
            rows = self._backing.rows(seen.place, own)
            newest = ((key, _newer(rows.get(key), seen.tail.get(key))) for key in own)
            states |= {key: state for key, row in newest if (state := _state(row))}
        return states

    def _merged(self, cell: Cell, prefix: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        tail, buckets = self.partitions[cell.partition].tail, self._facts.buckets
        newest = dict(rows)
        for key, row in tail.items():
            if key.startswith(prefix) and bucket_of(key, buckets) == cell.bucket:
                newest[key] = _newer(newest.get(key), row)
        return [(key, state) for key, row in newest.items() if (state := _state(row))]


class States:
    """The states of one stage. Safe for use by several threads."""

    def __init__(self, stage: str, database: Database, brokers: str, registry: Registry) -> None:
        """Opens nothing; the first look does."""
        self._stage = stage
        self._changelog = f"{stage}-state-changelog"
        self._database = database
        self._registry = registry
        # The end of a partition is told after that wait; half a second, the client's own, would be most of a look.
        more = {"enable.partition.eof": True, "fetch.wait.max.ms": 20, "log_level": 0}
        self._config = consumer_config(brokers, f"starling-look-{stage}", **more)
        self._lock = threading.Lock()
        self._idle: list[Consumer] = []
        self._codec: Codec | None = None
        self._facts: tuple[float, Facts] | None = None

    def look(self, key: bytes | None = None) -> Look | None:
        """At the partition of a key, or at all (None). None: no worker of the stage has kept a state so far.

        Raises: BackingAway, BrokerUnavailable, RegistryUnavailable, SchemaMissing.
        """
        facts = self._known_facts()
        if facts is None:
            return None
        backing = CassandraBacking(self._database, facts.buckets)
        numbers = list(range(facts.partitions)) if key is None else [partition_of(key, facts.partitions)]
        log = facts.topics[self._changelog]
        # Floors first, then the tail: what is flushed meanwhile is in both, never in neither.
        standings = dict(zip(numbers, backing.standings(log, numbers), strict=True))
        tails = self._tails({number: _floor(standing) for number, standing in standings.items()})
        return Look(backing, facts, {number: self._seen(log, number, standings[number], tails.get(number)) for number in numbers})

    def close(self) -> None:
        """Close what is kept at hand."""
        with self._lock:
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    def _known_facts(self) -> Facts | None:
        with self._lock:
            if self._facts is None or time.monotonic() - self._facts[0] > _FACTS_SECONDS:
                found = CassandraBacking(self._database, 1).frozen(self._stage)
                self._facts = None if found is None else (time.monotonic(), found)
            return None if self._facts is None else self._facts[1]

    def _seen(self, log: str, partition: int, standing: Standing | None, tail: Sequence[Message] | None) -> Seen:
        meta = decode_meta(standing.meta) if standing is not None and standing.meta else TaskMeta()
        rows: dict[bytes, bytes] = {}
        # The last record of each key is all that counts, and only those are decoded.
        for key, message in {message.key() or b"": message for message in tail or ()}.items():
            row = self._row(message)
            if key == META_KEY:
                meta = decode_meta(row_state(row)[8:])
            else:
                rows[key] = row
        incarnation = 0 if standing is None else standing.incarnation
        return Seen(Place(log, partition, incarnation), meta, tail is not None, rows)

    def _row(self, message: Message) -> bytes:
        with self._lock:
            if self._codec is None:
                self._codec = self._registry.codec(self._changelog, "StateChanged")
            codec = self._codec
        record = codec.decode(message.value() or b"")
        return row_of(record["version"], record["state"] or b"")

    def _tails(self, floors: Mapping[int, int | None]) -> dict[int, list[Message]]:
        """Partition -> the changelog after its floor; nothing at all when that is too much to be read now."""
        with self._consumer() as consumer:
            spans: dict[int, tuple[int, int]] = {}
            for number, floor in floors.items():
                first, end = watermarks(consumer, self._changelog, number, 10)
                spans[number] = (first if floor is None else max(first, floor), end)
            if sum(end - start for start, end in spans.values()) > TAIL_RECORDS:
                return self._without(floors, spans)
            return self._without(floors, spans, self._read(consumer, spans))

    def _without(
        self, floors: Mapping[int, int | None], spans: Mapping[int, tuple[int, int]], read: dict[int, list[Message]] | None = None
    ) -> dict[int, list[Message]]:
        read = read or {}
        for number, (start, end) in spans.items():
            if floors[number] is None and end > start and number not in read:
                raise BackingAway(f"the states of partition {number} are not all in Cassandra yet: wait until they are")
        return read

    def _read(self, consumer: Consumer, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[Message]]:
        """The partitions that were read to their end within reason."""
        found: dict[int, list[Message]] = {number: [] for number, (start, end) in spans.items() if start >= end}
        reading: dict[int, list[Message]] = {number: [] for number in spans if number not in found}
        consumer.assign([TopicPartition(self._changelog, number, spans[number][0]) for number in reading])
        deadline = time.monotonic() + _TAIL_SECONDS
        while reading and time.monotonic() < deadline:
            for message in consumer.consume(_BATCH, 0.02):
                number, error = message.partition() or 0, message.error()
                if error is None and number in reading:
                    reading[number].append(message)
                elif error is not None and error.code() == _EOF and number in reading:
                    found[number] = reading.pop(number)
                elif error is not None and (error.fatal() or not error.retriable()) and error.code() != _EOF:
                    raise KafkaException(error)
        consumer.unassign()
        return found

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        with self._lock:
            consumer = self._idle.pop() if self._idle else Consumer(self._config)
        try:
            yield consumer
        except KafkaException as cause:
            consumer.close()
            raise BrokerUnavailable(f"{self._changelog}: {cause}") from cause
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            kept = len(self._idle) < _MOST_IDLE
            if kept:
                self._idle.append(consumer)
        if not kept:
            consumer.close()


def _floor(standing: Standing | None) -> int | None:
    return None if standing is None else standing.floor


def _newer(row: bytes | None, other: bytes | None) -> bytes:
    return max(row or b"", other or b"", key=_version)


def _version(row: bytes) -> int:
    """Below every version for no row at all."""
    return row_version(row) if row else -1


def _state(row: bytes) -> bytes:
    """What the service encoded; empty when the key is gone."""
    return row_state(row)[8:] if row else b""


def _after(prefix: bytes) -> bytes:
    """The first key behind all that begin with the prefix, whose last byte must not be the highest one."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
