"""Adapter: keeps the parts of one instance running, in one thread; `life` makes the decisions."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import psutil

from starling_local.instance import Instance, Options, PartReport, Report
from starling_local.stack.parts.part import Part
from starling_local.stack.supervision.life import (
    CHECK_INTERVAL_SECONDS,
    RUNNING,
    SILENT_GRACE_SECONDS,
    Life,
    Phase,
    checked,
    due,
    ending,
    exited,
    hang,
    probe_interval_seconds,
    probed,
    started,
    waited,
)
from starling_local.stack.supervision.liveness import LivenessCheck
from starling_local.stack.supervision.probes import is_ready
from starling_local.stack.supervision.process import MARK, Identity, identify, kill_group, spawn, terminate, wait_gone

_TICK_SECONDS = 0.1
_LOG_CHECK_SECONDS = 5.0
LOG_CAP_BYTES = 32 * 1024 * 1024
"""A larger log is moved to `<name>.log.1`, so that a part uses at most twice this size."""

PlanParts = Callable[[Options], list[Part]]


class AlreadyRunningError(Exception):
    """Another supervisor holds this data directory."""


@dataclass
class Supervised:
    """A part with its state, process and liveness check in progress.

    Units: `next_probe`, `next_check` and `kill_at` in seconds of the monotonic clock; `kill_at` is None unless TERM was sent.
    """

    part: Part
    life: Life = field(default_factory=Life)
    process: subprocess.Popen[bytes] | None = None
    identity: Identity | None = None
    next_probe: float = 0.0
    check: LivenessCheck | None = None
    next_check: float = 0.0
    kill_at: float | None = None

    def forget_process(self) -> None:
        """Reset everything that belongs to the process, which has ended."""
        if self.check is not None:
            self.check.close()
        self.process = self.identity = self.check = self.kill_at = None


class Supervisor:
    """Runs the parts that `plan` returns for the instance's options until TERM or INT; HUP reads the options again.

    Raises: AlreadyRunningError if the data directory has a supervisor.
    """

    def __init__(self, instance: Instance, plan: PlanParts) -> None:
        self._instance = instance
        self._plan = plan
        self._options = instance.options()
        self._all: dict[str, Supervised] = {}
        self._me = identify(os.getpid())
        self._stop = False
        self._reload = True
        self._last_report: Report | None = None
        self._next_log_check = 0.0
        self._last_tick = time.monotonic()

    def run(self) -> None:
        """Run until TERM or INT; return when all parts have stopped."""
        with _locked(self._instance.lock_file):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_stop)
            signal.signal(signal.SIGHUP, self._on_reload)
            try:
                while not self._stop:
                    self._tick()
                    time.sleep(_TICK_SECONDS)
            finally:
                self._stop_parts(list(self._all))
                self._report()

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop = True

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self._reload = True

    def _tick(self) -> None:
        if self._reload:
            self._reload = False
            self._apply(self._instance.options())
        self._reap()
        lives = {name: supervised.life for name, supervised in self._all.items()}
        for part in due([s.part for s in self._all.values()], lives, time.monotonic()):
            self._start(self._all[part.name])
        self._check_liveness()
        self._probe_next()
        self._cap_logs()
        self._report()

    def _apply(self, options: Options) -> None:
        """Apply new options: stop removed and changed parts, and add new and changed parts as waiting."""
        wanted = {part.name: part for part in self._plan(options)}
        kept = {name: one for name, one in self._all.items() if name in wanted and wanted[name].runs_as(one.part)}
        self._stop_parts([name for name in self._all if name not in kept])
        for name, one in kept.items():
            one.part = wanted[name]
        self._all = {name: kept.get(name, Supervised(part)) for name, part in wanted.items()}
        self._options = options

    def _start(self, supervised: Supervised) -> None:
        part, now = supervised.part, time.monotonic()
        supervised.life = started(supervised.life, now)
        try:
            self._prepare(part)
            env = {**part.env, MARK: self._options.instance_id}
            supervised.process = spawn(part.command, env, self._instance.log_file(part.name))
            supervised.identity = identify(supervised.process.pid)
        except (OSError, subprocess.CalledProcessError, psutil.NoSuchProcess) as error:
            self._log_line(part.name, f"could not be started: {error}")
            supervised.life = exited(supervised.life, part, 127, now)
        supervised.next_probe = supervised.next_check = now

    def _prepare(self, part: Part) -> None:
        for directory in part.directories:
            directory.mkdir(parents=True, exist_ok=True)
        for path, text in part.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if part.prepare and not part.prepare.creates.exists():
            with self._instance.log_file(part.name).open("ab") as log:
                subprocess.run(part.prepare.command, stdout=log, stderr=log, check=True)

    def _reap(self) -> None:
        for supervised in self._all.values():
            code = supervised.process.poll() if supervised.process else None
            if code is None:
                continue
            if supervised.identity:  # Children of the process may still use its ports.
                kill_group(supervised.identity, self._options.instance_id)
            supervised.forget_process()
            supervised.life = exited(supervised.life, supervised.part, code, time.monotonic())
            if supervised.life.phase is Phase.BACKOFF:
                _log(f"{supervised.part.name}: {supervised.life.message}")

    def _check_liveness(self) -> None:
        """Continue the liveness check of each running part, and end the parts that hang. Never blocks."""
        now = time.monotonic()
        elapsed, self._last_tick = now - self._last_tick, now
        for supervised in self._all.values():
            if supervised.kill_at is not None and now >= supervised.kill_at and supervised.identity:
                kill_group(supervised.identity, self._options.instance_id)
            elif supervised.part.alive is not None and supervised.life.phase in RUNNING:
                self._check(supervised, elapsed, now)

    def _check(self, supervised: Supervised, elapsed: float, now: float) -> None:
        if supervised.check is None and now >= supervised.next_check and supervised.part.alive is not None:
            supervised.check = LivenessCheck(supervised.part.alive)
            supervised.next_check = now + CHECK_INTERVAL_SECONDS
        result = None if supervised.check is None else supervised.check.poll()
        if result is not None:
            supervised.check = None
        if result is not None and result.answered:
            supervised.life = checked(supervised.life, result.failure)
        elif supervised.check is not None or result is not None or supervised.life.silent_seconds:
            supervised.life = waited(supervised.life, elapsed)
        reason = hang(supervised.life, supervised.part)
        if reason is not None:
            self._end_hanging(supervised, reason, now)

    def _end_hanging(self, supervised: Supervised, reason: str, now: float) -> None:
        grace = supervised.part.grace_seconds if supervised.life.check_failures else SILENT_GRACE_SECONDS
        supervised.life = ending(supervised.life, reason, now)
        supervised.kill_at = now + grace
        if supervised.identity:
            terminate(supervised.identity)
        _log(f"{supervised.part.name} {reason}: TERM, and KILL in {grace:g} s")

    def _probe_next(self) -> None:
        """Run at most one probe a tick, so that a part that does not answer does not delay the restarts of others."""
        now = time.monotonic()
        running = [s for s in self._all.values() if s.life.phase in RUNNING and s.next_probe <= now]
        if not running:
            return
        supervised = min(running, key=lambda s: s.next_probe)
        answer = is_ready(supervised.part.probe)
        supervised.life = probed(supervised.life, answer, time.monotonic())
        supervised.next_probe = time.monotonic() + probe_interval_seconds(supervised.life.phase)

    def _stop_parts(self, names: list[str]) -> None:
        """Stop the parts in reverse order of their dependencies; a part receives TERM after its dependents have ended."""
        left = [self._all[name] for name in names]
        while left:
            needed = {name for s in left for name in s.part.depends_on}
            layer = [s for s in left if s.part.name not in needed]
            self._end(layer)
            left = [s for s in left if s not in layer]

    def _end(self, layer: list[Supervised]) -> None:
        running = [(s, s.identity) for s in layer if s.identity]
        for _, identity in running:
            terminate(identity)
        grace = max((s.part.grace_seconds for s, _ in running), default=0.0)
        wait_gone([identity for _, identity in running], grace)
        for supervised, identity in running:
            kill_group(identity, self._options.instance_id)
            if supervised.process:
                supervised.process.wait()
        for supervised in layer:
            supervised.forget_process()
            supervised.life = Life(phase=Phase.STOPPED)
        self._report()

    def _cap_logs(self) -> None:
        if time.monotonic() < self._next_log_check:
            return
        self._next_log_check = time.monotonic() + _LOG_CHECK_SECONDS
        for log in self._instance.logs.glob("*.log"):
            if log.stat().st_size > LOG_CAP_BYTES:
                # The part keeps the file open, so the log is copied and truncated instead of renamed.
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)

    def _report(self) -> None:
        report = Report(
            supervisor_pid=self._me.pid,
            supervisor_started_at=self._me.started_at,
            revision=self._options.revision,
            parts=tuple(_report_of(supervised) for supervised in self._all.values()),
        )
        if report != self._last_report:
            self._instance.save_report(report)
            self._last_report = report

    def _log_line(self, part: str, text: str) -> None:
        with self._instance.log_file(part).open("a") as log:
            log.write(f"{text}\n")


def _report_of(supervised: Supervised) -> PartReport:
    life, identity = supervised.life, supervised.identity
    return PartReport(
        name=supervised.part.name,
        state=life.phase.value,
        is_step=supervised.part.is_step,
        pid=identity.pid if identity else None,
        started_at=identity.started_at if identity else None,
        restarts=life.restarts,
        message=life.message,
        last_end=life.last_end,
    )


def _log(text: str) -> None:
    """Write a line to the supervisor's log."""
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text}\n")
    sys.stderr.flush()


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Hold the lock file for the duration of the block; the kernel releases it if the process is killed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"{lock.parent} has a supervisor already: run `starling down` first") from None
        yield
