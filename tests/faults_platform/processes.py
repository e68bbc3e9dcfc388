"""Faults of the processes of a running instance, and how long each part needs to be ready again. Everything by process id."""

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import httpx

from starling_local.instance import Instance, PartReport
from starling_local.stack.parts.part import HttpProbe, Part
from starling_local.stack.supervision.probes import is_ready
from starling_local.stack.supervision.process import Identity, is_alive, kill_group
from starling_local.stack.wiring import planned_parts
from tests.faults_platform.schedule import Fault, Wave

_DUTY_SECONDS: Final = 1.0
_RUNNING_SHARE: Final = 0.1
_POLL_SECONDS: Final = 0.2
_LONG: Final = frozenset({"stop", "hang"})
"""The hosts whose guests come one after the other; the guests of the others come at once."""
_LOG_BYTES: Final = 200_000


@dataclass(frozen=True)
class Durations:
    """Seconds of the faults. `gap_seconds`: between two guests.

    `ready_seconds`: until a part counts as late. `patience_seconds`: until it counts as one that stays away.
    """

    stop_seconds: float = 75.0
    slow_seconds: float = 10.0
    ready_seconds: float = 60.0
    patience_seconds: float = 240.0
    gap_seconds: tuple[float, float] = (1.0, 4.0)


@dataclass
class Injected:
    """One fault as it happened. `recovery_seconds`: by part, from the end of the cause until it was ready.

    The cause of a part ends with the last fault of the wave that hit it, or a part that it depends on. `others_seconds`: parts that
    were not hit and not ready either; they are with the host of the wave. `restarts`: of each part hit, by its supervisor, with the
    reasons: a part that was restarted before its broker may end again. `never`: parts that did not come back before the harness
    killed them.
    """

    fault: Fault
    wave: int
    at_seconds: float
    ended_at: float = 0.0
    recovery_seconds: dict[str, float] = field(default_factory=dict)
    others_seconds: dict[str, float] = field(default_factory=dict)
    restarts: dict[str, str] = field(default_factory=dict)
    never: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """Something that the run must not show, with the directory of its evidence, if there is any."""

    what: str
    at_seconds: float
    evidence: str = ""


def restart_reasons(log: str, name: str) -> list[str]:
    """Return why a part was restarted, in order, from lines of the supervisor's log."""
    return re.findall(rf"^\S+ {re.escape(name)}: (.*); starts again in ", log, re.MULTILINE)


