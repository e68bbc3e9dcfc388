"""Adapter: rows of views to Cassandra, from the Python workers of Spark, and the entry of each view for the API."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import StatementRefused
from starling_common.settings import Cassandra
from starling_spark.jobs.views.view import View

_ROW: Final = (
    "INSERT INTO {ks}.view_rows (workspace, name, version, window_start_ms, place, row) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
_WINDOW: Final = "INSERT INTO {ks}.view_windows (workspace, name, version, window_start_ms) VALUES (?, ?, ?, ?)"
_ENTRY: Final = "INSERT INTO {ks}.view_catalogue (name, version, dimensions, measures, window_ms) VALUES (?, ?, ?, ?, ?)"
_TIMES: Final = "SELECT source_partition, stream_time_ms FROM {ks}.view_progress WHERE name = ? AND version = ?"
_TIME: Final = "INSERT INTO {ks}.view_progress (name, version, source_partition, stream_time_ms) VALUES (?, ?, ?, ?)"
_REFUSED: Final = types.StructType(
    [types.StructField(name, types.StringType()) for name in ("view", "workspace", "place", "error")]
    + [types.StructField("window_start_ms", types.LongType())]
)
_COUNT: Final = types.StructType(
    [
        types.StructField("view", types.StringType()),
        types.StructField("rows", types.LongType()),
        types.StructField("refused", types.ArrayType(_REFUSED)),
    ]
)
_CHUNK_ROWS: Final = 1000
_BATCH_ROWS, _BATCH_CHARACTERS = 100, 1_000_000
"""Of a batch: Cassandra refuses a mutation of more than 8 MiB."""
_SHOWN_CHARACTERS: Final = 200


class RefusedRow(NamedTuple):
    """A row that Cassandra refuses, such as one with a key of more than 64 KB. `view`: its name. `place` is shortened."""

    view: str
    workspace: str
    place: str
    error: str
    window_start_ms: int


class Upserted(NamedTuple):
    """The number of written rows of each view, by its name, and the refused rows."""

    rows: Mapping[str, int]
    refused: tuple[RefusedRow, ...]


def upsert(rows: DataFrame, views: Mapping[int, View], cassandra: Cassandra, at_micros: int) -> Upserted:
    """Write the sums of windows, and return the number of rows after Cassandra has acknowledged them.

    A row contains sums and not increments, so a repeated write is harmless. `views`: by their number in the rows. `at_micros`
    increases with each batch, so the write of the later batch wins independent of the order of the workers.
    Raises: the error of a failed task, such as DatabaseUnavailable; some rows may be written then.
    """
    versions = {number: (view.name, view.version) for number, view in views.items()}
    found = rows.mapInArrow(_writer(versions, cassandra, at_micros), _COUNT).collect()
    counts = Counter[str]()
    for one in found:
        counts[one["view"]] += one["rows"]
    return Upserted(counts, tuple(RefusedRow(**row.asDict()) for one in found for row in one["refused"]))


def _writer(
    versions: Mapping[int, tuple[str, int]], cassandra: Cassandra, at_micros: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        database = _database(cassandra)
        count = Counter[str]()
        refused: list[RefusedRow] = []
        for batch in batches:
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            # Windows are written first, so that every row can be found.
            windows = {(workspace, *versions[view], start) for workspace, start, view, _, _ in rows}
            database.write_each(_WINDOW, sorted(windows))
            values = [(workspace, *versions[view], start, place, row, at_micros) for workspace, start, view, place, row in rows]
            for first in range(0, len(values), _CHUNK_ROWS):
                refused += write_rows(database, values[first : first + _CHUNK_ROWS])
            count.update(name for _, name, *_ in values)
        count.subtract(one.view for one in refused)
        of_view = {name: [one._asdict() for one in refused if one.view == name] for name in count}
        columns = {"view": list(count), "rows": list(count.values()), "refused": list(of_view.values())}
        yield pa.RecordBatch.from_pydict(columns, to_arrow_schema(_COUNT))

    return write


def write_rows(database: Database, values: Sequence[tuple[Any, ...]]) -> list[RefusedRow]:
    """Write rows, by halves if Cassandra refuses them, and return the refused ones. Raises: DatabaseUnavailable."""
    try:
        database.write_batches(list(_batches(values)))
    except StatementRefused as cause:
        database.check([_ROW])  # raises if the table or a column is missing
        if len(values) == 1:
            [(workspace, view, _, start, place, _, _)] = values
            return [RefusedRow(view, workspace, place[:_SHOWN_CHARACTERS], str(cause.__cause__), start)]
        half = len(values) // 2
        return write_rows(database, values[:half]) + write_rows(database, values[half:])
    return []


def _batches(values: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[str, Sequence[Any]]]]:
    """Yield batches of one window of a view each, which is a Cassandra partition, so that each is one mutation."""
    windows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in values:
        windows[row[:4]].append(row)
    for rows in windows.values():
        batch: list[tuple[str, Sequence[Any]]] = []
        characters = 0
        for row in rows:
            if batch and (len(batch) == _BATCH_ROWS or characters + len(row[4]) + len(row[5]) > _BATCH_CHARACTERS):
                yield batch
                batch, characters = [], 0
            batch.append((_ROW, row))
            characters += len(row[4]) + len(row[5])
        yield batch


@cache
def _database(cassandra: Cassandra) -> Database:
    # The next micro-batch reuses the worker and its session.
    return Database(cassandra)


class ViewStore:
    """The entry and the stream time of one view. Every method may raise DatabaseUnavailable."""

    def __init__(self, database: Database, view: View) -> None:
        self._database = database
        self._view = view
        self._times: dict[int, int] | None = None
        self._is_published = False

    def publish_version(self) -> None:
        """Make the API serve this version of the view; written once."""
        if self._is_published:
            return
        view = self._view
        entry = (view.name, view.version, list(view.dimensions), list(view.measures), view.window_ms)
        self._database.write(_ENTRY, entry)
        self._is_published = True

    def write_times(self, highest: Mapping[int, int]) -> None:
        """Write the stream time of source partitions that the rows include, epoch ms. It never decreases."""
        view = self._view
        if self._times is None:
            found = self._database.read(_TIMES, (view.name, view.version))
            self._times = {row["source_partition"]: row["stream_time_ms"] for row in found}
        advanced = {number: time for number, time in highest.items() if time > self._times.get(number, -1)}
        if advanced:
            self._database.write_each(_TIME, [(view.name, view.version, number, time) for number, time in advanced.items()])
            self._times.update(advanced)
