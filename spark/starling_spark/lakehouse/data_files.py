"""Adapter: records of Kafka -> sorted Parquet files of the lake's tables, written by Spark's Python workers themselves.

The records are decoded in these workers, and Arrow sorts and writes them where they are. As rows on their way through the
JVM they cost ten times as much: 16 us an event there, 1.5 us here. One pass over the records does for all tables, and
brings no headers: only what is refused is kept with them, and read once more. Nobody sees these files before a commit
names them; those of a task that failed are never named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame

from starling_common.instants import format_instant
from starling_spark.kafka.codec import Refusal, collect_rarely
from starling_spark.kafka.decoding import Reading, Row, arrays, row_reader
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.layout import Layout
from starling_spark.lakehouse.positions import Place, Position

_FLUSH_BYTES: Final = 128 * 1024 * 1024
"""Rows that a task holds for one table before it writes them: bounds its memory, whatever a micro-batch holds."""
_HOUR_MS: Final = 3_600_000
_WITHOUT_HEADERS: Final = [name for name in RECORDS.fieldNames() if name != "headers"]
_NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Target:
    """A table to write to. Records before `position` are in already. `few`: columns that repeat few values."""

    table: str
    layout: Layout
    position: Position
    sorted_by: tuple[str, ...]
    few: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """By topic how its records are read and where they go; what cannot be read from `quarantined` on is told."""

    readings: Mapping[str, Reading]
    targets: Mapping[str, Target]
    quarantined: Position


class DataFile(msgspec.Struct, frozen=True):
    """A file that no commit names yet; `partition` as Iceberg parses it from text."""

    table: str
    path: str
    partition: list[str | None]
    rows: int


class Refused(msgspec.Struct, frozen=True):
    """Records of one topic and partition that all are refused for the same reason."""

    topic: str
    partition: int
    why: Refusal
    offsets: list[int]


class Told(msgspec.Struct):
    """What a task did: its files, the end of what it saw of each topic and partition, and what it could not read."""

    files: list[DataFile]
    ends: list[tuple[str, int, int]]
    refused: list[Refused]


class RecordsGone(Exception):
    """Records that were refused could not be read again: the broker has thrown them away meanwhile."""


def write_files(records: DataFrame, plan: Plan) -> Told:
    """Write all that is new to the tables; reads the records once. Raises: what Spark and the registry raise, OSError.

    Shape: in `sources.RECORDS`, headers not needed.
    """

    def begin() -> _Task:
        return _Task(plan, {topic: row_reader(reading) for topic, reading in plan.readings.items()})

    return _collected(records.select(*_WITHOUT_HEADERS), begin)


def write_refused(records: DataFrame, target: Target, refused: Sequence[Refused]) -> list[DataFile]:
    """Write the records that `refused` names, with their headers and reasons; the others are passed over.

    Shape: in `sources.RECORDS`. Raises: RecordsGone when some are not there, and as `write_files`.
    """
    wanted = sum(len(one.offsets) for one in refused)
    files = _collected(records.select(*RECORDS.fieldNames()), lambda: _Letters(target, _by_place(refused))).files
    if (found := sum(file.rows for file in files)) != wanted:
        raise RecordsGone(f"{wanted} records were refused, and {found} of them are still there to be kept: {_places(refused)}")
    return files


def _collected(records: DataFrame, begin: Callable[[], "_Task | _Letters"]) -> Told:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        task = begin()
        for batch in batches:
            for topic, number, here in _by_partition(batch):
                task.take(topic, number, here)
        yield pa.RecordBatch.from_pydict({"told": pa.array([msgspec.json.encode(task.told())], pa.binary())})

    told = Told([], [], [])
    for (text,) in records.mapInArrow(write, "told binary").collect():
        one = msgspec.json.decode(bytes(text), type=Told)
        told.files.extend(one.files)
        told.ends.extend(one.ends)
        told.refused.extend(one.refused)
    return told


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """The records of each topic and partition, if there are any."""
    for topic in pc.unique(batch.column("topic")).to_pylist():
        for number in pc.unique(batch.column("partition")).to_pylist():
            here = _where(batch, pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), number)))
            if here.num_rows:
                yield topic, number, here


def _by_place(refused: Sequence[Refused]) -> dict[Place, dict[int, Refusal]]:
    found: dict[Place, dict[int, Refusal]] = {}
    for one in refused:
        found.setdefault((one.topic, one.partition), {}).update(dict.fromkeys(one.offsets, one.why))
    return found


def _places(refused: Sequence[Refused]) -> str:
    return ", ".join(f"{one.topic} {one.partition} from offset {min(one.offsets)} on ({one.why.code})" for one in refused[:10])


@dataclass(slots=True)
class _Waiting:
    """Rows on their way into files."""

    batches: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)

    def add(self, target: Target, records: pa.RecordBatch, rows: Sequence[Row], names: Sequence[str]) -> None:
        """Of `rows` come the columns `names`, of `records` those that say where they were."""
        if not rows:
            return
        schema = target.layout.schema
        made = dict(zip(names, arrays(rows, [schema.field(name) for name in names]), strict=True)) | _origin(records)
        columns = [_of_type(made[one.name], one.type) for one in schema]
        waiting = self.batches.setdefault(target.table, [])
        waiting.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        self.targets[target.table] = target
        if sum(one.nbytes for one in waiting) > _FLUSH_BYTES:
            self._flush(target.table)

    def written(self) -> list[DataFile]:
        """The files, once nothing waits any more."""
        for table in list(self.batches):
            self._flush(table)
        return self.files

    def _flush(self, table: str) -> None:
        target = self.targets[table]
        rows = pa.Table.from_batches(self.batches.pop(table))
        self.files += [_written(target, partition, part) for partition, part in _partitions(target, rows)]


@dataclass(slots=True)
class _Letters:
    """One task's refused records on their way into files."""

    target: Target
    refused: Mapping[Place, Mapping[int, Refusal]]
    waiting: _Waiting = field(default_factory=_Waiting)

    def take(self, topic: str, number: int, records: pa.RecordBatch) -> None:
        """Records of one topic and partition."""
        why = self.refused.get((topic, number), {})
        records = records.filter(pc.is_in(records.column("offset"), pa.array(list(why), pa.int64())))
        rows = [why[offset] for offset in records.column("offset").to_pylist()]
        self.waiting.add(self.target, records, rows, Refusal._fields)

    def told(self) -> Told:
        """Writes what still waits."""
        return Told(self.waiting.written(), [], [])