class Processes:
    """The parts of an instance, as its supervisor reports them."""

    def __init__(self, instance: Instance, durations: Durations, evidence: Path, seed: int = 0) -> None:
        """`evidence`: the directory of the logs of parts that stay away."""
        self._instance = instance
        self._durations = durations
        self._evidence = evidence
        self._plan = {part.name: part for part in planned_parts(instance.data_dir, instance.options()) if not part.is_step}
        self._needs = _needs(planned_parts(instance.data_dir, instance.options()))
        self._dice = random.Random(f"{seed} gaps")
        self._gone: set[str] = set()
        """Parts that did not come back after the harness had killed them: the waves do not wait for them."""
        self.findings: list[Finding] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, without steps."""
        return tuple(self._plan)

    def inject(self, wave: Wave, number: int, began: float) -> list[Injected]:
        """Return when every part of the instance is ready again. `began`: of the run, monotonic.

        Parts that stay away for longer than the patience are findings. The harness kills them, so that the run goes on.
        """
        before, log_bytes = self._reports(), self._log_bytes()
        host = Injected(wave.host, number, round(time.monotonic() - began, 1))
        thread = threading.Thread(target=self._cause, args=(host, before), name="host", daemon=True)
        thread.start()
        injected = [host]
        for fault in wave.guests:
            time.sleep(self._dice.uniform(*self._durations.gap_seconds))  # sleep: faults that overlap begin at different moments
            guest = Injected(fault, number, round(time.monotonic() - began, 1))
            injected.append(guest)
            self._cause(guest, self._reports())
            if wave.host.kind in _LONG:
                self._await_guest(guest, wave.host, thread)
        thread.join()
        self._await_ready(injected, began)
        after, log = self._reports(), self._log(log_bytes)
        for one in injected:
            for name in one.fault.parts:
                if after[name].restarts > before[name].restarts:
                    one.restarts[name] = ", then ".join(restart_reasons(log, name)) or after[name].last_end
        return injected

    def _log_bytes(self) -> int:
        log = self._instance.log_file("supervisor")
        return log.stat().st_size if log.exists() else 0

    def _log(self, since: int) -> str:
        log = self._instance.log_file("supervisor")
        return log.read_bytes()[since:].decode(errors="replace") if log.exists() else ""

    def revive(self, away: Iterable[str]) -> list[str]:
        """Kill these parts, which their supervisor starts again; return those that are not ready after the patience."""
        left, mark = set(away), self._instance.options().instance_id
        for name, report in self._reports().items():
            identity = _identity(report)
            if name in left and identity is not None:
                kill_group(identity, mark)
        deadline = time.monotonic() + self._durations.patience_seconds
        while left and time.monotonic() < deadline:
            left -= set(self._ready({name: self._plan[name] for name in left}))
            time.sleep(_POLL_SECONDS)  # sleep: between two checks of the parts that are away
        return sorted(left)

    def wait_ready(self) -> list[str]:
        """Wait for every part; return those that are not ready after the patience."""
        probe = Injected(Fault("none", ()), 0, 0.0, ended_at=time.monotonic())
        return self._await_all([probe])

    def _cause(self, injected: Injected, reports: Mapping[str, PartReport]) -> None:
        fault = injected.fault
        hit = [identity for name in fault.parts if (identity := _identity(reports[name])) is not None]
        _ACTIONS[fault.kind](self, fault.parts, hit)
        injected.ended_at = time.monotonic()

    def _await_guest(self, guest: Injected, host: Fault, thread: threading.Thread) -> None:
        """Wait until the guest's parts are ready, or the host has ended. A part that depends on the host cannot be."""
        waiting = {name: self._plan[name] for name in guest.fault.parts if not self._needs[name] & set(host.parts)}
        while waiting and thread.is_alive():
            for name in self._ready(waiting):
                del waiting[name]
                guest.recovery_seconds[name] = round(time.monotonic() - guest.ended_at, 1)
            time.sleep(_POLL_SECONDS)  # sleep: between two checks of the parts that are away

    def _await_ready(self, injected: Sequence[Injected], began: float) -> None:
        away = self._await_all(injected)
        if not away:
            self._keep_late(injected)
            return
        for one in injected:
            one.never = [name for name in away if name in one.fault.parts]
        reports = self._reports()
        places = {name: self._keep(name, reports[name]) for name in away}
        again = self.revive(away)
        self._gone |= set(again)
        faults, at_seconds = " and ".join(str(one.fault) for one in injected), round(time.monotonic() - began, 1)
        for name in away:
            state = f"{reports[name].state} {reports[name].message} {reports[name].last_end}".strip()
            restart = "not even after a restart" if name in again else "ready after a restart"
            patience = f"not ready within {self._durations.patience_seconds:.0f} s"
            self.findings.append(
                Finding(f"{name} stayed away: {patience} of {faults} ({state}); {restart}", at_seconds, places[name])
            )

    def _await_all(self, injected: Sequence[Injected]) -> list[str]:
        """Note when each part is ready; return those that stay away."""
        since = {name: self._cause_ended(name, injected) for name in self._plan}
        deadline = time.monotonic() + self._durations.patience_seconds
        waiting = {name: part for name, part in self._plan.items() if name not in self._gone}
        is_first = True
        while waiting and time.monotonic() < deadline:
            for name in self._ready(waiting):
                del waiting[name]
                _recovered(injected, name, max(0.0, round(time.monotonic() - since[name], 1)), was_ready=is_first)
            is_first = False
            if waiting:
                time.sleep(_POLL_SECONDS)  # sleep: between two checks of the parts that are away
        return sorted(waiting)

    def _cause_ended(self, name: str, injected: Sequence[Injected]) -> float:
        ends = [one.ended_at for one in injected if {name, *self._needs[name]} & set(one.fault.parts)]
        return max(ends, default=max(one.ended_at for one in injected))

    def _keep_late(self, injected: Sequence[Injected]) -> None:
        """Store what is known of the parts that were ready only after the bound."""
        seconds = [(name, taken) for one in injected for name, taken in {**one.recovery_seconds, **one.others_seconds}.items()]
        late = sorted({name for name, taken in seconds if taken > self._durations.ready_seconds})
        if late:
            reports = self._reports()
            for name in late:
                self._keep(name, reports[name])

    def _keep(self, name: str, report: PartReport) -> str:
        """Store what is known of a part that stays away or came late; return the directory."""
        place = self._evidence / f"{len(list(self._evidence.glob('*'))):02}-{name}"
        place.mkdir(parents=True, exist_ok=True)
        for source in (name, "supervisor"):
            with suppress(OSError), self._instance.log_file(source).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
                (place / f"{source}.log").write_bytes(log.read())
        part = self._plan[name]
        answers = [f"{probe.url}: {_answer(probe.url)}" for probe in (part.probe, part.alive) if isinstance(probe, HttpProbe)]
        (place / "state.txt").write_text("\n".join([str(report), *answers]) + "\n")
        return str(place)

    def _kill(self, _names: Sequence[str], hit: Sequence[Identity]) -> None:
        for identity in hit:
            if is_alive(identity):
                os.kill(identity.pid, signal.SIGKILL)
        self._wait_until(lambda: not any(is_alive(identity) for identity in hit))

    def _stop(self, _names: Sequence[str], hit: Sequence[Identity]) -> None:
        _signal_groups(hit, signal.SIGSTOP)
        time.sleep(self._durations.stop_seconds)  # sleep: the duration of the fault
        _signal_groups(hit, signal.SIGCONT)

    def _hang(self, names: Sequence[str], hit: Sequence[Identity]) -> None:
        _signal_groups(hit, signal.SIGSTOP)
        if not self._wait_until(lambda: not any(is_alive(identity) for identity in hit)):
            seconds = self._durations.patience_seconds
            self.findings.append(Finding(f"{' + '.join(names)}: the supervisor did not end what hung within {seconds:.0f} s", 0.0))
            _signal_groups(hit, signal.SIGKILL)

    def _slow(self, names: Sequence[str], _hit: Sequence[Identity]) -> None:
        until = time.monotonic() + self._durations.slow_seconds
        while time.monotonic() < until:
            reports = self._reports()  # a part that ended meanwhile is another process now
            present = [identity for name in names if (identity := _identity(reports[name])) is not None]
            _signal_groups(present, signal.SIGSTOP)
            time.sleep(_DUTY_SECONDS * (1 - _RUNNING_SHARE))  # sleep: the duration of the fault
            _signal_groups(present, signal.SIGCONT)
            time.sleep(_DUTY_SECONDS * _RUNNING_SHARE)  # sleep: the duration of the fault

    def _ready(self, parts: Mapping[str, Part]) -> list[str]:
        """Parts that run, and answer now; the report alone may be some seconds old."""
        reports = self._reports()
        running = {name for name in parts if (identity := _identity(reports[name])) is not None and is_alive(identity)}
        return [name for name, part in parts.items() if name in running and is_ready(part.probe)]

    def _reports(self) -> dict[str, PartReport]:
        report = self._instance.report()
        assert report is not None
        return {part.name: part for part in report.parts}

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self._durations.patience_seconds
        while not condition():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True


