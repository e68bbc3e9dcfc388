"""Adapter: records of Kafka -> sorted Parquet files of the lake's tables, written by Spark's Python workers.

The workers decode the records, and Arrow sorts and writes them in the same process: 1.5 us an event. Rows that pass through
the JVM cost 16 us an event. One pass over the records serves all tables and reads no headers; a second pass reads refused
records with their headers. A file is invisible until a commit adds it to a table; the files of a failed task are never added.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame

from starling_common.failpoints.raising import Raising
from starling_common.failures import is_of_installation, poison
from starling_common.time.instants import format_instant
from starling_spark.failpoints import raising
from starling_spark.kafka.codec import NO_ID, Refusal, collect_rarely
from starling_spark.kafka.decoding import Reading, Row, arrays, read_each, row_reader
from starling_spark.kafka.sources import RECORDS
from starling_spark.lakehouse.positions import Position, Tip, TopicPartition
from starling_spark.lakehouse.schema.layout import Layout
from starling_spark.lakehouse.stores.files import put
from starling_spark.lakehouse.stores.translation import DIRECTORY, FileStore

_FLUSH_BYTES: Final = 128 * 1024 * 1024
"""Rows that a task buffers for one table before it writes a file; bounds its memory for a micro-batch of any size."""
_HOUR_MS: Final = 3_600_000
_WITHOUT_HEADERS: Final = [name for name in RECORDS.fieldNames() if name != "headers"]
_DATES: Final = range(-17_259_888, 70_389_528)
"""The hours from 1970 of the years 1 to 9999."""
_NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_MAGIC: Final = b"PAR1"
_FOOTER_END: Final = 8
"""A Parquet file ends with the size of its metadata and a magic number, four bytes each."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table to write to. It contains the records before `tip`. `few`: columns with few distinct values; `store`: of its files."""

    table: str
    layout: Layout
    tip: Tip
    sorted_by: tuple[str, ...]
    few: tuple[str, ...]
    store: FileStore = DIRECTORY

    @property
    def position(self) -> Position:
        """The first offset of each partition that the table lacks."""
        return self.tip.position


@dataclass(frozen=True, slots=True)
class Plan:
    """The decoding and the table of each topic. Refused records from offset `quarantined` on are reported."""

    readings: Mapping[str, Reading]
    targets: Mapping[str, Target]
    quarantined: Position


class DataFile(msgspec.Struct, frozen=True):
    """A file that no commit has added yet; `partition` as Iceberg parses it from text.

    Unit of `size`: bytes. `footer`: the end of the file, which has the statistics of its columns.
    """

    table: str
    path: str
    partition: list[str | None]
    rows: int
    size: int
    footer: bytes


class Refused(msgspec.Struct, frozen=True):
    """Records of one topic and partition with the same reason of refusal."""

    topic: str
    partition: int
    why: Refusal
    offsets: list[int]


class TaskResult(msgspec.Struct):
    """The files of a task, the end offset of each topic and partition in its input, and the refused records."""

    files: list[DataFile]
    ends: list[tuple[str, int, int]]
    refused: list[Refused]


class RecordsGone(Exception):
    """Refused records could not be read a second time, because the broker has deleted them."""


def write_files(records: DataFrame, plan: Plan) -> TaskResult:
    """Write the records that the tables lack, in one pass, and return the files. Raises: errors of Spark and the registry, OSError.

    `records`: records of Kafka, with or without their headers.
    """

    def begin() -> _Task:
        return _Task(plan, {topic: row_reader(reading) for topic, reading in plan.readings.items()})

    return _collected(records.select(*_WITHOUT_HEADERS), begin)


def write_refused(records: DataFrame, target: Target, refused: Sequence[Refused]) -> list[DataFile]:
    """Write the records of `refused` with their headers and reasons, and return the files; other records are skipped.

    `records`: records of Kafka with their headers. Raises: RecordsGone if the broker has deleted some; errors of Spark and the
    registry, OSError.
    """
    wanted = sum(len(one.offsets) for one in refused)
    files = _collected(records.select(*RECORDS.fieldNames()), lambda: _RefusedTask(target, _by_partition_offset(refused))).files
    if (found := sum(file.rows for file in files)) != wanted:
        raise RecordsGone(f"{wanted} records were refused, and the broker still has {found} of them: {_offsets(refused)}")
    return files


