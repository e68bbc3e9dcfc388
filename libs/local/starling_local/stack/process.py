"""Adapter: starts processes in groups of their own, and ends exactly those and no others.

A process is known by its id and its start time together: ids are used again, the pair is not.
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
"""Every process of an instance carries the instance's id under this name in its environment."""

_PR_SET_PDEATHSIG = 1
_CLOCK_SLACK_SECONDS = 2.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for ever. Units: `started_at` in seconds since the epoch."""

    pid: int
    started_at: float


def identify(pid: int) -> Identity:
    """Raises psutil.NoSuchProcess when it is gone already."""
    return Identity(pid, psutil.Process(pid).create_time())


def is_alive(identity: Identity) -> bool:
    """This very process runs: neither gone, nor waiting to be buried, nor another one with its number."""
    try:
        process = psutil.Process(identity.pid)
        same = abs(process.create_time() - identity.started_at) < _CLOCK_SLACK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def spawn(command: Sequence[str], env: Mapping[str, str], log: Path, *, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """Start in an own process group, output appended to `log`; asked to end when the caller dies (Linux)."""
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
    """The kernel shall send the calling process TERM when its parent dies; does nothing where there is no Linux.

    An extra: the next `up` or `down` finds orphans without it.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def ask_to_end(identity: Identity) -> None:
    """TERM to the leader alone: it knows best in which order to stop its own children."""
    if is_alive(identity):
        _send(lambda: os.kill(identity.pid, signal.SIGTERM))


def wait_gone(identities: Sequence[Identity], timeout_seconds: float) -> bool:
    """True once none of them is alive any more."""
    deadline = time.monotonic() + timeout_seconds
    while any(is_alive(identity) for identity in identities):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def kill_group(identity: Identity, mark: str) -> None:
    """KILL what is left of the process's group: the leader, and children that outlived it.

    Only processes that carry our mark are touched: the group's number may belong to a stranger by now.
    """
    for process in group_members(identity.pid, mark):
        _send(process.kill)


def group_members(group: int, mark: str) -> list[psutil.Process]:
    """Live processes of the group that carry `mark`."""
    return [process for process in psutil.process_iter() if _belongs(process, group, mark)]


def _belongs(process: psutil.Process, group: int, mark: str) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.Error, ProcessLookupError, PermissionError):
        return False  # gone, or not ours to look at


def _send(signalled: Callable[[], None]) -> None:
    with suppress(ProcessLookupError, psutil.NoSuchProcess):  # it ended meanwhile, which is what was wanted
        signalled()


def marked_processes(mark: str) -> list[psutil.Process]:
    """Every live process that carries `mark`, whatever its group and whoever its parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # gone, or not ours to look at
    return found
