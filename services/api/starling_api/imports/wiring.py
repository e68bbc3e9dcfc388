"""Wiring: the thread that starts the Spark job `imports` while an import waits, from the settings of the API."""

from starling_api.imports.store import CassandraImports
from starling_api.jobs.runner import FAILURES, Runner
from starling_api.jobs.wiring import submitter_of
from starling_api.settings import ApiSettings
from starling_common.cassandra.database import Database
from starling_common.telemetry.metrics import Metrics
from starling_rules.imports import RUNNING, WAITING

_POLL_SECONDS = 2.0


class ImportService:
    """Starts the job while an import waits or was interrupted. It does nothing if an operator starts the job."""

    def __init__(self, settings: ApiSettings, database: Database, metrics: Metrics) -> None:
        self._settings = settings
        self._store = CassandraImports(database)
        self._gauge = metrics.gauge("starling_api_imports")
        self._failures = metrics.gauge(FAILURES)
        self._runner: Runner | None = None

    def start(self) -> None:
        """Start to look for imports."""
        submitter = submitter_of(self._settings, "imports")
        if submitter is not None:
            self._runner = Runner("imports", submitter, self._is_needed, self._failures, _POLL_SECONDS)
            self._runner.start()

    def stop(self) -> None:
        """Stop to look for imports, and end a job that depends on this process."""
        if self._runner is not None:
            self._runner.stop()

    def failures(self) -> dict[str, str | None]:
        """Return the failed check by name that only a restart of the process corrects: the thread has ended."""
        return {"import runner": None if self._runner is None else self._runner.problem()}

    def _is_needed(self) -> bool:
        """Raises: DatabaseUnavailable."""
        found = self._store.unfinished()
        for state in (WAITING, RUNNING):
            self._gauge.labels(state).set(found[state])
        return bool(found)
