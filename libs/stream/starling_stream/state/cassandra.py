"""Adapter: the states in Cassandra. Tables: `states`, `state_dues`, `state_floor`, `state_facts` in `schemas/avro/tables.cql`.

No write needs to know what is there: each carries the changelog offset of its commit as its timestamp, so in whichever order
writers come, the newest commit stays. (Of two rows with one offset the greater stays: they begin with their version.)
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from starling_common.cassandra import DatabaseUnavailable
from starling_common.database import Database, Row, Write
from starling_stream.model.backing_store import BackingAway, Facts, Place, Standing, StateWrite, bucket_of

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
_FLOOR: Final = """
SELECT incarnation, floor, meta, due_from_ms FROM {ks}.state_floor WHERE log = ? AND source_partition = ? LIMIT 1"""
_SPAN: Final = """
SELECT key, row FROM {ks}.states
WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND key >= ? AND key < ?"""
_BEGIN: Final = "INSERT INTO {ks}.state_floor (log, source_partition, incarnation) VALUES (?, ?, ?)"
_MOVE: Final = """
UPDATE {ks}.state_floor USING TIMESTAMP ? SET floor = ?, meta = ?, due_from_ms = ?
WHERE log = ? AND source_partition = ? AND incarnation = ?"""
_FREEZE: Final = "INSERT INTO {ks}.state_facts (stage, partitions, buckets, topics) VALUES (?, ?, ?, ?) IF NOT EXISTS"
_FROZEN: Final = "SELECT partitions, buckets, topics FROM {ks}.state_facts WHERE stage = ?"
_THAW: Final = "DELETE FROM {ks}.state_facts WHERE stage = ? IF EXISTS"
_DROP_BUCKET: Final = "DELETE FROM {ks}.states WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ?"
_DROP_BUCKET_DUES: Final = "DELETE FROM {ks}.state_dues WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ?"
_WRITTEN_AT: Final = """
SELECT row, WRITETIME(row) AS at FROM {ks}.states
WHERE log = ? AND source_partition = ? AND incarnation = ? AND bucket = ? AND key = ?"""

_BATCH_BYTES: Final = 64 * 1024
_BATCH_ROWS: Final = 100
_KEYS_A_QUERY: Final = 100
_PAGE_ROWS: Final = 1_000


class CassandraBacking:
    """A `Backing`. Safe for use by several threads."""

    def __init__(self, database: Database, buckets: int) -> None:
        """Opens nothing."""
        self.buckets = buckets
        self._database = database

    def standing(self, log: str, partition: int) -> Standing | None:
        """As `Backing.standing`."""
        with _translated():
            found = self._database.read(_FLOOR, (log, partition))
        if not found:
            return None
        return _standing(found[0])

    def standings(self, log: str, partitions: Sequence[int]) -> list[Standing | None]:
        """As `standing`, of several side by side. For those who only look."""
        with _translated():
            found = self._database.read_each(_FLOOR, [(log, partition) for partition in partitions])
        return [_standing(rows[0]) if rows else None for rows in found]

    def begin(self, place: Place) -> None:
        """As `Backing.begin`. What the incarnation before it left is deleted, by a clock that is far beyond all offsets."""
        with _translated():
            self._database.write(_BEGIN, place)
            before = (place.log, place.partition, place.incarnation - 1)
            for statement in (_DROP_BUCKET, _DROP_BUCKET_DUES):
                self._database.write_each(statement, [(*before, bucket) for bucket in range(self.buckets)])

    def write(self, place: Place, writes: Sequence[StateWrite]) -> None:
        """As `Backing.write`; a bucket's rows and its index in batches of their own, each of one Cassandra partition."""
        by_bucket: dict[int, list[StateWrite]] = defaultdict(list)
        for write in writes:
            by_bucket[bucket_of(write.key, self.buckets)].append(write)
        batches: list[list[Write]] = []
        for bucket, own in by_bucket.items():
            where = (*place, bucket)
            for part in _parts(own):
                batches.append([(_PUT, (*where, write.key, write.row, write.at)) for write in part])
                dues = [due for write in part for due in _due_writes(where, write)]
                if dues:
                    batches.append(dues)
        with _translated():
            self._database.write_batches(batches)

    def move_floor(self, place: Place, standing: Standing) -> None:
        """As `Backing.move_floor`."""
        floor = standing.floor
        with _translated():
            self._database.write(_MOVE, (floor, floor, standing.meta, standing.due_from_ms, *place))

    def rows(self, place: Place, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """As `Backing.rows`: a query a bucket, side by side."""
        by_bucket: dict[int, list[bytes]] = defaultdict(list)
        for key in keys:
            by_bucket[bucket_of(key, self.buckets)].append(key)
        asked = [(*place, bucket, part) for bucket, own in by_bucket.items() for part in _chunks(own, _KEYS_A_QUERY)]
        with _translated():
            found = self._database.read_each(_ROWS, asked)
        return {row["key"]: row["row"] for rows in found for row in rows}

    def scan(self, place: Place, bucket: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        """As `Backing.scan`."""
        for page in self._pages(_SCAN, (*place, bucket)):
            yield [(row["key"], row["row"]) for row in page]

    def spans(self, cells: Sequence[tuple[Place, int]], span: tuple[bytes, bytes]) -> list[list[tuple[bytes, bytes]]]:
        """Every (key, row) from one key up to another, exclusive, of each bucket, side by side. For those who only look."""
        with _translated():
            found = self._database.read_each(_SPAN, [(*place, bucket, *span) for place, bucket in cells])
        return [[(row["key"], row["row"]) for row in rows] for rows in found]

    def due(self, place: Place, bucket: int, slots: tuple[int, int]) -> Iterator[Sequence[bytes]]:
        """As `Backing.due`."""
        for page in self._pages(_DUE, (*place, bucket, *slots)):
            yield [row["key"] for row in page]

    def dues(self, place: Place, bucket: int) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Every (slot, key) of a bucket's index, in pages. For operators."""
        for page in self._pages(_DUES, (*place, bucket)):
            yield [(row["slot"], row["key"]) for row in page]

    def freeze(self, facts: Facts) -> Facts:
        """As `Backing.freeze`."""
        with _translated():
            self._database.write_if(_FREEZE, facts)
            found = self._database.read_serially(_FROZEN, (facts.stage,))[0]
        return Facts(facts.stage, found["partitions"], found["buckets"], dict(found["topics"] or {}))

    def frozen(self, stage: str) -> Facts | None:
        """The facts of a stage. For operators."""
        with _translated():
            found = self._database.read_serially(_FROZEN, (stage,))
        return Facts(stage, found[0]["partitions"], found[0]["buckets"], dict(found[0]["topics"] or {})) if found else None

    def thaw(self, stage: str) -> None:
        """Forget the facts of a stage: the next start freezes them anew. For operators."""
        with _translated():
            self._database.write_if(_THAW, (stage,))

    def written_at(self, place: Place, key: bytes) -> tuple[bytes, int] | None:
        """A key's row and the changelog offset it was written with. For operators."""
        with _translated():
            found = self._database.read(_WRITTEN_AT, (*place, bucket_of(key, self.buckets), key))
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


def _standing(row: Row) -> Standing:
    return Standing(row["incarnation"], row["floor"], row["meta"] or b"", row["due_from_ms"] or 0)


def _due_writes(where: tuple[object, ...], write: StateWrite) -> Iterator[Write]:
    if write.slot_before == write.slot:
        return
    if write.slot is not None:
        yield _PUT_DUE, (*where, write.slot, write.key, write.at)
    if write.slot_before is not None:
        yield _DROP_DUE, (write.at, *where, write.slot_before, write.key)


def _parts(writes: Sequence[StateWrite]) -> Iterator[list[StateWrite]]:
    """Small enough that a node never complains, even of states of a megabyte."""
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
        raise BackingAway(str(cause)) from cause
