"""Core: the runs of a job, as events. What describes a run is called while events are emitted only, and its errors are logged.

A run has an event at its start and one at its end, and a streaming one at most one a minute in between. No method raises, waits, or
has an effect without an address.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from threading import Lock
from typing import Final, NamedTuple, TypeAlias
from uuid import uuid4

from starling_common.telemetry.logs import log
from starling_spark.lineage.datasets import Flow, merged
from starling_spark.lineage.redaction import without_literals, without_secrets

_PROGRESS_SECONDS: Final = 60.0


class State(StrEnum):
    """The state of a run that an event reports, as the specification names it."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


class JobName(NamedTuple):
    """A job. `sql`: its statement, with literals."""

    name: str
    is_streaming: bool = False
    sql: str | None = None


class Event(NamedTuple):
    """An event of a run. `nominal_at`: the instant for which the run computes; `error`: without secrets."""

    state: State
    at: datetime
    run: str
    job: JobName
    flow: Flow
    error: str | None = None
    nominal_at: datetime | None = None


Describe: TypeAlias = Callable[[], Flow]
"""Describes what a run reads and writes. It may raise."""


class RunLineage:
    """One run. Threads may share it."""

    def __init__(
        self, emit: Callable[[Event], None], job: JobName, secrets: Iterable[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._job = job
        self._secrets = secrets
        self._clock = clock
        self._id = str(uuid4())
        self._flow = Flow()
        self._state = State.COMPLETE
        self._error: str | None = None
        self._nominal_at: datetime | None = None
        self._reported: float | None = None
        self._lock = Lock()

    def knows(self, describe: Describe) -> None:
        """Add what the run reads and writes. A later description of a dataset completes the earlier one."""
        try:
            found = describe()
        except Exception as error:  # noqa: BLE001 - a run never fails because of its description
            log(__name__).warning("lineage_not_described", job=self._job.name, error=without_secrets(str(error), self._secrets))
            return
        with self._lock:
            self._flow = Flow(*(merged(*pair) for pair in zip(self._flow, found, strict=True)))

    def computes(self, at_ms: int) -> None:
        """Set the instant for which the run computes, epoch ms. An instant that no calendar has is left out."""
        with suppress(ValueError, OverflowError, OSError):
            self._nominal_at = datetime.fromtimestamp(at_ms / 1000, UTC)

    def wrote(self, rows: Mapping[str, int]) -> None:
        """Add rows to those that the run has written. `rows`: by `short` of an output."""
        with self._lock:
            added = [one._replace(rows=(one.rows or 0) + rows[one.short]) for one in self._flow.outputs if one.short in rows]
            self._flow = self._flow._replace(outputs=merged(self._flow.outputs, added))

    def reached(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Set the positions of a streaming run, and report them if the last report is a minute old. `ends`: as `groups.Ends`."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in ends.items():
            by_topic.setdefault(topic, {})[partition] = offset
        with self._lock:
            moved = [one._replace(positions=by_topic[one.name]) for one in self._flow.inputs if one.name in by_topic]
            self._flow = self._flow._replace(inputs=merged(self._flow.inputs, moved))
        now = self._clock()
        if self._reported is None or now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            self.report(State.RUNNING)

    def fail(self, reason: object) -> None:
        """Let the run end as failed. `reason`: an error or its text; what can be a secret is left out."""
        text = str(reason)
        if isinstance(reason, BaseException):
            text = f"{type(reason).__name__}: {text}" if text else type(reason).__name__
        self._state, self._error = State.FAIL, without_secrets(text, self._secrets)

    def abort(self) -> None:
        """Let the run end as interrupted. Another run continues it."""
        self._state, self._error = State.ABORT, None

    def report(self, state: State | None = None) -> None:
        """Emit an event; without `state` the last one."""
        is_last = state is None
        with self._lock:
            flow = self._flow
        error = self._error if is_last else None
        self._emit(Event(state or self._state, datetime.now(UTC), self._id, self._job, flow, error, self._nominal_at))


class Lineage:
    """The runs of a process. Without `emit` they have no effect. `secrets`: texts that no event contains."""

    def __init__(self, emit: Callable[[Event], None] | None = None, secrets: Iterable[str] = ()) -> None:
        self._emit = emit
        self._secrets = frozenset(secrets)

    @contextmanager
    def run(self, job: JobName, describe: Describe = Flow, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[RunLineage]:
        """Emit the start of a run, yield it, and emit its end: an error of the block fails it, or aborts it while `is_stopping`."""
        if self._emit is None:
            yield _Nothing(lambda _: None, job, ())
            return
        run = RunLineage(self._emit, job._replace(sql=_shown(job.sql)), self._secrets)
        run.knows(describe)
        run.report(State.START)
        try:
            yield run
        except BaseException as error:
            if is_stopping() or not isinstance(error, Exception):
                run.abort()
            else:
                run.fail(error)
            raise
        finally:
            run.report()


def _shown(sql: str | None) -> str | None:
    try:
        return None if sql is None else without_literals(sql)
    except Exception as error:  # noqa: BLE001 - the statement may still run
        log(__name__).warning("lineage_not_described", error=type(error).__name__)
        return None


class _Nothing(RunLineage):
    """A run without events: nothing is described."""

    def knows(self, describe: Describe) -> None:
        pass

    def wrote(self, rows: Mapping[str, int]) -> None:
        pass

    def reached(self, ends: Mapping[tuple[str, int], int]) -> None:
        pass


OFF: Final = Lineage()
"""No events."""
