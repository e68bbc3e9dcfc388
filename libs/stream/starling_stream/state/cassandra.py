"""Adapter: the states in Cassandra. Tables: `states`, `state_dues`, `state_floor`, `state_facts` in `schemas/avro/tables.cql`.

No write depends on the present row: each has the changelog offset of its commit as its timestamp, so the newest commit stays in
whichever order writers arrive. (Of two rows with one offset the greater stays: rows begin with their version.)
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from starling_common.cassandra.database import Database, Row, Write
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_stream.model.backing_store import (
    BackingStoreUnavailable,
    Checkpoint,
    PartitionCopy,
    StageLayout,
    StateWrite,
    bucket_of,
)

T = TypeVar("T")

_PUT: Final = """
INSERT INTO {ks}.states (log, source_partition, incarnation, bucket, key, row) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"""
_ROWS: Final = """
SELECT key, row FROM {ks}.states WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND key IN ?"""
_SCAN: Final = "SELECT key, row FROM {ks}.states WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ?"
_PUT_DUE: Final = """
INSERT INTO {ks}.state_dues (log, source_partition, incarnation, bucket, slot, key) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"""
_DROP_DUE: Final = """
DELETE FROM {ks}.state_dues USING TIMESTAMP ?
WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND slot = ? AND key = ?"""
_DUE: Final = """
SELECT key FROM {ks}.state_dues
WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND slot >= ? AND slot <= ?"""
_DUES: Final = """
SELECT slot, key FROM {ks}.state_dues WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ?"""
_CHECKPOINT: Final = """
SELECT incarnation, floor, meta, due_from_ms FROM {ks}.state_floor WHERE log = ? AND source_partition = ? LIMIT 1"""
_SPAN: Final = """
SELECT key, row FROM {ks}.states
WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND key >= ? AND key < ?"""
_BEGIN: Final = "INSERT INTO {ks}.state_floor (log, source_partition, incarnation) VALUES (?, ?, ?)"
_SAVE_CHECKPOINT: Final = """
UPDATE {ks}.state_floor USING TIMESTAMP ? SET floor = ?, meta = ?, due_from_ms = ?
WHERE log = ? AND source_partition = ? AND incarnation = ?"""
_FREEZE: Final = "INSERT INTO {ks}.state_facts (stage, partitions, buckets, topics) VALUES (?, ?, ?, ?) IF NOT EXISTS"
_FROZEN: Final = "SELECT partitions, buckets, topics FROM {ks}.state_facts WHERE stage = ?"
_UNFREEZE: Final = "DELETE FROM {ks}.state_facts WHERE stage = ? IF EXISTS"
_DROP_BUCKET: Final = "DELETE FROM {ks}.states WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ?"
_DROP_BUCKET_DUES: Final = "DELETE FROM {ks}.state_dues WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ?"
_WRITTEN_AT: Final = """
SELECT row, WRITETIME(row) AS at FROM {ks}.states
WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND key = ?"""

_BATCH_BYTES: Final = 64 * 1024
_BATCH_ROWS: Final = 100
_KEYS_A_QUERY: Final = 100
_PAGE_ROWS: Final = 1_000


class CassandraBackingStore:
    """The backing store in Cassandra. Safe for use by several threads."""

    def __init__(self, database: Database, buckets: int) -> None:
        """Opens no connection."""
        self.buckets = buckets
        self._database = database

    def checkpoint(self, log: str, partition: int) -> Checkpoint | None:
        """Return the checkpoint of the newest incarnation; None if there is no incarnation."""
        with _translated():
            found = self._database.read(_CHECKPOINT, (log, partition))
        if not found:
            return None
        return _checkpoint(found[0])

    def checkpoints(self, log: str, partitions: Sequence[int]) -> list[Checkpoint | None]:
        """Return the checkpoints of several partitions, read concurrently. For state queries."""
        with _translated():
            found = self._database.read_each(_CHECKPOINT, [(log, partition) for partition in partitions])
        return [_checkpoint(rows[0]) if rows else None for rows in found]

    def begin(self, copy: PartitionCopy) -> None:
        """Create this incarnation. Delete the rows of the last one, with a timestamp above all offsets."""
        with _translated():
            self._database.write(_BEGIN, copy)
            before = (copy.log, copy.partition, copy.incarnation - 1)
            for statement in (_DROP_BUCKET, _DROP_BUCKET_DUES):
                self._database.write_each(statement, [(*before, bucket) for bucket in range(self.buckets)])

    def write(self, copy: PartitionCopy, writes: Sequence[StateWrite]) -> None:
        """Write rows and their due index: two batches for each bucket, each of one Cassandra partition."""
        by_bucket: dict[int, list[StateWrite]] = defaultdict(list)
        for write in writes:
            by_bucket[bucket_of(write.key, self.buckets)].append(write)
        batches: list[list[Write]] = []
        for bucket, own in by_bucket.items():
            where = (*copy, bucket)
            for part in _parts(own):
                batches.append([(_PUT, (*where, write.key, write.row, write.at)) for write in part])
                dues = [due for write in part for due in _due_writes(where, write)]
                if dues:
                    batches.append(dues)
        with _translated():
            self._database.write_batches(batches)

    def save_checkpoint(self, copy: PartitionCopy, checkpoint: Checkpoint) -> None:
        """Advance the flushed offset. All rows before it must be written by then."""
        flushed_offset = checkpoint.flushed_offset
        with _translated():
            self._database.write(_SAVE_CHECKPOINT, (flushed_offset, flushed_offset, checkpoint.meta, checkpoint.due_from_ms, *copy))

    def rows(self, copy: PartitionCopy, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the rows by key, with concurrent queries; a key without a row is absent."""
        by_bucket: dict[int, list[bytes]] = defaultdict(list)
        for key in keys:
            by_bucket[bucket_of(key, self.buckets)].append(key)
        queries = [(*copy, bucket, part) for bucket, own in by_bucket.items() for part in _chunks(own, _KEYS_A_QUERY)]
        with _translated():
            found = self._database.read_each(_ROWS, queries)
        return {row["key"]: row["row"] for rows in found for row in rows}

    def scan(self, copy: PartitionCopy, bucket: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        """Yield every (key, row) of a bucket, in pages."""
        for page in self._pages(_SCAN, (*copy, bucket)):
            yield [(row["key"], row["row"]) for row in page]

    def spans(self, cells: Sequence[tuple[PartitionCopy, int]], span: tuple[bytes, bytes]) -> list[list[tuple[bytes, bytes]]]:
        """Return every (key, row) from one key to another, exclusive, of each bucket, read concurrently. For state queries."""
        with _translated():
            found = self._database.read_each(_SPAN, [(*copy, bucket, *span) for copy, bucket in cells])
        return [[(row["key"], row["row"]) for row in rows] for rows in found]

    def due(self, copy: PartitionCopy, bucket: int, slots: tuple[int, int]) -> Iterator[Sequence[bytes]]:
        """Yield the keys in these slots of the due index, first and last inclusive, in pages; a key may be due no longer."""
        for page in self._pages(_DUE, (*copy, bucket, *slots)):
            yield [row["key"] for row in page]

    def dues(self, copy: PartitionCopy, bucket: int) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Return every (slot, key) of a bucket's index, in pages. For operators."""
        for page in self._pages(_DUES, (*copy, bucket)):
            yield [(row["slot"], row["key"]) for row in page]

    def freeze(self, layout: StageLayout) -> StageLayout:
        """Store this layout unless the stage has one; return the stored layout."""
        with _translated():
            self._database.write_if(_FREEZE, layout)
            found = self._database.read_serially(_FROZEN, (layout.stage,))[0]
        return StageLayout(layout.stage, found["partitions"], found["buckets"], dict(found["topics"] or {}))

    def frozen(self, stage: str) -> StageLayout | None:
        """Return the frozen layout of a stage; None if it has none. For operators."""
        with _translated():
            found = self._database.read_serially(_FROZEN, (stage,))
        return StageLayout(stage, found[0]["partitions"], found[0]["buckets"], dict(found[0]["topics"] or {})) if found else None

    def unfreeze(self, stage: str) -> None:
        """Delete the layout of a stage: the next start freezes its own. For operators."""
        with _translated():
            self._database.write_if(_UNFREEZE, (stage,))

    def written_at(self, copy: PartitionCopy, key: bytes) -> tuple[bytes, int] | None:
        """Return a key's row and the changelog offset that it was written with; None without a row. For operators."""
        with _translated():
            found = self._database.read(_WRITTEN_AT, (*copy, bucket_of(key, self.buckets), key))
        return (found[0]["row"], found[0]["at"]) if found else None

    def close(self) -> None:
        """Close the session."""
        self._database.close()

    def _pages(self, statement: str, values: Sequence[Any]) -> Iterator[list[dict[str, Any]]]:
        pages = self._database.pages(statement, values, _PAGE_ROWS)
        while True:
            with _translated():
                page = next(pages, None)
            if page is None:
                return
            yield page


def _checkpoint(row: Row) -> Checkpoint:
    return Checkpoint(row["incarnation"], row["floor"], row["meta"] or b"", row["due_from_ms"] or 0)


def _due_writes(where: tuple[object, ...], write: StateWrite) -> Iterator[Write]:
    if write.slot_before == write.slot:
        return
    if write.slot is not None:
        yield _PUT_DUE, (*where, write.slot, write.key, write.at)
    if write.slot_before is not None:
        yield _DROP_DUE, (write.at, *where, write.slot_before, write.key)


def _parts(writes: Sequence[StateWrite]) -> Iterator[list[StateWrite]]:
    """Return batches that a node accepts without a warning, even of states of a megabyte."""
    part: list[StateWrite] = []
    size = 0
    for write in writes:
        if part and (len(part) == _BATCH_ROWS or size + len(write.row) > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(write)
        size += len(write.row)
    if part:
        yield part


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DatabaseUnavailable as cause:
        raise BackingStoreUnavailable(str(cause)) from cause