def _collected(records: DataFrame, begin: Callable[[], "_Task | _RefusedTask"]) -> TaskResult:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collect_rarely()
        task = begin()
        for batch in batches:
            for topic, number, here in _by_partition(batch):
                task.take(topic, number, here)
        yield pa.RecordBatch.from_pydict({"result": pa.array([msgspec.json.encode(task.result())], pa.binary())})

    result = TaskResult([], [], [])
    for (text,) in records.mapInArrow(write, "result binary").collect():
        one = msgspec.json.decode(bytes(text), type=TaskResult)
        result.files.extend(one.files)
        result.ends.extend(one.ends)
        result.refused.extend(one.refused)
    return result


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield the records of each topic and partition of the batch."""
    for topic in pc.unique(batch.column("topic")).to_pylist():
        for number in pc.unique(batch.column("partition")).to_pylist():
            here = _where(batch, pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), number)))
            if here.num_rows:
                yield topic, number, here


def _by_partition_offset(refused: Sequence[Refused]) -> dict[TopicPartition, dict[int, Refusal]]:
    found: dict[TopicPartition, dict[int, Refusal]] = {}
    for one in refused:
        found.setdefault((one.topic, one.partition), {}).update(dict.fromkeys(one.offsets, one.why))
    return found


def _offsets(refused: Sequence[Refused]) -> str:
    return ", ".join(f"{one.topic} {one.partition} from offset {min(one.offsets)} on ({one.why.code})" for one in refused[:10])


@dataclass(slots=True)
class _Unwritten:
    """Buffered rows of a task, by table, and the files written so far."""

    batches: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)
    refused: list[tuple[TopicPartition, int, Refusal]] = field(default_factory=list)
    """Place and offset of each row that makes the writing raise."""
    armed: Raising | None = field(default_factory=raising)

    def add(self, target: Target, records: pa.RecordBatch, rows: Sequence[Row], names: Sequence[str]) -> None:
        """Buffer rows: `rows` have the columns `names`; `records` have the columns of the origin.

        Raises: ArrowInvalid and others for a row that does not fit the columns; nothing is buffered then.
        """
        if not rows:
            return
        schema = target.layout.schema
        # A record may have a field `value` too, which is not that of Kafka's record.
        made = _origin(records) | dict(zip(names, arrays(rows, [schema.field(name) for name in names]), strict=True))
        columns = [_of_type(made[one.name], one.type) for one in schema]
        buffered = self.batches.setdefault(target.table, [])
        buffered.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        self.targets[target.table] = target
        if sum(one.nbytes for one in buffered) > _FLUSH_BYTES:
            self._flush(target.table)

    def flushed(self) -> list[DataFile]:
        """Write the buffered rows, and return all files."""
        for table in list(self.batches):
            self._flush(table)
        return self.files

    def _flush(self, table: str) -> None:
        target = self.targets[table]
        rows = pa.Table.from_batches(self.batches.pop(table))
        try:
            self._write(target, rows)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            self._bisect(target, rows)

    def _bisect(self, target: Target, rows: pa.Table) -> None:
        """Write the rows, by halves if they raise. A single one that raises is refused."""
        try:
            self._write(target, rows)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            if rows.num_rows > 1:
                half = rows.num_rows // 2
                self._bisect(target, rows.slice(0, half))
                self._bisect(target, rows.slice(half))
                return
            topic, number, offset = (rows.column(f"origin_{name}")[0].as_py() for name in ("topic", "partition", "offset"))
            why = poison(cause)
            self.refused.append(((topic, number), offset, Refusal(why.code, why.message, NO_ID)))

    def _write(self, target: Target, rows: pa.Table) -> None:
        if self.armed is not None:
            for row in rows.to_pylist():
                self.armed.passed("write", str(row).encode())
        self.files += [_written(target, partition, part) for partition, part in _partitions(target, rows)]


@dataclass(slots=True)
class _RefusedTask:
    """A task that writes refused records."""

    target: Target
    refused: Mapping[TopicPartition, Mapping[int, Refusal]]
    unwritten: _Unwritten = field(default_factory=lambda: _Unwritten(armed=None))

    def take(self, topic: str, number: int, records: pa.RecordBatch) -> None:
        """Buffer records of one topic and partition."""
        why = self.refused.get((topic, number), {})
        records = records.filter(pc.is_in(records.column("offset"), pa.array(list(why), pa.int64())))
        rows = [why[offset] for offset in records.column("offset").to_pylist()]
        self.unwritten.add(self.target, records, rows, Refusal._fields)

    def result(self) -> TaskResult:
        """Write the buffered rows, and return the files."""
        return TaskResult(self.unwritten.flushed(), [], [])


@dataclass(slots=True)
class _Task:
    """A task that writes decoded records and collects refusals."""

    plan: Plan
    readers: Mapping[str, Callable[[bytes | None], Row | Refusal]]
    unwritten: _Unwritten = field(default_factory=_Unwritten)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[tuple[TopicPartition, Refusal], list[int]] = field(default_factory=dict)

    def result(self) -> TaskResult:
        """Write the buffered rows, and return what the task has done."""
        files = self.unwritten.flushed()
        for partition, offset, why in self.unwritten.refused:
            self._refuse(partition, offset, why)
        refused = [Refused(*partition, why, offsets) for (partition, why), offsets in self.refused.items()]
        return TaskResult(files, [(*partition, end) for partition, end in self.ends.items()], refused)

    def take(self, topic: str, number: int, records: pa.RecordBatch) -> None:
        """Buffer records of one topic and partition."""
        partition = (topic, number)
        self.ends[partition] = max(self.ends.get(partition, 0), pc.max(records.column("offset")).as_py() + 1)
        target = self.plan.targets[topic]
        own, other = target.position.get(partition, 0), self.plan.quarantined.get(partition, 0)
        records = _where(records, pc.greater_equal(records.column("offset"), min(own, other)))
        found = read_each(self.readers[topic], records.column("value").to_pylist())
        reading = self.plan.readings[topic]
        names = [*reading.fields.fieldNames(), *reading.extra.fieldNames()]
        try:
            refused = self._add(target, records, found, names, own)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            fields = [target.layout.schema.field(name) for name in names]
            found = [one if isinstance(one, Refusal) else _fitting(one, fields) for one in found]
            refused = self._add(target, records, found, names, own)
        if refused:
            for offset, one in zip(records.column("offset").to_pylist(), found, strict=True):
                if isinstance(one, Refusal):
                    self._refuse(partition, offset, one)

    def _add(self, target: Target, records: pa.RecordBatch, found: Sequence[Row | Refusal], names: Sequence[str], own: int) -> bool:
        """Buffer the rows that the table lacks, those from offset `own` on. Return whether some records are refused."""
        refused = pa.array([isinstance(one, Refusal) for one in found], pa.bool_())
        good = pc.and_(pc.invert(refused), pc.greater_equal(records.column("offset"), own))
        self.unwritten.add(target, _where(records, good), _picked(found, good), names)
        return bool(refused.true_count)

    def _refuse(self, partition: TopicPartition, offset: int, why: Refusal) -> None:
        if offset >= self.plan.quarantined.get(partition, 0):
            self.refused.setdefault((partition, why), []).append(offset)


def _fitting(row: Row, fields: Sequence[pa.Field]) -> Row | Refusal:
    """Return the row, or its refusal if it does not fit the columns. Raises: failures of the installation."""
    try:
        arrays([row], fields)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        why = poison(cause)
        return Refusal(why.code, why.message, NO_ID)
    return row


def _where(records: pa.RecordBatch, wanted: pa.Array) -> pa.RecordBatch:
    # A filter copies, and nearly every filter keeps all records.
    return records if wanted.true_count == len(wanted) else records.filter(wanted)


def _picked(found: Sequence[Any], which: pa.Array) -> list[Any]:
    if which.true_count == len(which):
        return list(found)
    return [one for one, is_wanted in zip(found, which.to_pylist(), strict=True) if is_wanted]


def _origin(records: pa.RecordBatch) -> dict[str, pa.Array]:
    timestamp = pc.multiply(records.column("timestamp_ms"), 1000).cast(pa.timestamp("us", tz="UTC"))
    own = {f"origin_{name}": records.column(name) for name in ("topic", "partition", "offset", "key")}
    raw = {name: records.column(name) for name in ("value", "headers") if name in records.schema.names}
    return own | {"origin_timestamp": timestamp} | raw


def _of_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type == wanted:
        return column
    # Spark and Iceberg name the elements of a list differently. Only the headers of refused records are lists.
    return pa.array(column.to_pylist(), wanted) if pa.types.is_nested(wanted) else column.cast(wanted)


def _partitions(target: Target, rows: pa.Table) -> Iterator[tuple[list[Any], pa.Table]]:
    """Yield the values and the sorted rows of each table partition."""
    by = [f"partition {index}" for index in range(len(target.layout.partitioning))]
    values = target.layout.partition_columns(rows)
    for name, column in zip(by, values, strict=True):
        rows = rows.append_column(name, column)
    order = pc.sort_indices(rows, [(name, "ascending", "at_start") for name in (*by, *target.sorted_by)])
    rows = rows.take(order)
    # Groups have the order of their first rows.
    groups = rows.group_by(by, use_threads=False).aggregate([([], "count_all")])
    at = 0
    for group in groups.to_pylist():
        yield [group[name] for name in by], rows.slice(at, group["count_all"]).select(target.layout.schema.names)
        at += group["count_all"]


def _written(target: Target, partition: list[Any], rows: pa.Table) -> DataFile:
    parts = [
        f"{by.name}={_directory(value, by.transform)}" for by, value in zip(target.layout.partitioning, partition, strict=True)
    ]
    path = "/".join([target.layout.location, "data", *parts, f"{uuid4().hex}.parquet"])
    # The file is complete before the store is asked, so that an error of the store is none of a record.
    made = pa.BufferOutputStream()
    # A dictionary for a column of mostly distinct values costs time and space.
    parquet.write_table(rows, made, compression="zstd", use_dictionary=list(target.few))
    content = made.getvalue()
    put(target.store, path, content)
    values = [None if value is None else str(value) for value in partition]
    return DataFile(target.table, path, values, rows.num_rows, content.size, footer_of(content))


def footer_of(content: pa.Buffer) -> bytes:
    """Return a Parquet file without its rows, from which readers get its schema and statistics."""
    end = content.size - _FOOTER_END
    size = int.from_bytes(memoryview(content)[end : end + 4], "little")
    return _MAGIC + bytes(memoryview(content)[end - size :])


def _directory(value: Any, transform: str) -> str:
    """Return the name of a partition's directory, as Iceberg forms it for readers; Iceberg does not parse it."""
    if value is None:
        return _NO_PARTITION
    if transform != "hour":
        return quote_plus(value)
    return format_instant(value * _HOUR_MS)[:13].replace("T", "-") if value in _DATES else str(value)