@dataclass(slots=True)
class _Task:
    """One task's rows on their way into files."""

    plan: Plan
    readers: Mapping[str, Callable[[bytes | None], Row | Refusal]]
    waiting: _Waiting = field(default_factory=_Waiting)
    ends: dict[Place, int] = field(default_factory=dict)
    refused: dict[tuple[Place, Refusal], list[int]] = field(default_factory=dict)

    def told(self) -> Told:
        """Writes what still waits."""
        refused = [Refused(*place, why, offsets) for (place, why), offsets in self.refused.items()]
        return Told(self.waiting.written(), [(*place, end) for place, end in self.ends.items()], refused)

    def take(self, topic: str, number: int, records: pa.RecordBatch) -> None:
        """Records of one topic and partition."""
        place = (topic, number)
        self.ends[place] = max(self.ends.get(place, 0), pc.max(records.column("offset")).as_py() + 1)
        target = self.plan.targets[topic]
        own, other = target.position.get(place, 0), self.plan.quarantined.get(place, 0)
        records = _where(records, pc.greater_equal(records.column("offset"), min(own, other)))
        read = self.readers[topic]
        found = [read(value) for value in records.column("value").to_pylist()]
        refused = pa.array([isinstance(one, Refusal) for one in found], pa.bool_())
        good = pc.and_(pc.invert(refused), pc.greater_equal(records.column("offset"), own))
        reading = self.plan.readings[topic]
        names = [*reading.fields.fieldNames(), *reading.extra.fieldNames()]
        self.waiting.add(target, _where(records, good), _picked(found, good), names)
        if refused.true_count:
            for offset, one in zip(records.column("offset").to_pylist(), found, strict=True):
                if isinstance(one, Refusal) and offset >= other:
                    self.refused.setdefault((place, one), []).append(offset)


def _where(records: pa.RecordBatch, wanted: pa.Array) -> pa.RecordBatch:
    # A filter copies, and nearly always it keeps all.
    return records if wanted.true_count == len(wanted) else records.filter(wanted)


def _picked(found: Sequence[Any], which: pa.Array) -> list[Any]:
    if which.true_count == len(which):
        return list(found)
    return [one for one, is_wanted in zip(found, which.to_pylist(), strict=True) if is_wanted]


def _origin(records: pa.RecordBatch) -> dict[str, pa.Array]:
    timestamp = pc.multiply(records.column("timestamp_ms"), 1000).cast(pa.timestamp("us", tz="UTC"))
    own = {f"origin_{name}": records.column(name) for name in ("topic", "partition", "offset", "key")}
    kept = {name: records.column(name) for name in ("value", "headers") if name in records.schema.names}
    return own | {"origin_timestamp": timestamp} | kept


def _of_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type == wanted:
        return column
    # What Spark calls the parts of a list may differ from what Iceberg does; only headers are such, and few.
    return pa.array(column.to_pylist(), wanted) if pa.types.is_nested(wanted) else column.cast(wanted)


def _partitions(target: Target, rows: pa.Table) -> Iterator[tuple[list[Any], pa.Table]]:
    """The rows of each partition, sorted."""
    by = [f"partition {index}" for index in range(len(target.layout.partitioning))]
    values = target.layout.partition_columns(rows)
    for name, column in zip(by, values, strict=True):
        rows = rows.append_column(name, column)
    order = pc.sort_indices(rows, [(name, "ascending", "at_start") for name in (*by, *target.sorted_by)])
    rows = rows.take(order)
    # Groups come in the order in which their first rows do.
    groups = rows.group_by(by, use_threads=False).aggregate([([], "count_all")])
    at = 0
    for group in groups.to_pylist():
        yield [group[name] for name in by], rows.slice(at, group["count_all"]).select(target.layout.schema.names)
        at += group["count_all"]


def _written(target: Target, partition: list[Any], rows: pa.Table) -> DataFile:
    parts = [f"{by.name}={_said(value, by.transform)}" for by, value in zip(target.layout.partitioning, partition, strict=True)]
    path = "/".join([target.layout.location, "data", *parts, f"{uuid4().hex}.parquet"])
    local = Path(urlsplit(path).path)
    local.parent.mkdir(parents=True, exist_ok=True)
    # A dictionary of what hardly repeats takes time and room.
    parquet.write_table(rows, local, compression="zstd", use_dictionary=list(target.few))
    return DataFile(target.table, path, [None if value is None else str(value) for value in partition], rows.num_rows)


def _said(value: Any, transform: str) -> str:
    """As Iceberg itself names directories; they are for people, it never reads them."""
    if value is None:
        return _NO_PARTITION
    return format_instant(value * _HOUR_MS)[:13].replace("T", "-") if transform == "hour" else quote_plus(value)
