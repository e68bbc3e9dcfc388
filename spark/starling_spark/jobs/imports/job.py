"""Edge: runs the imports that wait: the files of one import, or the parts of a table, at the same time, a task of Spark each."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.sql import SparkSession

from starling_common.security.sealing import Place as SecretPlace
from starling_common.security.sealing import Sealer, Unreadable
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_rules.imports import DONE, FAILED, RUNNING, WAITING, ImportRequest
from starling_rules.jdbc import password_place
from starling_spark.jobs.imports.changes import presence_of
from starling_spark.jobs.imports.datasets import inputs_of, job_of, outputs_of
from starling_spark.jobs.imports.pages import BUCKETS, PAGE_BYTES
from starling_spark.jobs.imports.rows import UnusableFile
from starling_spark.jobs.imports.sending import Target
from starling_spark.jobs.imports.sources.frames import TableRows, in_order_of_ids
from starling_spark.jobs.imports.sources.iceberg import IcebergAccess, IcebergTable
from starling_spark.jobs.imports.sources.jdbc import JdbcAccess, greatest, opened_rows, raise_translated
from starling_spark.jobs.imports.sources.reading import FoundFile, SourceUnavailable, found_files
from starling_spark.jobs.imports.store import ImportStore, Place, Progress
from starling_spark.jobs.imports.tasks import (
    RESULT,
    FileTask,
    StoredRow,
    TableTask,
    TaskResult,
    has_one_writer,
    id_of,
    run_deleted,
    run_part,
    run_task,
    stored_rows,
)
from starling_spark.lineage.datasets import Flow
from starling_spark.lineage.runs import OFF, Lineage, RunLineage

_NOTHING_DELETED = {"traits": "no trait was set to null", "lists": "no user was removed", "catalog": "no product was removed"}
_ROWS_A_TASK = 10_000
"""Rows that are gone, up to which one task sends them."""


class Databases(NamedTuple):
    """The databases and the Iceberg tables that may be read, and what decrypts the passwords of databases."""

    access: JdbcAccess = JdbcAccess()
    sealer: Sealer = Sealer()
    iceberg: IcebergAccess = IcebergAccess()


class Outputs(NamedTuple):
    """The broker to whose topics the ingest API writes, and the events about it."""

    brokers: str = ""
    lineage: Lineage = OFF


class Postponed(Exception):
    """An import that cannot go on now: the text is the reason. The next run of the job continues it."""


class ImportJob:
    """Runs imports one after another. `roots`: the URIs below which files may be read; `databases`: those that may be read."""

    def __init__(
        self,
        spark: SparkSession,
        store: ImportStore,
        target: Callable[[str], Target],
        roots: Sequence[str],
        databases: "Databases | None" = None,
        outputs: "Outputs | None" = None,
    ) -> None:
        """`target`: returns the target of a workspace."""
        self._outputs = outputs or Outputs()
        self._spark = spark
        self._store = store
        self._target = target
        self._roots = roots
        self._databases = databases or Databases()

    def run(self, is_stopping: Callable[[], bool]) -> Counter[str]:
        """Run each import that waits or was interrupted, the oldest first; return the number of imports by their state.

        An import that cannot go on now waits again, with the reason, and does not keep the others from running: `waiting` in the
        result. Raises: DatabaseUnavailable; the next run continues then.
        """
        states: Counter[str] = Counter()
        postponed: set[Place] = set()
        while not is_stopping():
            waiting = [one for one in self._store.unfinished() if one[0] not in postponed]
            if not waiting:
                break
            place, request = waiting[0]
            with self._outputs.lineage.run(job_of(place, request), partial(self._flow, request), is_stopping) as lineage:
                try:
                    state, message = self._run(place, request, lineage)
                except (Postponed, Py4JJavaError) as error:
                    if is_stopping():
                        lineage.abort()
                        break  # the tasks were cancelled: the import stays as it is
                    postponed.add(place)
                    reason = (
                        str(error) if isinstance(error, Postponed) else f"a task of Spark failed: {error.java_exception.toString()}"
                    )
                    state, message = WAITING, f"{reason[:1000]}: the job tries again"
                lineage.knows(partial(self._sent, place, request))
                if state != DONE:
                    lineage.fail(f"{state}: {message}")
            if self._store.set_state(place, state, message):
                states[state] += 1
                log(__name__).info("import_ended", workspace=place.workspace, key=place.key, state=state, message=message)
        return states

    def stop(self) -> None:
        """Cancel the tasks in progress, from another thread. `run` raises then."""
        self._spark.sparkContext.cancelAllJobs()

    def _flow(self, request: ImportRequest) -> Flow:
        return Flow(inputs_of(request), outputs_of(request, self._outputs.brokers))

    def _sent(self, place: Place, request: ImportRequest) -> Flow:
        rows = sum(one.accepted for one in self._store.progress(place).values())
        return Flow((), tuple(one._replace(rows=rows) for one in outputs_of(request, self._outputs.brokers)))

    def _run(self, place: Place, request: ImportRequest, lineage: RunLineage) -> tuple[str, str | None]:
        if not self._store.set_state(place, RUNNING):
            return RUNNING, None  # cancelled in between
        target = self._target(place.workspace)
        if (problem := target.problem(request)) is not None:
            return FAILED, problem
        if request.source is not None:
            return self._run_table(place, request, target, lineage)
        try:
            files = found_files(request.uri, request.format, self._roots)
        except UnusableFile as error:
            return FAILED, str(error)
        except SourceUnavailable as error:
            raise Postponed(str(error)) from error
        tasks = self._tasks(place, request, files)
        if tasks:
            run = partial(run_task, target)
            results = self._spark.sparkContext.parallelize(tasks, 1 if has_one_writer(request) else len(tasks)).map(run).collect()
            if (reason := _refused(results)) is not None:
                return FAILED, reason
        names = {file.name for file in files}
        return _ended({name: one for name, one in self._store.progress(place).items() if name in names})

    def _run_table(self, place: Place, request: ImportRequest, target: Target, lineage: RunLineage) -> tuple[str, str | None]:
        """Read the rows again: those that a run that was killed has sent have the same message ids."""
        assert request.source is not None  # noqa: S101 - the caller has checked it
        last = self._store.cursor(place) if request.source.cursor_column is not None else None
        seen_at_ms = wall_clock_ms() if request.finds_deletions() else None
        self._store.forget_run(place)
        snapshot: str | None = None
        try:
            if request.format == "iceberg":
                table = IcebergTable(self._spark, request, self._databases.iceberg)
                snapshot = self._pinned(place, table)
                lineage.knows(partial(table.flow, snapshot))
                if snapshot == self._store.last_snapshot(place):
                    return DONE, None  # every row of it is imported
                rows = table.rows(snapshot, last)
            else:
                rows = self._rows_of_database(place, request, last)
            rows = self._in_order(rows, request)
            task = TableTask(place, request, seen_at_ms, rows.text_columns, rows.added)
            results = self._read(rows, partial(run_part, target, task))
        except (UnusableFile, Unreadable) as error:
            return FAILED, str(error)
        except SourceUnavailable as error:
            raise Postponed(str(error)) from error
        if (reason := _refused(results)) is not None:
            return FAILED, reason
        return self._end_table(place, request, target, _TableRead(results, last, seen_at_ms, snapshot))

    def _in_order(self, rows: TableRows, request: ImportRequest) -> TableRows:
        """Return the rows by pages if they are compared with what was sent, and in one partition for one writer."""
        source = request.source
        if source is None or source.mode != "full" or request.id_column is None:
            return rows._replace(frame=rows.frame.coalesce(1)) if has_one_writer(request) else rows
        tasks = max(self._spark.sparkContext.defaultParallelism, 1 if request.jdbc is None else request.jdbc.partitions)
        return in_order_of_ids(rows, request.id_column, id_of, 1 if has_one_writer(request) else tasks, PAGE_BYTES)

    def _end_table(self, place: Place, request: ImportRequest, target: Target, read: "_TableRead") -> tuple[str, str | None]:
        """Delete the rows that are gone, or store the cursor and the snapshot from which the next run reads on."""
        files = self._store.progress(place)
        state, message = _ended(files)
        if state != DONE or not all(one.complete for one in files.values()):
            return state, message
        if read.seen_at_ms is not None:
            state, message = self._run_deletions(place, request, target, read.seen_at_ms)
        elif request.source is not None and request.source.cursor_column is not None:
            position = greatest(one for one in (read.last, *(result.cursor for result in read.results)) if one is not None)
            if position is not None:
                self._store.set_cursor(place, position)
        if read.snapshot is not None and state == DONE:
            # A rejected row is tried again in the next run.
            is_imported = not any(one.rejected for one in self._store.progress(place).values())
            self._store.set_last_snapshot(place, read.snapshot if is_imported else None)
        return state, message

    def _pinned(self, place: Place, table: IcebergTable) -> str:
        """Return the snapshot of the run: a run that was interrupted goes on with its own."""
        pinned = self._store.pinned(place)
        if pinned is None:
            pinned = table.snapshot()
            self._store.pin(place, pinned)
        return pinned

    def _rows_of_database(self, place: Place, request: ImportRequest, last: str | None) -> TableRows:
        """Return the rows of a database. Raises: UnusableFile, SourceUnavailable, Unreadable."""
        assert request.jdbc is not None  # noqa: S101 - the import has the format jdbc
        password = request.jdbc.password
        if password is not None:
            password = self._databases.sealer.open(password, SecretPlace(*password_place(*place)))
        return opened_rows(self._spark, request, password, last, self._databases.access)

    def _run_deletions(self, place: Place, request: ImportRequest, target: Target, seen_at_ms: int) -> tuple[str, str | None]:
        """Set the traits of the rows to null, or remove their users, that this run, which has read all rows, has not read."""
        assert request.source is not None  # noqa: S101 - the caller has checked it
        context = self._spark.sparkContext
        stored = context.parallelize(range(BUCKETS), context.defaultParallelism).flatMap(partial(stored_rows, target, place))
        counts = stored.map(lambda row: presence_of(row[1], seen_at_ms)).countByValue()
        gone, left = counts["gone"], counts["present"]
        if gone > left and request.source.deletions != "any":
            nothing = _NOTHING_DELETED[request.kind]
            return FAILED, (
                f"all rows were imported, but {gone} are gone and {left} are left, so {nothing}: correct the "
                'source, or run the import once with {"deletions": "any"}'
            )
        if not gone:
            return DONE, None
        users: RDD[Sequence[StoredRow]]
        has_one_row = request.id_column in {request.user_column, request.product_column}
        if has_one_row:
            users = stored.filter(lambda row: presence_of(row[1], seen_at_ms) == "gone").map(lambda row: [row])
        else:
            # A user whose row has another id now keeps the traits of the new row.
            known = stored.filter(lambda row: row[1].user_id is not None)
            users = known.groupBy(lambda row: row[1].user_id).values().map(list)
        # The rows of different users may be in one page, which has one writer.
        if gone <= _ROWS_A_TASK or has_one_writer(request) or not has_one_row:
            users = users.coalesce(1)
        results = users.mapPartitionsWithIndex(partial(run_deleted, target, place, request, seen_at_ms)).collect()
        if (reason := _refused(results)) is not None:
            return FAILED, reason
        return _ended(self._store.progress(place))

    def _read(self, rows: TableRows, run: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]) -> list[TaskResult]:
        """Run the tasks. Raises: UnusableFile, SourceUnavailable."""
        try:
            return [TaskResult(*row) for row in rows.frame.mapInArrow(run, RESULT).collect()]
        except Py4JJavaError as error:
            raise_translated(self._spark, error)
            raise

    def _tasks(self, place: Place, request: ImportRequest, files: Sequence[FoundFile]) -> list[FileTask]:
        known, tasks = self._store.progress(place), []
        for file in files:
            progress = known.get(file.name)
            if progress is None or progress.version != file.version:
                if progress is not None:
                    self._store.forget_rejects(place, file.name)
                progress = Progress(file.version)
                self._store.set_progress(place, file.name, file.size_bytes, progress)
            if not progress.complete:
                tasks.append(FileTask(place, request, file, progress))
        return tasks


class _TableRead(NamedTuple):
    """What a run has read of a database or a table.

    `last`: the cursor of the run before; `seen_at_ms`: the instant that was noted at each row, None if rows that are gone stay;
    `snapshot`: of an Iceberg table.
    """

    results: Sequence[TaskResult]
    last: str | None
    seen_at_ms: int | None
    snapshot: str | None


def _refused(results: Iterable[TaskResult]) -> str | None:
    """Return why the import fails; None if no task was refused. Raises: Postponed if a task has to wait."""
    found = list(results)
    refused = next((one.refused for one in found if one.refused is not None), None)
    unavailable = next((one.unavailable for one in found if one.unavailable is not None), None)
    if refused is None and unavailable is not None:
        raise Postponed(unavailable)
    return refused


def _ended(files: dict[str, Progress]) -> tuple[str, str | None]:
    failed = [f"{name}: {one.message}" for name, one in sorted(files.items()) if one.message is not None]
    if failed:
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        return FAILED, failed[0] + more
    return DONE, None
