"""Adapter: rows of views to Cassandra, from the Python workers of Spark; and what the API must know of each view."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, types

from starling_common.database import Database
from starling_common.settings import Cassandra
from starling_spark.jobs.views.view import View

_ROW: Final = (
    "INSERT INTO {ks}.view_rows (workspace, name, version, window_start_ms, place, row) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
_WINDOW: Final = "INSERT INTO {ks}.view_windows (workspace, name, version, window_start_ms) VALUES (?, ?, ?, ?)"
_ENTRY: Final = "INSERT INTO {ks}.view_catalogue (name, version, dimensions, measures, window_ms) VALUES (?, ?, ?, ?, ?)"
_TIMES: Final = "SELECT source_partition, stream_time_ms FROM {ks}.view_progress WHERE name = ? AND version = ?"
_TIME: Final = "INSERT INTO {ks}.view_progress (name, version, source_partition, stream_time_ms) VALUES (?, ?, ?, ?)"
_COUNT: Final = types.StructType([types.StructField("rows", types.LongType())])
_CHUNK_ROWS: Final = 1000


def upsert(rows: DataFrame, view: View, cassandra: Cassandra, at_micros: int) -> int:
    """Write rows of the shape `transform.ROWS`; returns how many, when Cassandra has all of them.

    A row is its sums, not what to add to them, so writing it again does no harm. `at_micros` grows from batch to batch: of
    two writes of one row the later batch's stays, whichever worker is the faster.
    Raises: whatever a task failed with, DatabaseUnavailable among them; some rows may then be written.
    """
    return sum(row["rows"] for row in rows.mapInArrow(_writer(view.name, view.version, cassandra, at_micros), _COUNT).collect())


def _writer(
    view: str, version: int, cassandra: Cassandra, at_micros: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        database = _database(cassandra)
        count = 0
        for batch in batches:
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            # Windows first: a row that is there is then always found.
            windows = {(workspace, view, version, start) for workspace, start, _, _ in rows}
            database.write_each(_WINDOW, sorted(windows))
            values = [(workspace, view, version, start, place, row, at_micros) for workspace, start, place, row in rows]
            for first in range(0, len(values), _CHUNK_ROWS):
                database.write_each(_ROW, values[first : first + _CHUNK_ROWS])
            count += len(rows)
        yield pa.RecordBatch.from_pydict({"rows": [count]}, pa.schema([("rows", pa.int64())]))

    return write


@cache
def _database(cassandra: Cassandra) -> Database:
    # Workers are used again by the next micro-batch, and so is their session.
    return Database(cassandra)


class ViewStore:
    """What the driver tells of one view, and remembers. Every method may raise DatabaseUnavailable."""

    def __init__(self, database: Database, view: View) -> None:
        self._database = database
        self._view = view
        self._times: dict[int, int] | None = None
        self._is_announced = False

    def announce(self) -> None:
        """From now on the API answers with this version of the view; told once."""
        if self._is_announced:
            return
        view = self._view
        entry = (view.name, view.version, list(view.dimensions), list(view.measures), view.window_ms)
        self._database.write(_ENTRY, entry)
        self._is_announced = True

    def tell_times(self, highest: Mapping[int, int]) -> None:
        """The stream time of source partitions that is in the rows by now, epoch ms. It never goes back."""
        view = self._view
        if self._times is None:
            found = self._database.read(_TIMES, (view.name, view.version))
            self._times = {row["source_partition"]: row["stream_time_ms"] for row in found}
        news = {number: time for number, time in highest.items() if time > self._times.get(number, -1)}
        if news:
            self._database.write_each(_TIME, [(view.name, view.version, number, time) for number, time in news.items()])
            self._times.update(news)
