"""Faults of the processes of a running instance, and how long each part needs to be ready again. Everything by process id."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from starling_local.instance import Instance, PartReport
from starling_local.stack.parts.part import Part
from starling_local.stack.supervision.probes import is_ready
from starling_local.stack.supervision.process import Identity, is_alive
from starling_local.stack.wiring import planned_parts
from tests.faults_platform.schedule import Fault

_DUTY_SECONDS = 1.0
_RUNNING_SHARE = 0.1
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Durations:
    """Seconds of the faults. `patience_seconds`: until a part counts as one that never came back."""

    stop_seconds: float = 75.0
    slow_seconds: float = 30.0
    patience_seconds: float = 600.0


@dataclass
class Injected:
    """One fault as it happened. `recovery_seconds`: by part, from the end of the cause until it was ready.

    `restarts`: of each part hit, by its supervisor, with the reason of the last one.
    """

    fault: Fault
    at_seconds: float
    recovery_seconds: dict[str, float] = field(default_factory=dict)
    restarts: dict[str, str] = field(default_factory=dict)
    never: list[str] = field(default_factory=list)


class Processes:
    """The parts of an instance, as its supervisor reports them."""

    def __init__(self, instance: Instance, durations: Durations) -> None:
        self._instance = instance
        self._durations = durations
        self._plan = {part.name: part for part in planned_parts(instance.data_dir, instance.options()) if not part.is_step}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._plan)

    def inject(self, fault: Fault, began: float) -> Injected:
        """Returns when every part of the instance is ready again, or the patience is over. `began`: of the run, monotonic."""
        before = self._reports()
        injected = Injected(fault, round(time.monotonic() - began, 1))
        hit = [identity for name in fault.parts if (identity := _identity(before[name])) is not None]
        ended_at = _ACTIONS[fault.kind](self, fault.parts, hit)
        self._await_ready(injected, ended_at)
        after = self._reports()
        for name in fault.parts:
            if after[name].restarts > before[name].restarts:
                injected.restarts[name] = after[name].last_end
        return injected

    def wait_ready(self) -> None:
        """Raises: AssertionError when not every part is ready within the patience."""
        probe = Injected(Fault("none", self.names), 0.0)
        self._await_ready(probe, time.monotonic())
        assert not probe.never, f"never ready: {probe.never}"

    def _kill(self, _names: Sequence[str], hit: Sequence[Identity]) -> float:
        for identity in hit:
            if is_alive(identity):
                os.kill(identity.pid, signal.SIGKILL)
        _wait_until(lambda: not any(is_alive(identity) for identity in hit), self._durations.patience_seconds)
        return time.monotonic()

    def _stop(self, _names: Sequence[str], hit: Sequence[Identity]) -> float:
        _signal_groups(hit, signal.SIGSTOP)
        time.sleep(self._durations.stop_seconds)  # sleep: the duration of the fault
        _signal_groups(hit, signal.SIGCONT)
        return time.monotonic()

    def _hang(self, _names: Sequence[str], hit: Sequence[Identity]) -> float:
        _signal_groups(hit, signal.SIGSTOP)
        _wait_until(lambda: not any(is_alive(identity) for identity in hit), self._durations.patience_seconds)
        return time.monotonic()

    def _slow(self, names: Sequence[str], _hit: Sequence[Identity]) -> float:
        until = time.monotonic() + self._durations.slow_seconds
        while time.monotonic() < until:
            reports = self._reports()  # a part that ended meanwhile is another process now
            present = [identity for name in names if (identity := _identity(reports[name])) is not None]
            _signal_groups(present, signal.SIGSTOP)
            time.sleep(_DUTY_SECONDS * (1 - _RUNNING_SHARE))  # sleep: the duration of the fault
            _signal_groups(present, signal.SIGCONT)
            time.sleep(_DUTY_SECONDS * _RUNNING_SHARE)  # sleep: the duration of the fault
        return time.monotonic()

    def _await_ready(self, injected: Injected, since: float) -> None:
        deadline = since + self._durations.patience_seconds
        waiting = dict(self._plan)
        while waiting and time.monotonic() < deadline:
            for name in self._ready(waiting):
                del waiting[name]
                if name in injected.fault.parts:
                    injected.recovery_seconds[name] = round(time.monotonic() - since, 1)
            if waiting:
                time.sleep(_POLL_SECONDS)  # sleep: between two checks of the parts that are away
        injected.never = sorted(waiting)

    def _ready(self, parts: Mapping[str, Part]) -> list[str]:
        """Parts that run, and answer now; the report alone may be some seconds old."""
        reports = self._reports()
        running = {name for name in parts if (identity := _identity(reports[name])) is not None and is_alive(identity)}
        return [name for name, part in parts.items() if name in running and is_ready(part.probe)]

    def _reports(self) -> dict[str, PartReport]:
        report = self._instance.report()
        assert report is not None
        return {part.name: part for part in report.parts}


_ACTIONS: Mapping[str, Callable[[Processes, Sequence[str], Sequence[Identity]], float]] = {
    "kill": Processes._kill,
    "stop": Processes._stop,
    "hang": Processes._hang,
    "slow": Processes._slow,
}
"""Each brings a fault about and returns when its cause ended (monotonic)."""


def _identity(part: PartReport) -> Identity | None:
    return None if part.pid is None or part.started_at is None else Identity(part.pid, part.started_at)


def _signal_groups(hit: Iterable[Identity], number: signal.Signals) -> None:
    """Each part leads a group of its own; a JVM of Spark's and its Python workers are in it."""
    for identity in hit:
        if is_alive(identity):
            with suppress(ProcessLookupError):
                os.killpg(identity.pid, number)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.05)
