"""Adapter: the runs of exports and their rejected rows, in two tables of the lake."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.maintenance import Retention, maintain
from starling_spark.sinks.port import RejectedRow

RUNS: Final = "export_runs"
REJECTS: Final = "export_rejects"
State: TypeAlias = Literal["running", "done", "failed"]


class RunRow(NamedTuple):
    """The state of one run. `start_offsets`, `end_offsets`: positions of the source, as text; `accepted`, `rejected`: rows."""

    export: str
    run: int
    fingerprint: str
    state: State
    start_offsets: str
    end_offsets: str
    accepted: int
    rejected: int
    message: str | None
    recorded_at: datetime


class RejectRow(NamedTuple):
    """A rejected row of a run. `version`: that of the row."""

    export: str
    run: int
    key: str
    version: int
    code: str
    reason: str
    cure: str


def _columns(row: type[NamedTuple]) -> types.StructType:
    kinds: dict[str, types.DataType] = {
        "run": types.LongType(),
        "version": types.LongType(),
        "accepted": types.LongType(),
        "rejected": types.LongType(),
    }
    kinds |= {"recorded_at": types.TimestampType()}
    return types.StructType([types.StructField(name, kinds.get(name, types.StringType())) for name in row._fields])


_RUN: Final = _columns(RunRow)
_REJECT: Final = _columns(RejectRow)


class RunStore:
    """Reads and writes the two tables. One process at a time writes them."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        lake.ensure(RUNS, _RUN, (), ())
        lake.ensure(REJECTS, _REJECT, ("export",), ())

    def runs(self, *exports: str) -> list[RunRow]:
        """Return the newest state of each run, the newest run first."""
        rows = self._lake.rows(RUNS).where(functions.col("export").isin(*exports))
        found = [RunRow(*row) for row in rows.select(*RunRow._fields).collect()]
        newest = {(row.export, row.run): row for row in sorted(found, key=lambda row: row.recorded_at)}
        return sorted(newest.values(), key=lambda row: (row.export, -row.run))

    def rejects(self, export: str) -> list[RejectRow]:
        """Return the rejected rows of an export, the newest run first."""
        rows = self._lake.rows(REJECTS).where(functions.col("export") == export).orderBy(functions.desc("run"), "key")
        return [RejectRow(*row) for row in rows.select(*RejectRow._fields).collect()]

    def add(self, row: RunRow) -> None:
        """Store the state of a run."""
        self._append(RUNS, [row], _RUN)

    def set_rejects(self, row: RunRow, rejected: Sequence[RejectedRow]) -> None:
        """Store the rejected rows of a run. A repetition replaces them."""
        table = self._lake.name(REJECTS)
        statement = f"DELETE FROM {table} WHERE export = :export AND run = :run"  # noqa: S608 - the name is ours
        self._spark.sql(statement, {"export": row.export, "run": row.run})
        if rejected:
            self._append(REJECTS, [RejectRow(row.export, row.run, *one) for one in rejected], _REJECT)

    def maintain(self, orphan_hours: float) -> None:
        """Compact the two tables, and delete files that they no longer need."""
        maintain(self._lake, (RUNS, REJECTS), Retention(orphan_hours, orphan_hours))

    def _append(self, table: str, rows: Sequence[RunRow] | Sequence[RejectRow], columns: types.StructType) -> None:
        made: DataFrame = self._spark.createDataFrame(list(rows), columns)
        made.coalesce(1).writeTo(self._lake.name(table)).append()


def now() -> datetime:
    """Return the wall clock, with a zone."""
    return datetime.now(UTC)
