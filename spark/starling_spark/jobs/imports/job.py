"""Edge: runs the imports that wait: the files of one import at the same time, a task of Spark each."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import httpx
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.settings import Cassandra
from starling_common.telemetry.logs import log
from starling_rules.imports import DONE, FAILED, RUNNING, WAITING, ImportRequest
from starling_spark.jobs.imports.file_import import import_file
from starling_spark.jobs.imports.reading import FoundFile, SourceUnavailable, found_files, rows_of
from starling_spark.jobs.imports.rows import RejectedRow, RowMapper, UnusableFile
from starling_spark.jobs.imports.sending import IngestRefused, IngestUnavailable, Sender
from starling_spark.jobs.imports.store import ImportStore, Place, Progress

_TIMEOUT_SECONDS = 60.0


class Target(NamedTuple):
    """Where the workers of Spark send rows and store progress."""

    cassandra: Cassandra
    ingest_url: str
    write_key: str


class FileTask(NamedTuple):
    """One file of an import, for a worker."""

    place: Place
    request: ImportRequest
    file: FoundFile
    progress: Progress


class Postponed(Exception):
    """An import that cannot go on now: the text is the reason. The next run of the job continues it."""


class ImportJob:
    """Runs imports one after another. `roots`: the URIs below which files may be read."""

    def __init__(
        self, spark: SparkSession, store: ImportStore, target: Callable[[str], Target | None], roots: Sequence[str]
    ) -> None:
        """`target`: returns the target of a workspace; None without a write key for it."""
        self._spark = spark
        self._store = store
        self._target = target
        self._roots = roots

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
            try:
                state, message = self._run(place, request)
            except (Postponed, Py4JJavaError) as error:
                if is_stopping():
                    break  # the tasks were cancelled: the import stays as it is
                postponed.add(place)
                reason = (
                    str(error) if isinstance(error, Postponed) else f"a task of Spark failed: {error.java_exception.toString()}"
                )
                state, message = WAITING, f"{reason[:1000]}: the job tries again"
            if self._store.set_state(place, state, message):
                states[state] += 1
                log(__name__).info("import_ended", workspace=place.workspace, key=place.key, state=state, message=message)
        return states

    def stop(self) -> None:
        """Cancel the tasks in progress, from another thread. `run` raises then."""
        self._spark.sparkContext.cancelAllJobs()

    def _run(self, place: Place, request: ImportRequest) -> tuple[str, str | None]:
        if not self._store.set_state(place, RUNNING):
            return RUNNING, None  # cancelled in between
        target = self._target(place.workspace)
        if target is None:
            return FAILED, "the workspace has no write key for imports: add one to STARLING_IMPORTS_WRITE_KEYS"
        try:
            files = found_files(request.uri, request.format, self._roots)
        except UnusableFile as error:
            return FAILED, str(error)
        except SourceUnavailable as error:
            raise Postponed(str(error)) from error
        tasks = self._tasks(place, request, files)
        if tasks:
            run = partial(_run_task, target)
            results = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(run).collect()
            if refused := [result.refused for result in results if result.refused is not None]:
                return FAILED, refused[0]
            if unavailable := [result.unavailable for result in results if result.unavailable is not None]:
                raise Postponed(unavailable[0])
        names = {file.name for file in files}
        return _ended({name: one for name, one in self._store.progress(place).items() if name in names})

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


class TaskResult(NamedTuple):
    """`refused`: why the import fails; `unavailable`: why its file has to wait; both None: the task has ended."""

    refused: str | None = None
    unavailable: str | None = None


class _FileLog:
    """A `Log` in Cassandra."""

    def __init__(self, store: ImportStore, place: Place, file: FoundFile) -> None:
        self._store = store
        self._place = place
        self._file = file

    def is_running(self) -> bool:
        return self._store.is_running(self._place)

    def add_rejects(self, rows: Sequence[RejectedRow]) -> None:
        self._store.add_rejects(self._place, self._file.name, rows)

    def set_progress(self, progress: Progress) -> None:
        self._store.set_progress(self._place, self._file.name, self._file.size_bytes, progress)


def _run_task(target: Target, task: FileTask) -> TaskResult:
    """Import a file in a worker of Spark."""
    request, file = task.request, task.file
    mapper = RowMapper(request, task.place.workspace, file.name)
    log_ = _FileLog(ImportStore(_database(target.cassandra)), task.place, file)
    rows = partial(rows_of, request, file.source, file.path)
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
        sender = Sender(client, target.ingest_url, target.write_key)
        try:
            import_file(request, mapper, rows, sender.send, log_, task.progress)
        except IngestRefused as error:
            return TaskResult(refused=f"{error}: correct STARLING_IMPORTS_WRITE_KEYS or STARLING_IMPORTS_INGEST_URL")
        except (IngestUnavailable, SourceUnavailable, DatabaseUnavailable) as error:
            return TaskResult(unavailable=str(error))
    return TaskResult()


def _ended(files: dict[str, Progress]) -> tuple[str, str | None]:
    failed = [f"{name}: {one.message}" for name, one in sorted(files.items()) if one.message is not None]
    if failed:
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        return FAILED, failed[0] + more
    return DONE, None


@cache
def _database(cassandra: Cassandra) -> Database:
    # The next file reuses the worker and its session.
    return Database(cassandra)
