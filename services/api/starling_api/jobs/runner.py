"""Edge: submits a Spark job while there is work for it. An installation runs one process of each job at a time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client import Gauge

from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.telemetry.logs import log

FAILURES: Final = "starling_api_job_failures"
_BACKOFF_SECONDS: Final = (5.0, 30.0, 300.0)
"""Delay after the first, the second, and every further failure of a job."""


class Submitter(Protocol):
    """Submits a job to the place where it runs."""

    def is_running(self) -> bool:
        """Return whether the last job of any API process still runs. Raises: OSError."""

    def has_failed(self) -> bool:
        """Return whether the last job failed. Raises: OSError."""

    def start(self) -> None:
        """Start a job unless one runs. Raises: OSError."""

    def stop(self) -> None:
        """End a job that depends on the API process, which is stopping."""


@dataclass
class Runner:
    """A thread that starts a job when `is_needed` returns True, which may raise OSError or DatabaseUnavailable.

    `job`: its name in the log and the metrics; `failures`: the gauge of consecutive failures by job. Units: `poll_seconds`.
    """

    job: str
    submitter: Submitter
    is_needed: Callable[[], bool]
    failures: Gauge
    poll_seconds: float = 1.0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failures: int = 0
    _not_before: float = 0.0
    _is_failure_counted: bool = False
    """Whether `_failures` includes the failure of the last job."""

    def start(self) -> None:
        """Start the thread."""
        self.failures.labels(self.job).set(0)
        self._thread = threading.Thread(target=self._run, name=f"{self.job}-runner", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and the submitter."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.submitter.stop()

    def problem(self) -> str | None:
        """Return the error of a thread that has ended unexpectedly."""
        ended = self._thread is not None and not self._thread.is_alive() and not self._stopping.is_set()
        return "the thread has ended: restart this process" if ended else None

    def check(self, now: float) -> None:
        """Start a job if there is work for it. Units: `now` in monotonic seconds. Raises: OSError, DatabaseUnavailable."""
        is_needed = self.is_needed()
        if self.submitter.is_running() or now < self._not_before:
            return
        if not is_needed:
            self._count(0)
            return
        if self.submitter.has_failed() and not self._is_failure_counted:
            self._is_failure_counted = True
            self._count(self._failures + 1)
            self._not_before = now + _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS)) - 1]
            log(__name__).warning("job_failed", job=self.job, failures=self._failures)
            return
        self.submitter.start()
        self._is_failure_counted = False
        log(__name__).info("job_submitted", job=self.job)

    def _count(self, failures: int) -> None:
        self._failures = failures
        self.failures.labels(self.job).set(failures)

    def _run(self) -> None:
        while not self._stopping.wait(self.poll_seconds):
            try:
                self.check(time.monotonic())
            except (OSError, DatabaseUnavailable) as error:
                log(__name__).warning("job_not_submitted", job=self.job, error=str(error))
