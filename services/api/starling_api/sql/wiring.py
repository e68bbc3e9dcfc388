"""Wiring: the runs of what is defined in SQL, and the threads that queue them and start their Spark job, from the settings."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from starling_api.definitions.kinds.kinds import EVENT_TYPES, TRAITS, VIEWS
from starling_api.definitions.repository import CassandraDefinitions
from starling_api.jobs.runner import FAILURES, Runner
from starling_api.jobs.wiring import submitter_of
from starling_api.settings import ApiSettings
from starling_api.sql.runs import SqlRuns
from starling_api.sql.store import CassandraRuns
from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_rules.sql.runs import RUNNING, WAITING

_POLL_SECONDS: Final = 5.0


class SqlKinds(NamedTuple):
    """The runs of each kind that Spark runs in SQL."""

    traits: SqlRuns
    views: SqlRuns
    event_types: SqlRuns


def build_sql_runs(settings: ApiSettings, database: Database, definitions: CassandraDefinitions) -> SqlKinds:
    """Return the runs of all workspaces."""
    is_started = settings.sql_traits_runner != "none"
    return SqlKinds(
        *(
            SqlRuns(CassandraRuns(database, table), definitions, wall_clock_ms, is_started=is_started, kind=kind)
            for kind, table in ((TRAITS, "sql_traits"), (VIEWS, "sql_views"), (EVENT_TYPES, "event_type_checks"))
        )
    )


class FailedChecks:
    """The gauge of failed checks. A series that was reported once is 0 when no check of it fails."""

    def __init__(self, metrics: Metrics) -> None:
        self._gauge = metrics.gauge("starling_api_failed_checks")
        self._reported: set[tuple[str, str, str]] = set()

    def report(self, kinds: Sequence[SqlRuns]) -> None:
        """Set the gauge to the checks that failed in the last runs of these kinds. Raises: DatabaseUnavailable."""
        failed = {
            (workspace, one.kind.name, severity): count
            for one in kinds
            for (workspace, severity), count in one.failed_checks().items()
        }
        self._reported |= failed.keys()
        for labels in self._reported:
            self._gauge.labels(*labels).set(failed.get(labels, 0))


class SqlService:
    """Queues runs when they are due, and starts the job while one waits or was interrupted.

    Every API process does so. A lightweight transaction decides which of them queues a run. The job is not started here if an
    operator starts it.
    """

    def __init__(self, settings: ApiSettings, kinds: Sequence[SqlRuns], metrics: Metrics) -> None:
        self._settings = settings
        self._kinds = kinds
        self._gauge = metrics.gauge("starling_api_sql_trait_runs")
        self._failed_checks = FailedChecks(metrics)
        self._failures = metrics.gauge(FAILURES)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sql-traits", daemon=True)
        self._unfinished = 0
        self._runner: Runner | None = None

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()
        submitter = submitter_of(self._settings, "sql_traits")
        if submitter is not None:
            self._runner = Runner("sql_traits", submitter, lambda: self._unfinished > 0, self._failures, _POLL_SECONDS)
            self._runner.start()

    def stop(self) -> None:
        """Stop the threads, and end a job that depends on this process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2)  # it may wait for an unreachable database and then ends with the process
        if self._runner is not None:
            self._runner.stop()

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects: a thread has ended."""
        ended = self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set()
        return {
            "sql trait schedules": "the thread has ended: restart this process" if ended else None,
            "sql trait runner": None if self._runner is None else self._runner.problem(),
        }

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                unfinished = sum((Counter(one.queue_due()) for one in self._kinds), Counter[str]())
                self._failed_checks.report(self._kinds)
            except DatabaseUnavailable as error:
                log(__name__).warning("sql_traits_not_queued", error=str(error))
            else:
                self._unfinished = unfinished.total()
                for state in (WAITING, RUNNING):
                    self._gauge.labels(state).set(unfinished[state])
            self._stopping.wait(_POLL_SECONDS)
