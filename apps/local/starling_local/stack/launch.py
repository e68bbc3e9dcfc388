"""Adapter: starts the supervisor, follows its reports, stops it, and ends its orphaned processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

import psutil

from starling_local.errors import UserError
from starling_local.instance import Instance, NoInstanceError, PartReport, Report
from starling_local.stack.supervision.process import Identity, is_alive, marked_processes, wait_gone

_POLL_SECONDS = 0.1
_ORPHAN_GRACE_SECONDS = 20.0
STOP_TIMEOUT_SECONDS = 120.0
_TAIL_BYTES = 16 * 1024


class StackError(UserError):
    """The stack does not run, or a part failed. The text states the reason and names the log."""


def supervisor_of(instance: Instance) -> Identity | None:
    """Return the instance's running supervisor; None if there is none."""
    report = instance.report()
    if report is None:
        return None
    identity = Identity(report.supervisor_pid, report.supervisor_started_at)
    return identity if is_alive(identity) else None


def clear_orphans(instance: Instance) -> int:
    """End the orphaned processes of a killed supervisor; return their number.

    A process is found by the instance's id in its environment, never by its name.
    """
    if supervisor_of(instance) or not instance.exists():
        return 0
    orphans = marked_processes(instance.options().instance_id)
    recorded = [Identity(process.pid, process.create_time()) for process in orphans if process.is_running()]
    for process in orphans:
        _signal(process, signal.SIGTERM)
    if not wait_gone(recorded, _ORPHAN_GRACE_SECONDS):
        for process in orphans:
            _signal(process, signal.SIGKILL)
        wait_gone(recorded, _ORPHAN_GRACE_SECONDS)
    return len(orphans)


def start_supervisor(
    instance: Instance, *, ends_with_caller: bool, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Start a supervisor for the instance's saved options in a new session; return its process.

    `ends_with_caller`: the supervisor stops all parts when this process ends for any reason (Linux).
    `environment`: variables of the supervisor and its parts beside those of this process.
    A caller that continues to run must wait for the process. Raises: StackError if the supervisor ends at once.
    """
    instance.logs.mkdir(parents=True, exist_ok=True)
    with instance.log_file("supervisor").open("ab") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "starling_local.stack",
                str(instance.data_dir),
                *(["--with-parent"] if ends_with_caller else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **environment},
        )
    while process.poll() is None:
        found = supervisor_of(instance)
        if found and found.pid == process.pid:
            return process
        time.sleep(_POLL_SECONDS)
    raise StackError(f"the supervisor ended at once: {tail(instance, 'supervisor')}")


def reload_supervisor(supervisor: Identity) -> None:
    """Make the supervisor read the saved options again."""
    os.kill(supervisor.pid, signal.SIGHUP)


def changes(instance: Instance, revision: int, timeout_seconds: float) -> Iterator[PartReport]:
    """Yield each part whenever its state changes; return when all parts are ready.

    Raises: StackError if the supervisor has ended, or at the time-out with the parts that are not ready.
    """
    deadline = time.monotonic() + timeout_seconds
    seen: dict[str, PartReport] = {}
    while True:
        alive = supervisor_of(instance) is not None
        report = instance.report()
        if report and report.revision == revision:
            for part in report.parts:
                if seen.get(part.name) != part:
                    seen[part.name] = part
                    yield part
            if report.is_ready and alive:
                return
        if not alive:
            raise StackError(f"the supervisor has ended: {tail(instance, 'supervisor')}")
        if time.monotonic() >= deadline:
            raise StackError(_not_ready(instance, report, timeout_seconds))
        time.sleep(_POLL_SECONDS)


def wait_ready(instance: Instance, revision: int, timeout_seconds: float) -> None:
    """Wait until all parts are ready. Raises: StackError if a part fails or the time is over."""
    for _part in changes(instance, revision, timeout_seconds):
        pass


def stop(instance: Instance, on_progress: Callable[[str], None] = lambda _line: None) -> bool:
    """Stop all parts gracefully; return False if nothing ran. Raises StackError if the supervisor does not stop in time."""
    supervisor = supervisor_of(instance)
    if supervisor is None:
        return clear_orphans(instance) > 0
    on_progress("stopping")
    os.kill(supervisor.pid, signal.SIGTERM)
    if not wait_gone([supervisor], STOP_TIMEOUT_SECONDS):
        seconds = f"{STOP_TIMEOUT_SECONDS:.0f} s"
        raise StackError(f"the supervisor (pid {supervisor.pid}) did not stop in {seconds}: {tail(instance, 'supervisor')}")
    clear_orphans(instance)
    return True


def running_report(instance: Instance) -> Report:
    """Return the report of the running supervisor. Raises StackError or, without an instance, NoInstanceError."""
    if not instance.exists():
        raise NoInstanceError(f"no instance in {instance.data_dir}: run `starling up` first, or set --data-dir")
    report = instance.report()
    if report is None or supervisor_of(instance) is None:
        raise StackError(f"the instance in {instance.data_dir} is not running: start it with `starling up`")
    return report


def tail(instance: Instance, part: str, lines: int = 3) -> str:
    """Return the last informative lines of a part's log, and its path."""
    log = instance.log_file(part)
    if not log.exists():
        return f"no log yet ({log})"
    last = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
    # The first line of a Java exception is informative; its stack frames are not.
    informative = [line.strip() for line in last if line.strip() and not line.startswith(("\tat ", "\t... "))]
    return f"{' | '.join(informative[-lines:]) or 'its log is empty'} ({log})"


def _not_ready(instance: Instance, report: Report | None, timeout_seconds: float) -> str:
    parts = [part for part in report.parts if not part.is_ready] if report else []
    states = "; ".join(f"{part.name} is {part.state} {part.message}".strip() for part in parts) or "no report yet"
    # The other parts may depend on the first part that is not ready.
    where = f"; log of {parts[0].name}: {tail(instance, parts[0].name)}" if parts else ""
    return f"not ready after {timeout_seconds:.0f} s: {states}{where}"


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):  # The process has ended in the meantime.
        process.send_signal(number)
