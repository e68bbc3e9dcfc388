"""Edge: submits a backfill job while a segment waits for one. An installation runs one job at a time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from starling_common.telemetry.logs import log
from starling_rules.definitions import Definitions
from starling_rules.ledger import CANCELLED, Run

_POLL_SECONDS: Final = 1.0
_BACKOFF_SECONDS: Final = (5.0, 30.0, 300.0)
"""Delay after the first, the second, and every further failure of a job."""


class Submitter(Protocol):
    """Submits jobs to the place where they run."""

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
    """A thread that checks for waiting segments. `definitions`, `newest_run`: the newest contents of their topics."""

    submitter: Submitter
    definitions: Callable[[], Definitions]
    newest_run: Callable[[], Run | None]
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failures: int = 0
    _not_before: float = 0.0
    _is_failure_counted: bool = False
    """Whether `_failures` includes the failure of the last job."""

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="backfill-runner", daemon=True)
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
        """Start a job if a segment waits for one. Units: `now` in monotonic seconds. Raises: OSError."""
        if self.submitter.is_running() or now < self._not_before:
            return
        if not is_needed(self.definitions(), self.newest_run()):
            self._failures = 0
            return
        if self.submitter.has_failed() and not self._is_failure_counted:
            self._is_failure_counted = True
            self._failures += 1
            self._not_before = now + _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS)) - 1]
            log(__name__).warning("backfill_failed", failures=self._failures)
            return
        self.submitter.start()
        self._is_failure_counted = False
        log(__name__).info("backfill_submitted")

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                self.check(time.monotonic())
            except OSError as error:
                log(__name__).warning("backfill_not_submitted", error=str(error))


def is_needed(definitions: Definitions, newest: Run | None) -> bool:
    """Return whether segments wait for a backfill and the newest run is not a cancelled one of the same segments."""
    awaited = definitions.awaited()
    was_cancelled = newest is not None and newest.requested == CANCELLED and dict(newest.definitions) == awaited
    return bool(awaited) and not was_cancelled
