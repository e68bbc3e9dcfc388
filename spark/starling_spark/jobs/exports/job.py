"""Edge: runs exports, one after another: plans the records of a run, writes their rows to the sink, and stores the position.

The plan is stored before the first row is written. So a run that is killed is repeated with the same records and the same number,
and a sink drops what it has. A run that fails leaves the position where it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pydantic import SecretStr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, types

from starling_common.telemetry.logs import log
from starling_spark.jobs.exports.definition import ExportDefinition
from starling_spark.jobs.exports.outputs import output_of
from starling_spark.jobs.exports.sources import BadSource, Source, exported, source_of, within
from starling_spark.jobs.exports.store import RejectRow, RunRow, RunStore, now
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lakehouse.pinned import PinnedLake, Pinning, pinned
from starling_spark.lakehouse.positions import from_text, to_text
from starling_spark.lineage.datasets import Column, Dataset, Flow
from starling_spark.lineage.runs import OFF, JobName, Lineage, RunLineage
from starling_spark.session.failures import first_cause
from starling_spark.sinks.catalogue import BadDestination, Destination, sink_of
from starling_spark.sinks.port import RejectedRow, Run, Shape, Sink, SinkRefused, SinkUnavailable, Written, check_rejected

PINNING: Final = Pinning("exports")
_MOST_MESSAGE: Final = 2_000
_ARROW: Final = {
    types.StringType: pa.string(),
    types.LongType: pa.int64(),
    types.IntegerType: pa.int32(),
    types.DoubleType: pa.float64(),
    types.BooleanType: pa.bool_(),
    types.TimestampType: pa.timestamp("us", tz="UTC"),
}
"""The types of `sources.exported`."""
_ROW: Final = types.StructType(
    [
        types.StructField(name, types.LongType() if name == "version" else types.StringType())
        for name in ("key", "version", "code", "reason", "cure")
    ]
)
_RESULT: Final = types.StructType(
    [
        types.StructField("accepted", types.LongType()),
        types.StructField("rejected", types.ArrayType(_ROW)),
        types.StructField("files", types.ArrayType(types.StringType())),
        types.StructField("problem", types.StringType()),
        types.StructField("is_refused", types.BooleanType()),
    ]
)
"""What a task has written, or why it could not."""


@dataclass(frozen=True, slots=True)
class Exports:
    """The exports of the settings. `brokers`: of the platform."""

    definitions: Mapping[str, ExportDefinition]
    passwords: Mapping[str, SecretStr]
    brokers: str

    def destination(self, name: str) -> Destination:
        """Return the destination of an export."""
        definition = self.definitions[name]
        secret = f"the entry {name!r} of STARLING_EXPORTS_PASSWORDS"
        return Destination(definition.sink, definition.to, definition.table, self.passwords.get(name), secret, self.brokers)


class NoTable(Exception):
    """The lake lacks the table of a source. The text names it and the cure."""


class ExportJob:
    """Runs exports. One process at a time runs them."""

    def __init__(
        self, spark: SparkSession, lake: Lake, exports: Exports, pinning: Pinning = PINNING, lineage: Lineage = OFF
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._exports = exports
        self._pinning = pinning
        self._lineage = lineage
        self._store = RunStore(spark, lake)

    def run(self, names: Sequence[str], is_stopping: Callable[[], bool], *, from_start: bool = False) -> dict[str, RunRow | None]:
        """Run the exports, and return the end of each run; None without new records. A failed export does not keep the others.

        `from_start`: all records, also those that were exported.
        """
        ended: dict[str, RunRow | None] = {}
        for name in names:
            if is_stopping():
                break
            with self._lineage.run(JobName(f"exports.{name}"), partial(self._flow, name), is_stopping) as lineage:
                try:
                    row = self._run(name, lineage, from_start=from_start)
                except (SinkRefused, SinkUnavailable, BadDestination, BadSource, NoTable) as error:
                    row = self._failed(name, str(error))
                    lineage.fail(error)
                except (PySparkException, Py4JError) as error:
                    if is_stopping():
                        lineage.abort()
                        break  # the tasks were cancelled: the run stays as it is, and the next start repeats it
                    row = self._failed(name, first_cause(error))
                    lineage.fail(row.message)
            ended[name] = row
            if row is not None:
                log(__name__).info(
                    "export_ended", export=name, run=row.run, state=row.state, rows=row.accepted, message=row.message
                )
        return ended

    def stop(self) -> None:
        """Cancel the tasks in progress, from another thread."""
        self._spark.sparkContext.cancelAllJobs()

    def runs(self, names: Sequence[str]) -> list[RunRow]:
        """Return the runs of the exports, the newest first."""
        return self._store.runs(*names)

    def rejects(self, name: str) -> list[RejectRow]:
        """Return the rejected rows of an export."""
        return self._store.rejects(name)

    def maintain(self, orphan_hours: float) -> None:
        """Compact the tables with the runs."""
        self._store.maintain(orphan_hours)

    def _flow(self, name: str) -> Flow:
        definition = self._exports.definitions[name]
        tables = table_datasets(self._lake, source_of(definition.source).table, versions=False)
        return Flow(tables, (output_of(self._exports.destination(name)),))

    def _run(self, name: str, lineage: RunLineage, *, from_start: bool) -> RunRow | None:
        definition, sink = self._exports.definitions[name], sink_of(self._exports.destination(name))
        source = source_of(definition.source)
        if not self._lake.exists(source.table):
            raise NoTable(f"the lake has no table {source.table} yet: start the job `lake`")
        with pinned(self._lake, self._pinning) as lake:
            records = lake.rows(source.table)
            shape = _shape(exported(records, source, definition).schema, source)
            lineage.knows(lambda: Flow(table_datasets(lake, source.table), (self._output(name, shape, None),)))
            sink.check(shape)
            plan = self._planned(name, lake, source, from_start=from_start)
            if plan is None:
                return None
            rows = exported(within(records, from_text(plan.start_offsets), from_text(plan.end_offsets)), source, definition)
            run = Run(name, plan.run)
            written = _written(rows, sink, shape, run, definition.max_rejects)
        sink.complete(shape, run, written)
        rejected = [row for one in written for row in one.rejected]
        self._store.set_rejects(plan, rejected)
        done = plan._replace(state="done", accepted=sum(one.accepted for one in written), rejected=len(rejected), recorded_at=now())
        self._store.add(done)
        lineage.knows(lambda: Flow((), (self._output(name, shape, done.accepted),)))
        return done

    def _output(self, name: str, shape: Shape, rows: int | None) -> Dataset:
        columns = tuple(Column(field.name, str(field.type)) for field in shape.schema)
        return output_of(self._exports.destination(name))._replace(columns=columns, rows=rows)

    def _planned(self, name: str, lake: PinnedLake, source: Source, *, from_start: bool) -> RunRow | None:
        """Return the run that was interrupted, or a new one; None without new records."""
        fingerprint, runs = self._exports.definitions[name].fingerprint(name), self._store.runs(name)
        if runs and runs[0].state == "running" and runs[0].fingerprint == fingerprint and not from_start:
            return runs[0]
        reached = lake.reached(source.table)
        last = next((row for row in runs if row.state == "done" and row.fingerprint == fingerprint), None)
        start = {} if from_start or last is None else from_text(last.end_offsets)
        end = {} if reached is None else reached[1]
        if all(start.get(place, 0) >= offset for place, offset in end.items()):
            return None
        number = runs[0].run + 1 if runs else 1
        plan = RunRow(name, number, fingerprint, "running", to_text(start), to_text(end), 0, 0, None, now())
        self._store.add(plan)
        return plan

    def _failed(self, name: str, reason: str) -> RunRow:
        """Store a failed run: the planned run, or one without records."""
        fingerprint, runs = self._exports.definitions[name].fingerprint(name), self._store.runs(name)
        is_planned = bool(runs) and runs[0].state == "running"
        number = runs[0].run + (0 if is_planned else 1) if runs else 1
        row = RunRow(name, number, fingerprint, "failed", "{}", "{}", 0, 0, reason[:_MOST_MESSAGE], now())
        self._store.add(row)
        return row


def _shape(schema: types.StructType, source: Source) -> Shape:
    return Shape(pa.schema([(field.name, _ARROW[type(field.dataType)]) for field in schema.fields]), source.key)


def _written(rows: DataFrame, sink: Sink, shape: Shape, run: Run, most_rejected: int) -> list[Written]:
    """Write the rows in the workers, and return what each task has written. Raises: SinkRefused, SinkUnavailable."""
    results = rows.mapInArrow(_writer(sink, shape, run, most_rejected), _RESULT).collect()
    problems = sorted(((one["is_refused"], one["problem"]) for one in results if one["problem"] is not None), reverse=True)
    if problems:
        is_refused, problem = problems[0]
        raise SinkRefused(problem) if is_refused else SinkUnavailable(problem)
    written = [
        Written(one["accepted"], tuple(RejectedRow(*row) for row in one["rejected"]), tuple(one["files"])) for one in results
    ]
    check_rejected([row for one in written for row in one.rejected], most_rejected)
    return written


def _writer(
    sink: Sink, shape: Shape, run: Run, most_rejected: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes the rows of a partition, and yields one row of `_RESULT`."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written, problem, is_refused = Written(0), None, False
        try:
            written = sink.write(shape, run, (_cast(batch, shape.schema) for batch in batches), most_rejected)
        except (SinkRefused, SinkUnavailable) as error:
            problem, is_refused = str(error), isinstance(error, SinkRefused)
        result = {
            "accepted": written.accepted,
            "rejected": [row._asdict() for row in written.rejected],
            "files": list(written.files),
            "problem": problem,
            "is_refused": is_refused,
        }
        yield pa.RecordBatch.from_pylist([result], _result_in_arrow())

    return write


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _result_in_arrow() -> pa.Schema:
    row = pa.struct([(field.name, _ARROW[type(field.dataType)]) for field in _ROW.fields])
    return pa.schema(
        [
            ("accepted", pa.int64()),
            ("rejected", pa.list_(row)),
            ("files", pa.list_(pa.string())),
            ("problem", pa.string()),
            ("is_refused", pa.bool_()),
        ]
    )
