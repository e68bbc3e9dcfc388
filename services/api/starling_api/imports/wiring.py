"""Wiring: the imports, and the thread that queues them by their schedules and starts the Spark job, from the settings."""

import threading
from collections.abc import Callable
from typing import Final

from starling_api.imports.imports import Imports
from starling_api.imports.store import CassandraImports
from starling_api.jobs.runner import FAILURES, Runner
from starling_api.jobs.wiring import submitter_of
from starling_api.settings import ApiSettings
from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.security.sealing import Sealer
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms

_POLL_SECONDS: Final = 2.0


def build_imports(
    settings: ApiSettings,
    database: Database,
    sealer: Sealer,
    zone_of: Callable[[str], str],
    has_list: Callable[[str, str], bool],
) -> Imports:
    """Return the imports of all workspaces; the last three as in `Imports`."""
    is_started = settings.imports_runner != "none"
    return Imports(CassandraImports(database), wall_clock_ms, is_started, sealer, zone_of, has_list)


class ImportService:
    """Queues imports when they are due, and starts the job while one waits or was interrupted.

    Every API process does so. A lightweight transaction decides which of them queues a run. The job is not started here if an
    operator starts it.
    """

    def __init__(self, settings: ApiSettings, imports: Imports, metrics: Metrics) -> None:
        self._settings = settings
        self._imports = imports
        self._gauge = metrics.gauge("starling_api_imports")
        self._failures = metrics.gauge(FAILURES)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="import-schedules", daemon=True)
        self._runner: Runner | None = None

    def start(self) -> None:
        """Start to look for imports."""
        submitter = submitter_of(self._settings, "imports")
        if submitter is None:
            self._thread.start()
        else:
            self._runner = Runner("imports", submitter, self._is_needed, self._failures, _POLL_SECONDS)
            self._runner.start()

    def stop(self) -> None:
        """Stop to look for imports, and end a job that depends on this process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2)  # it may wait for an unreachable database and then ends with the process
        if self._runner is not None:
            self._runner.stop()

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects: the thread has ended."""
        ended = self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set()
        return {
            "import schedules": "the thread has ended: restart this process" if ended else None,
            "import runner": None if self._runner is None else self._runner.problem(),
        }

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._is_needed()
            except DatabaseUnavailable as error:
                log(__name__).warning("imports_not_queued", error=str(error))
            self._stopping.wait(_POLL_SECONDS)

    def _is_needed(self) -> bool:
        """Queue what is due, and return whether an import waits or runs. Raises: DatabaseUnavailable."""
        unfinished = self._imports.queue_due()
        for state, count in unfinished.items():
            self._gauge.labels(state).set(count)
        return any(unfinished.values())
