"""Edge: the tasks of imports in the workers of Spark: a file, a part of a table, or rows that are gone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.settings import Cassandra
from starling_rules.imports import ImportRequest
from starling_spark.jobs.imports.changes import ChangedRows, CursorMapper, GoneMapper, GoneRows, gone_rows
from starling_spark.jobs.imports.file_import import Mapper, Sent, import_file
from starling_spark.jobs.imports.pages import KnownRow, RowPages, row_id
from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow, RowMapper
from starling_spark.jobs.imports.sending import RowSender, Target, TargetRefused, TargetUnavailable, opened_sender, request_size
from starling_spark.jobs.imports.sources.jdbc import key_text, rows_of_batches
from starling_spark.jobs.imports.sources.reading import FoundFile, SourceUnavailable, rows_of
from starling_spark.jobs.imports.store import ImportStore, Place, Progress
from starling_spark.kafka.codec import collect_rarely

_ROWS = "rows"
"""The name of the first part of a database or an Iceberg table in the progress; the others are `rows-1` and so on."""
_DELETED = "deleted"
"""The same of rows that are gone."""
_SHOWN = 60
"""Most characters of an id in a reason."""
RESULT = "refused string, unavailable string, cursor string"
"""The fields of `TaskResult`, for Spark."""


class FileTask(NamedTuple):
    """One file of an import, for a worker."""

    place: Place
    request: ImportRequest
    file: FoundFile
    progress: Progress


class TaskResult(NamedTuple):
    """`refused`: why the import fails; `unavailable`: why its file has to wait; both None: the task has ended.

    `cursor`: the greatest one of the rows, with a database.
    """

    refused: str | None = None
    unavailable: str | None = None
    cursor: str | None = None


StoredRow: TypeAlias = tuple[bytes, KnownRow]
"""A row of a database or a table by its id."""


class _FileLog:
    """A `Log` in Cassandra.

    `size_bytes`: of the file; `keep`: is called with rejected rows first; `names_keys`: the reasons name the ids of rows.
    """

    def __init__(
        self,
        store: ImportStore,
        place: Place,
        file: str,
        size_bytes: int,
        keep: Callable[[Sequence[RejectedRow]], None] | None = None,
        *,
        names_keys: bool = False,
    ) -> None:
        self._store = store
        self._place = place
        self._file = file
        self._size_bytes = size_bytes
        self._keep = keep
        self._names_keys = names_keys

    def is_running(self) -> bool:
        return self._store.is_running(self._place)

    def add_rejects(self, rows: Sequence[RejectedRow]) -> None:
        if self._keep is not None:
            self._keep(rows)
        self._store.add_rejects(self._place, self._file, [_with_key(row) for row in rows] if self._names_keys else rows)

    def set_progress(self, progress: Progress) -> None:
        self._store.set_progress(self._place, self._file, self._size_bytes, progress)


def run_task(target: Target, task: FileTask) -> TaskResult:
    """Import a file in a worker of Spark."""
    request, file = task.request, task.file
    mapper = RowMapper(request, task.place.workspace, file.name)
    log_ = _FileLog(ImportStore(_database(target.cassandra)), task.place, file.name, file.size_bytes)
    rows = partial(rows_of, request, file.source, file.path)

    def run(sender: RowSender) -> None:
        import_file(request, mapper, rows, _sent_by(sender), log_, task.progress)

    return _sending(target, task.place, request, run)


def stored_rows(target: Target, place: Place, bucket: int) -> Iterator[StoredRow]:
    """Return the rows of a bucket, in a worker of Spark."""
    return RowPages(_database(target.cassandra), place).rows_of_bucket(bucket)


def run_deleted(
    target: Target, place: Place, request: ImportRequest, seen_at_ms: int, part: int, users: Iterable[Sequence[StoredRow]]
) -> Iterator[TaskResult]:
    """Set the traits of rows that are gone to null, or remove their users, in a worker of Spark. Shape: the rows of each user."""
    database = _database(target.cassandra)
    log_ = _FileLog(ImportStore(database), place, f"{_DELETED}-{part}" if part else _DELETED, 0)
    gone = (row for rows in users for row in gone_rows(rows, seen_at_ms))

    def numbered(_start: int) -> Iterator[tuple[int, dict[str, object]] | RejectedRow]:
        for number, (id_, user, traits) in enumerate(gone, 1):
            values: dict[str, object] = {"id": id_, "user": user, "traits": traits}
            yield number, values

    def run(sender: RowSender) -> None:
        send = GoneRows(RowPages(database, place), place, sender.send, request_size(request)).send
        import_file(request, GoneMapper(request.kind), numbered, send, log_, Progress(""))

    yield _sending(target, place, request, run)


class TableTask(NamedTuple):
    """The rows of a database or a table, for the workers. `seen_at_ms`: the run; `text_columns`, `added`: as of `TableRows`."""

    place: Place
    request: ImportRequest
    seen_at_ms: int | None
    text_columns: Mapping[str, str]
    added: str | None


def run_part(target: Target, task: TableTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import the rows of one partition of a table in a worker of Spark. Shape: one record with the fields of `TaskResult`."""
    place, request = task.place, task.request
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    name = f"{_ROWS}-{part}" if part else _ROWS
    database = _database(target.cassandra)
    # The id of a message follows from the number of changes in the mode `full`.
    inner = RowMapper(request, place.workspace, name, sets_ids=task.added is None)
    cursor = None if request.source is None else request.source.cursor_column
    mapper = None if cursor is None else CursorMapper(inner, place, cursor)

    def run(sender: RowSender) -> None:
        changes = ChangedRows(RowPages(database, place), place, sender.send, task.seen_at_ms, request_size(request))
        send = changes.send if mapper is None else _sent_by(sender)
        keep = None if task.seen_at_ms is None else changes.keep
        log_ = _FileLog(ImportStore(database), place, name, 0, keep, names_keys=task.added is not None)
        chosen: Mapper = mapper or inner
        of_source = batches if task.added is None else (batch.drop_columns([task.added]) for batch in batches)
        rows = partial(rows_of_batches, of_source, task.text_columns, request.id_column)
        import_file(request, chosen, lambda _start: rows(), send, log_, Progress(""))

    result = _sending(target, place, request, run)
    result = result._replace(cursor=None if mapper is None else mapper.greatest)
    yield pa.RecordBatch.from_pylist([result._asdict()], schema=pa.schema([(field, pa.string()) for field in TaskResult._fields]))


