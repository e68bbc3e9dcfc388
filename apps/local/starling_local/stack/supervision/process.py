"""Adapter: starts processes in their own process groups, and ends only those.

A process is identified by its id and its start time, because the kernel reuses ids.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "STARLING_LOCAL_INSTANCE"
"""Environment variable with the instance's id, set for every process of an instance."""

_PR_SET_PDEATHSIG = 1
_CLOCK_SLACK_SECONDS = 2.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Identity:
    """Unique identity of a process. Units: `started_at` in seconds since the epoch."""

    pid: int
    started_at: float


def identify(pid: int) -> Identity:
    """Return the identity of a running process. Raises psutil.NoSuchProcess if it has ended."""
    return Identity(pid, psutil.Process(pid).create_time())


def is_alive(identity: Identity) -> bool:
    """Return whether the process runs; a zombie and another process with the same id do not count."""
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started_at) < _CLOCK_SLACK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def spawn(command: Sequence[str], env: Mapping[str, str], log: Path, *, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a process in its own group, with its output appended to `log`; it receives TERM when the caller dies (Linux)."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            process_group=0,
            # The supervisor has one thread, so running Python between fork and exec is safe here.
            preexec_fn=end_with_parent,  # noqa: PLW1509
        )


def end_with_parent() -> None:
    """Make the kernel send TERM to the calling process when its parent dies; only on Linux.

    On other systems the next `up` or `down` ends the orphaned processes.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def wait_or_kill(process: subprocess.Popen[bytes], timeout_seconds: float) -> None:
    """Wait for the end of a process that was asked to stop; kill it at the time-out."""
    try:
        process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def terminate(identity: Identity) -> None:
    """Send TERM to the leader of the group only; the leader stops its children in the right order."""
    if is_alive(identity):
        _send(lambda: os.kill(identity.pid, signal.SIGTERM))


def wait_gone(identities: Sequence[Identity], timeout_seconds: float) -> bool:
    """Return True once all processes have ended, False at the time-out."""
    deadline = time.monotonic() + timeout_seconds
    while any(is_alive(identity) for identity in identities):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def kill_group(identity: Identity, mark: str) -> None:
    """Send KILL to the remaining processes of the group: the leader and its children.

    Processes without the mark are skipped, because the kernel may have reused the id of the group.
    """
    for process in group_members(identity.pid, mark):
        _send(process.kill)


def group_members(group: int, mark: str) -> list[psutil.Process]:
    """Return the running processes of the group that have `mark` in their environment."""
    return [process for process in psutil.process_iter() if _belongs(process, group, mark)]


def _belongs(process: psutil.Process, group: int, mark: str) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.Error, ProcessLookupError, PermissionError):
        return False  # The process has ended, or belongs to another user.


def _send(signalled: Callable[[], None]) -> None:
    with suppress(ProcessLookupError, psutil.NoSuchProcess):  # The process has ended in the meantime.
        signalled()


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return every running process with `mark` in its environment, in any group and with any parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # The process has ended, or belongs to another user.
    return found
