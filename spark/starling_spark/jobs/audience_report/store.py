"""Adapter: the report's rows to Cassandra, from Spark's Python workers; the API serves a run after its last row is written."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions, types

from starling_common.cassandra.database import Database
from starling_common.settings import Cassandra

DAYS: Final = "days"
RETENTION: Final = "retention"
OVERLAP: Final = "overlap"

_ROW: Final = "INSERT INTO {ks}.report_rows (workspace, run, part, segment_key, place, row) VALUES (?, ?, ?, ?, ?, ?)"
_RUN: Final = (
    "INSERT INTO {ks}.report_runs (workspace, run, until_ms, timezone, segments, records_missing, records_unreadable) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_FORMER: Final = "SELECT run, segments FROM {ks}.report_runs WHERE workspace = ?"
_FORGET: Final = "DELETE FROM {ks}.report_rows WHERE workspace = ? AND run = ? AND part = ? AND segment_key = ?"
_COUNT: Final = types.StructType([types.StructField("rows", types.LongType())])
_CHUNK_ROWS: Final = 1000
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {DAYS: ("day",), RETENTION: ("day", "days_later"), OVERLAP: ("other_key",)}
"""The columns that identify a row of a segment, in the order of reads."""


@dataclass(frozen=True, slots=True)
class Run:
    """The entry of one workspace in a run, as the API returns it.

    `records_missing`: number of feed records that are no longer available; `records_unreadable`: of all workspaces.
    """

    workspace: str
    until_ms: int
    timezone: str
    segments: Sequence[str]
    records_missing: int
    records_unreadable: int


def insert(rows: DataFrame, part: str, run: int, cassandra: Cassandra) -> int:
    """Write one part of the report, and return the number of rows after Cassandra has acknowledged them.

    Raises: the error of a failed task, such as DatabaseUnavailable; rows that are written then belong to a run without an entry.
    """
    named = [name for name in rows.columns if name not in ("workspace", "segment_key")]
    shaped = rows.select(
        "workspace",
        functions.lit(run).alias("run"),
        functions.lit(part).alias("part"),
        "segment_key",
        functions.concat_ws("/", *[_ordered(rows, name) for name in _PLACES[part]]).alias("place"),
        functions.to_json(functions.struct(*named)).alias("row"),
    )
    return sum(row["rows"] for row in shaped.mapInArrow(_writer(cassandra), _COUNT).collect())


def switch(database: Database, run: int, entry: Run) -> None:
    """Make the API serve this run, then delete the rows of the former one. Raises: DatabaseUnavailable.

    `run`: its number, µs of the wall clock, so that it increases.
    """
    former = database.read(_FORMER, (entry.workspace,))
    numbers = (entry.records_missing, entry.records_unreadable)
    database.write(_RUN, (entry.workspace, run, entry.until_ms, entry.timezone, list(entry.segments), *numbers))
    for old in former:
        gone = [(entry.workspace, old["run"], part, key) for part in _PLACES for key in old["segments"] or ()]
        database.write_each(_FORGET, gone)


def _ordered(rows: DataFrame, name: str) -> Column:
    """Return a text column with the sort order of the value."""
    is_number = isinstance(rows.schema[name].dataType, types.IntegerType)
    text = functions.col(name).cast("string")
    return functions.lpad(text, 5, "0") if is_number else text


def _writer(cassandra: Cassandra) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        database = _database(cassandra)
        count = 0
        for batch in batches:
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            for first in range(0, len(rows), _CHUNK_ROWS):
                database.write_each(_ROW, rows[first : first + _CHUNK_ROWS])
            count += len(rows)
        yield pa.RecordBatch.from_pydict({"rows": [count]}, pa.schema([("rows", pa.int64())]))

    return write


@cache
def _database(cassandra: Cassandra) -> Database:
    # The next part reuses the worker and its session.
    return Database(cassandra)
