"""Adapter: state queries on a stage: Cassandra's rows, and the changelog's records after the flushed offset over them.

A restore reads the same two, so a query returns the states that a worker would start with: those of the last committed transaction.
A tail that is too long to read is omitted; the states are then those of the flushed offset, or newer ones.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from starling_common.cassandra.database import Database
from starling_common.kafka.clients import BrokerUnavailable, consumer_config, watermarks
from starling_common.partitioning import partition_of
from starling_common.wire import Codec, Registry
from starling_stream.model.backing_store import BackingStoreUnavailable, Checkpoint, PartitionCopy, StageLayout, bucket_of
from starling_stream.model.meta import TaskMeta, decode_meta
from starling_stream.model.rows import META_KEY, row_of, row_state, row_version
from starling_stream.state.cassandra import CassandraBackingStore

TAIL_RECORDS: Final = 30_000
"""The most changelog records that one query reads, all partitions together: a fraction of a second."""
_TAIL_SECONDS: Final = 5.0
_LAYOUT_SECONDS: Final = 30.0
_MOST_IDLE: Final = 4
_BATCH: Final = 5_000
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - the library's public constant


class Cell(NamedTuple):
    """One bucket of one partition; a user's cell depends on two hashes of the user's key alone."""

    partition: int
    bucket: int


class PartitionSnapshot(NamedTuple):
    """One partition at the moment of the query. `whole`: its changelog was read to the end; `meta`: the task's own row."""

    copy: PartitionCopy
    meta: TaskMeta
    whole: bool
    tail: Mapping[bytes, bytes]
    """Key -> row, of commits after the flushed offset."""