def id_of(value: object, kind: str | None) -> bytes:
    """Return the id of a row by the value of its id column; none without a readable one. `kind`: of `TableRows.text_columns`."""
    key = key_text(value, kind)
    return b"" if key is None else row_id(key)


def has_one_writer(request: ImportRequest) -> bool:
    """Return whether tasks would wait for one another: the API writes a list for one request at a time."""
    return request.kind == "lists"


def _sent_by(sender: RowSender) -> Callable[[Sequence[ImportedRow], Sequence[bytes]], Sent]:
    return lambda rows, items: Sent(sender.send(rows, items))


def _with_key(row: RejectedRow) -> RejectedRow:
    """Return a rejected row whose reason names its id: its number is one in the order of the hashes."""
    if row.key is None or row.code == "duplicate_key":
        return row
    return row._replace(reason=f"the row with the id {row.key[:_SHOWN]!r}: {row.reason}")


def _sending(target: Target, place: Place, request: ImportRequest, run: Callable[[RowSender], object]) -> TaskResult:
    """Run a task with a connection to what takes the rows."""
    # A batch of rows has tens of thousands of objects, whose traversal takes a quarter of the time of a row.
    collect_rarely()
    try:
        with opened_sender(target, place.workspace, request) as sender:
            run(sender)
    except TargetRefused as error:
        return TaskResult(refused=str(error))
    except (TargetUnavailable, SourceUnavailable, DatabaseUnavailable) as error:
        return TaskResult(unavailable=str(error))
    return TaskResult()


@cache
def _database(cassandra: Cassandra) -> Database:
    # The next file reuses the worker and its session.
    return Database(cassandra)