_ACTIONS: Mapping[str, Callable[[Processes, Sequence[str], Sequence[Identity]], None]] = {
    "kill": Processes._kill,
    "stop": Processes._stop,
    "hang": Processes._hang,
    "slow": Processes._slow,
}
"""Each brings a fault about and returns when its cause has ended."""


def as_record(one: Injected) -> dict[str, object]:
    """Return a fault in the form of the checkpoint."""
    return {name: value for name, value in asdict(one).items() if name != "ended_at"}


def from_record(record: Mapping[str, object]) -> Injected:
    """Return a fault of a checkpoint."""
    fields: dict[str, object] = dict(record)
    fault: object = fields.pop("fault")
    assert isinstance(fault, dict)
    return Injected(Fault(fault["kind"], tuple(fault["parts"])), **fields)  # type: ignore[arg-type]


def _recovered(injected: Sequence[Injected], name: str, seconds: float, *, was_ready: bool) -> None:
    hit = [one for one in injected if name in one.fault.parts]
    for one in hit:
        one.recovery_seconds.setdefault(name, seconds)
    if not hit and not was_ready:
        injected[0].others_seconds[name] = seconds


def _needs(parts: Iterable[Part]) -> dict[str, set[str]]:
    """Return for each part those on which it depends, directly or not; the order is that of the starts."""
    found: dict[str, set[str]] = {}
    for part in parts:
        found[part.name] = {name for direct in part.depends_on for name in (direct, *found[direct])}
    return found


def _answer(url: str) -> str:
    try:
        answer = httpx.get(url, timeout=5, trust_env=False)
    except httpx.HTTPError as error:
        return repr(error)
    return f"{answer.status_code} {answer.text[:2_000]}"


def _identity(part: PartReport) -> Identity | None:
    return None if part.pid is None or part.started_at is None else Identity(part.pid, part.started_at)


def _signal_groups(hit: Iterable[Identity], number: signal.Signals) -> None:
    """Each part leads a group of its own; a JVM of Spark's and its Python workers are in it."""
    for identity in hit:
        if is_alive(identity):
            with suppress(ProcessLookupError):
                os.killpg(identity.pid, number)