class StateSnapshot:
    """The states at one moment. Every method may block and raises BackingStoreUnavailable."""

    def __init__(
        self, backing_store: CassandraBackingStore, layout: StageLayout, partitions: Mapping[int, PartitionSnapshot]
    ) -> None:
        self.partitions: Mapping[int, PartitionSnapshot] = partitions
        self.partition_count = layout.partitions
        """The number of partitions of the stage, queried or not."""
        self._backing_store = backing_store
        self._layout = layout

    def cells(self) -> list[Cell]:
        """Return all cells of the queried partitions."""
        return [Cell(partition, bucket) for partition in self.partitions for bucket in range(self._layout.buckets)]

    def users(self, cells: Sequence[Cell], prefix: bytes) -> list[list[tuple[bytes, bytes]]]:
        """Return for each cell the (key, state) of the keys that begin with the prefix, read concurrently."""
        buckets = [(self.partitions[cell.partition].copy, cell.bucket) for cell in cells]
        found = self._backing_store.spans(buckets, (prefix, _after(prefix)))
        return [self._merged(cell, prefix, rows) for cell, rows in zip(cells, found, strict=True)]

    def states_of(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the states of the keys that have one; their partitions must be queried ones."""
        by_partition: dict[int, list[bytes]] = {}
        for key in keys:
            by_partition.setdefault(partition_of(key, self.partition_count), []).append(key)
        states: dict[bytes, bytes] = {}
        for partition, own in by_partition.items():
            found = self.partitions[partition]
            rows = self._backing_store.rows(found.copy, own)
            newest = ((key, _newer(rows.get(key), found.tail.get(key))) for key in own)
            states |= {key: state for key, row in newest if (state := _state(row))}
        return states

    def _merged(self, cell: Cell, prefix: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        tail, buckets = self.partitions[cell.partition].tail, self._layout.buckets
        newest = dict(rows)
        for key, row in tail.items():
            if key.startswith(prefix) and bucket_of(key, buckets) == cell.bucket:
                newest[key] = _newer(newest.get(key), row)
        return [(key, state) for key, row in newest.items() if (state := _state(row))]


class StateQuery:
    """The states of one stage. Safe for use by several threads."""

    def __init__(self, stage: str, database: Database, brokers: str, registry: Registry, tail_records: int = TAIL_RECORDS) -> None:
        """Opens no connection; the first query does. `tail_records`: the most changelog records that one query reads."""
        self._stage = stage
        self._tail_records = tail_records
        self._changelog = f"{stage}-state-changelog"
        self._database = database
        self._registry = registry
        # The broker reports the end of a partition after that wait; the client's default of half a second would dominate a query.
        more = {"enable.partition.eof": True, "fetch.wait.max.ms": 20, "log_level": 0}
        self._config = consumer_config(brokers, f"starling-state-query-{stage}", **more)
        self._lock = threading.Lock()
        self._idle: list[Consumer] = []
        self._codec: Codec | None = None
        self._layout: tuple[float, StageLayout] | None = None

    def snapshot(self, key: bytes | None = None, partition: int | None = None) -> StateSnapshot | None:
        """Return the states of a key's partition, of a partition, or of all; None if no worker of the stage has stored a state.

        Raises: BackingStoreUnavailable, BrokerUnavailable, RegistryUnavailable, SchemaMissing.
        """
        layout = self._known_layout()
        if layout is None:
            return None
        backing_store = CassandraBackingStore(self._database, layout.buckets)
        numbers = list(range(layout.partitions)) if key is None else [partition_of(key, layout.partitions)]
        if partition is not None:
            numbers = [partition]
        log = layout.topics[self._changelog]
        # Flushed offsets first, then the tail: a row flushed meanwhile is read twice rather than never.
        checkpoints = dict(zip(numbers, backing_store.checkpoints(log, numbers), strict=True))
        tails = self._tails({number: _flushed_offset(checkpoint) for number, checkpoint in checkpoints.items()})
        found = {number: self._partition_snapshot(log, number, checkpoints[number], tails.get(number)) for number in numbers}
        return StateSnapshot(backing_store, layout, found)

    def close(self) -> None:
        """Close the idle consumers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for consumer in idle:
            consumer.close()

    def _known_layout(self) -> StageLayout | None:
        with self._lock:
            if self._layout is None or time.monotonic() - self._layout[0] > _LAYOUT_SECONDS:
                found = CassandraBackingStore(self._database, 1).frozen(self._stage)
                self._layout = None if found is None else (time.monotonic(), found)
            return None if self._layout is None else self._layout[1]

    def _partition_snapshot(
        self, log: str, partition: int, checkpoint: Checkpoint | None, tail: Sequence[Message] | None
    ) -> PartitionSnapshot:
        meta = decode_meta(checkpoint.meta) if checkpoint is not None and checkpoint.meta else TaskMeta()
        rows: dict[bytes, bytes] = {}
        # Only the last record of each key counts and is decoded.
        for key, message in {message.key() or b"": message for message in tail or ()}.items():
            row = self._row(message)
            if key == META_KEY:
                meta = decode_meta(row_state(row)[8:])
            else:
                rows[key] = row
        incarnation = 0 if checkpoint is None else checkpoint.incarnation
        return PartitionSnapshot(PartitionCopy(log, partition, incarnation), meta, tail is not None, rows)

    def _row(self, message: Message) -> bytes:
        with self._lock:
            if self._codec is None:
                self._codec = self._registry.codec(self._changelog, "StateChanged")
            codec = self._codec
        record = codec.decode(message.value() or b"")
        return row_of(record["version"], record["state"] or b"")

    def _tails(self, flushed_offsets: Mapping[int, int | None]) -> dict[int, list[Message]]:
        """Return partition -> the changelog after its flushed offset; empty when that is too much to read."""
        with self._consumer() as consumer:
            spans: dict[int, tuple[int, int]] = {}
            for number, flushed_offset in flushed_offsets.items():
                first, end = watermarks(consumer, self._changelog, number, 10)
                spans[number] = (first if flushed_offset is None else max(first, flushed_offset), end)
            if sum(end - start for start, end in spans.values()) > self._tail_records:
                return self._without(flushed_offsets, spans)
            return self._without(flushed_offsets, spans, self._read(consumer, spans))

    def _without(
        self,
        flushed_offsets: Mapping[int, int | None],
        spans: Mapping[int, tuple[int, int]],
        read: dict[int, list[Message]] | None = None,
    ) -> dict[int, list[Message]]:
        read = read or {}
        for number, (start, end) in spans.items():
            if flushed_offsets[number] is None and end > start and number not in read:
                raise BackingStoreUnavailable(f"partition {number} is not flushed to Cassandra: try again after the next flush")
        return read

    def _read(self, consumer: Consumer, spans: Mapping[int, tuple[int, int]]) -> dict[int, list[Message]]:
        """Return the partitions that were read to their end in time.

        `topic_range.read_range` reads all partitions or raises; a query uses those that were read within its time.
        """
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


def _flushed_offset(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.flushed_offset


def _newer(row: bytes | None, other: bytes | None) -> bytes:
    return max(row or b"", other or b"", key=_version)


def _version(row: bytes) -> int:
    """Return the row's version; less than every version without a row."""
    return row_version(row) if row else -1


def _state(row: bytes) -> bytes:
    """Return the service's bytes; empty for a deleted key."""
    return row_state(row)[8:] if row else b""


def _after(prefix: bytes) -> bytes:
    """Return the first key after all that begin with the prefix, whose last byte must not be the highest one."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
