"""Edge: starts the backfill where a segment waits for one; one job at a time for an installation."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from starling_common.logs import log
from starling_rules.definitions import Definitions
from starling_rules.ledger import CANCELLED, Run

_LOOK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = (5.0, 30.0, 300.0)
"""After a job that failed, once, twice, and more often: another start at once would fail alike."""


class Submitter(Protocol):
    """Where jobs run."""

    def is_running(self) -> bool:
        """Whether the job that was started last, by whomever, is still at work. Raises: OSError."""

    def has_failed(self) -> bool:
        """Whether it ended in failure. Raises: OSError."""

    def start(self) -> None:
        """Start one; nothing where one is at work. Raises: OSError."""

    def stop(self) -> None:
        """The API ends: a job that cannot live without it ends, too."""


@dataclass
class Runner:
    """A thread that looks. `definitions`, `newest_run`: as the topics tell them."""

    submitter: Submitter
    definitions: Callable[[], Definitions]
    newest_run: Callable[[], Run | None]
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failures: int = 0
    _not_before: float = 0.0
    _has_noted: bool = False
    """Of the job that was started last, whether its failure was."""

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._run, name="backfill-runner", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.submitter.stop()

    def look(self, now: float) -> None:
        """Start a job if there is something to do for it. `now`: monotonic seconds. Raises: OSError."""
        if self.submitter.is_running() or now < self._not_before:
            return
        if not is_needed(self.definitions(), self.newest_run()):
            self._failures = 0
            return
        if self.submitter.has_failed() and not self._has_noted:
            self._has_noted = True
            self._failures += 1
            self._not_before = now + _PATIENCE_SECONDS[min(self._failures, len(_PATIENCE_SECONDS)) - 1]
            log(__name__).warning("backfill_failed", failures=self._failures)
            return
        self.submitter.start()
        self._has_noted = False
        log(__name__).info("backfill_submitted")

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                self.look(time.monotonic())
            except OSError as error:
                log(__name__).warning("backfill_not_submitted", error=str(error))


def is_needed(definitions: Definitions, newest: Run | None) -> bool:
    """Whether a segment waits, and nobody has said of just these that it shall not be done."""
    awaited = definitions.awaited()
    was_cancelled = newest is not None and newest.requested == CANCELLED and dict(newest.definitions) == awaited
    return bool(awaited) and not was_cancelled
