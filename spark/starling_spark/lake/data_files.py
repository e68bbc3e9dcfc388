"""Adapter: records of Kafka -> sorted Parquet files of the lake's tables, written by Spark's Python workers themselves.

The records are decoded in these workers, and Arrow sorts and writes them where they are. As rows on their way through the
JVM they cost ten times as much: 16 us an event there, 1.5 us here. One pass over the records does for all tables and
for the quarantine. Nobody sees these files before a commit names them; those of a task that failed are never named.
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
from starling_spark.codec import Refusal, collect_rarely
from starling_spark.decoding import Reading, Row, arrays, row_reader
from starling_spark.lake.layout import Layout
from starling_spark.lake.positions import Position
from starling_spark.sources import RECORDS

_FLUSH_BYTES: Final = 128 * 1024 * 1024
"""Rows that a task holds for one table before it writes them: bounds its memory, whatever a micro-batch holds."""
_HOUR_MS: Final = 3_600_000
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
    """By topic how its records are read and where they go; what cannot be read goes to `quarantine`."""

    readings: Mapping[str, Reading]
    targets: Mapping[str, Target]
    quarantine: Target


class DataFile(msgspec.Struct, frozen=True):
    """A file that no commit names yet; `partition` as Iceberg parses it from text."""

    table: str
    path: str
    partition: list[str | None]
    rows: int


class Told(msgspec.Struct):
    """What a task did: its files, and the end of what it saw of each topic and partition."""

    files: list[DataFile]
    ends: list[tuple[str, int, int]]


def write_files(records: DataFrame, plan: Plan) -> Told:
    """Write all that is new to the tables; reads the records once. Raises: what Spark and the registry raise, OSError."""
    told = Told([], [])
    for (text,) in records.select(*RECORDS.fieldNames()).mapInArrow(_writer(plan), "told binary").collect():
        one = msgspec.json.decode(bytes(text), type=Told)
        told.files.extend(one.files)
        told.ends.extend(one.ends)
    return told


def _writer(plan: Plan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        task = _Task(plan, {topic: row_reader(reading) for topic, reading in plan.readings.items()})
        for batch in batches:
            task.take(batch)
        yield pa.RecordBatch.from_pydict({"told": pa.array([msgspec.json.encode(task.told())], pa.binary())})

    return write


@dataclass(slots=True)
class _Task:
    """One task's rows on their way into files."""

    plan: Plan
    readers: Mapping[str, Callable[[bytes | None], Row | Refusal]]
    waiting: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch) -> None:
        """Records of any topics."""
        for topic in pc.unique(batch.column("topic")).to_pylist():
            for number in pc.unique(batch.column("partition")).to_pylist():
                here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), number))
                self._take(topic, number, batch.filter(here))

    def told(self) -> Told:
        """Writes what still waits."""
        for table in list(self.waiting):
            self._flush(table)
        return Told(self.files, [(*place, end) for place, end in self.ends.items()])

    def _take(self, topic: str, number: int, records: pa.RecordBatch) -> None:
        if not records.num_rows:
            return
        place = (topic, number)
        self.ends[place] = max(self.ends.get(place, 0), pc.max(records.column("offset")).as_py() + 1)
        target, quarantine = self.plan.targets[topic], self.plan.quarantine
        own, other = (one.position.get(place, 0) for one in (target, quarantine))
        records = records.filter(pc.greater_equal(records.column("offset"), min(own, other)))
        read = self.readers[topic]
        found = [read(value) for value in records.column("value").to_pylist()]
        refused = pa.array([isinstance(one, Refusal) for one in found], pa.bool_())
        good = pc.and_(pc.invert(refused), pc.greater_equal(records.column("offset"), own))
        bad = pc.and_(refused, pc.greater_equal(records.column("offset"), other))
        reading = self.plan.readings[topic]
        names = [*reading.fields.fieldNames(), *reading.extra.fieldNames()]
        self._wait(target, records.filter(good), _picked(found, good), names)
        self._wait(quarantine, records.filter(bad), _picked(found, bad), Refusal._fields)

    def _wait(self, target: Target, records: pa.RecordBatch, rows: Sequence[Row], names: Sequence[str]) -> None:
        """Of `rows` come the columns `names`, of `records` those that say where they were."""
        if not rows:
            return
        schema = target.layout.schema
        made = dict(zip(names, arrays(rows, [schema.field(name) for name in names]), strict=True)) | _origin(records)
        columns = [_of_type(made[one.name], one.type) for one in schema]
        waiting = self.waiting.setdefault(target.table, [])
        waiting.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        self.targets[target.table] = target
        if sum(one.nbytes for one in waiting) > _FLUSH_BYTES:
            self._flush(target.table)

    def _flush(self, table: str) -> None:
        target = self.targets[table]
        rows = pa.Table.from_batches(self.waiting.pop(table))
        self.files += [_written(target, partition, part) for partition, part in _partitions(target, rows)]


def _picked(found: Sequence[Any], which: pa.Array) -> list[Any]:
    wanted = which.to_pylist()
    return list(found) if all(wanted) else [one for one, is_wanted in zip(found, wanted, strict=True) if is_wanted]


def _origin(records: pa.RecordBatch) -> dict[str, pa.Array]:
    timestamp = pc.multiply(records.column("timestamp_ms"), 1000).cast(pa.timestamp("us", tz="UTC"))
    own = {f"origin_{name}": records.column(name) for name in ("topic", "partition", "offset", "key")}
    return own | {"origin_timestamp": timestamp, "value": records.column("value"), "headers": records.column("headers")}


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
