"""Adapter: the other side of the supervisor: start it, watch what it reports, stop it, clear up after its death."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from starling_local.errors import LocalError
from starling_local.instance import Instance, NoInstanceError, PartReport, Report
from starling_local.stack.process import Identity, is_alive, marked_processes, wait_gone

_POLL_SECONDS = 0.1
_ORPHAN_GRACE_SECONDS = 20.0
STOP_TIMEOUT_SECONDS = 120.0
_TAIL_BYTES = 16 * 1024


class StackError(LocalError):
    """The stack is not as it should be; the text says what is wrong and where to look."""


def supervisor_of(instance: Instance) -> Identity | None:
    """The instance's live supervisor; None when there is none."""
    report = instance.report()
    if report is None:
        return None
    identity = Identity(report.supervisor_pid, report.supervisor_started_at)
    return identity if is_alive(identity) else None


def clear_orphans(instance: Instance) -> int:
    """End what a killed supervisor left behind; how many processes that were.

    Found by the pid and start time it recorded, and by the instance's id in their environment; never by name.
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


def start_supervisor(instance: Instance, *, ends_with_us: bool) -> subprocess.Popen[bytes]:
    """A supervisor for the instance's saved options, in a session of its own.

    `ends_with_us`: it stops everything when this process dies, however it dies (Linux).
    Returns its process, to be kept and waited for by whoever stays. Raises: StackError when it ends at once.
    """
    instance.logs.mkdir(parents=True, exist_ok=True)
    with instance.log_file("supervisor").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "starling_local.stack", str(instance.data_dir), *(["--with-parent"] if ends_with_us else [])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while process.poll() is None:
        found = supervisor_of(instance)
        if found and found.pid == process.pid:
            return process
        time.sleep(_POLL_SECONDS)
    raise StackError(f"the supervisor ended at once: {tail(instance, 'supervisor')}")


def reload_supervisor(supervisor: Identity) -> None:
    """Tell it to read the saved options again."""
    os.kill(supervisor.pid, signal.SIGHUP)


def changes(instance: Instance, revision: int, timeout_seconds: float) -> Iterator[PartReport]:
    """Each part whenever its state changes, until all are ready.

    Raises: StackError when the supervisor is gone, or at the time-out with the parts that are not ready.
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
            raise StackError(f"the supervisor is gone: {tail(instance, 'supervisor')}")
        if time.monotonic() >= deadline:
            raise StackError(_not_ready(instance, report, timeout_seconds))
        time.sleep(_POLL_SECONDS)


def wait_ready(instance: Instance, revision: int, timeout_seconds: float) -> None:
    """Raises StackError as `changes` does."""
    for _part in changes(instance, revision, timeout_seconds):
        pass


def stop(instance: Instance, say: Callable[[str], None] = lambda _line: None) -> bool:
    """Stop everything, gracefully; False if nothing ran. Raises StackError when it does not end in time."""
    supervisor = supervisor_of(instance)
    if supervisor is None:
        return clear_orphans(instance) > 0
    say("stopping")
    os.kill(supervisor.pid, signal.SIGTERM)
    if not wait_gone([supervisor], STOP_TIMEOUT_SECONDS):
        raise StackError(f"the supervisor (pid {supervisor.pid}) did not stop in {STOP_TIMEOUT_SECONDS:.0f} s")
    clear_orphans(instance)
    return True


def running_report(instance: Instance) -> Report:
    """What the live supervisor says. Raises StackError when the instance does not run, NoInstanceError if there is none."""
    if not instance.exists():
        raise NoInstanceError(f"no instance in {instance.data_dir}: run `starling up` first, or name its --data-dir")
    report = instance.report()
    if report is None or supervisor_of(instance) is None:
        raise StackError(f"the instance in {instance.data_dir} is not running: start it with `starling up`")
    return report


def tail(instance: Instance, part: str, lines: int = 3) -> str:
    """The last telling lines of a part's log, and where it is."""
    log = instance.log_file(part)
    if not log.exists():
        return f"no log yet ({log})"
    last = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
    # Of a Java exception the head says what is wrong, and the frames below it bury the head.
    telling = [line.strip() for line in last if line.strip() and not line.startswith(("\tat ", "\t... "))]
    return f"{' | '.join(telling[-lines:]) or 'its log is empty'} ({log})"


def _not_ready(instance: Instance, report: Report | None, timeout_seconds: float) -> str:
    parts = [part for part in report.parts if not part.is_ready] if report else []
    told = "; ".join(f"{part.name} is {part.state} {part.message}".strip() for part in parts) or "no report yet"
    # The first one that is not ready holds up those behind it: its log is the one to read.
    where = f"; {parts[0].name} says: {tail(instance, parts[0].name)}" if parts else ""
    return f"not ready after {timeout_seconds:.0f} s: {told}{where}"


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):  # it ended meanwhile, which is what was wanted
        process.send_signal(number)
