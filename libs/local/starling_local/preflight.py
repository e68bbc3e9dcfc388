"""Adapter: what must be true of this machine before anything is started; all faults at once."""

import os
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from starling_local.java import JavaError, find_java
from starling_local.ports import HOST

_GIB = 1024**3
NEEDED_DISK_BYTES = 3 * _GIB
NEEDED_MEMORY_BYTES = 3 * _GIB
"""Kafka 0.5, Cassandra 1, registry 0.25 GiB of heap, and as much again for services, Spark and page cache."""
MORE_SPARK_BYTES = 3 * _GIB // 2
"""One more Spark job: its heap of 1 GiB, its Python workers, and what Java needs beside the heap."""

_UNFIT_IN_PATHS = ",:;\"'"
"""Separators of Kafka's directory list, Java's class path and the registry's database address; quotes of YAML."""


def faults(
    data_dir: Path, ports: Mapping[str, int], *, fetching: bool, whole_stack: bool = True, more_spark_jobs: int = 0
) -> list[str]:
    """One sentence a fault: what is missing, and the cure. Empty means ready to go.

    `fetching`: something must still be brought with Maven. `ports`: name → number, all must be free.
    `more_spark_jobs`: how many run beside the one that every stack has.
    """
    found = [
        python_fault(sys.version_info[:2]),
        java_fault(),
        maven_fault() if fetching else None,
        data_dir_fault(data_dir),
        disk_fault(data_dir, shutil.disk_usage(_existing(data_dir)).free),
        memory_fault(psutil.virtual_memory().available, more_spark_jobs) if whole_stack else None,
        *port_faults(ports),
    ]
    return [fault for fault in found if fault]


def python_fault(version: tuple[int, ...]) -> str | None:
    """`version` is (major, minor)."""
    if version >= (3, 11):
        return None
    return f"this is Python {version[0]}.{version[1]}, needed is 3.11 or newer: make the environment with python3.11"


def java_fault() -> str | None:
    """Java is missing, or another version."""
    try:
        find_java()
    except JavaError as error:
        return str(error)
    return None


def maven_fault() -> str | None:
    """Maven is missing."""
    if shutil.which("mvn"):
        return None
    return "mvn is not on the PATH: install Maven 3.8 or newer (Debian: apt install maven)"


def data_dir_fault(data_dir: Path) -> str | None:
    """The directory cannot be used: not writable, or a name that a part's configuration cannot hold."""
    if unfit := sorted(set(_UNFIT_IN_PATHS) & set(str(data_dir.absolute()))):
        return f"the path {data_dir.absolute()} holds {' '.join(unfit)}: choose another directory with --data-dir"
    if os.access(_existing(data_dir), os.W_OK | os.X_OK):
        return None
    return f"{data_dir} cannot be written: choose another directory with --data-dir"


def disk_fault(data_dir: Path, free_bytes: int) -> str | None:
    """Too little is free on the directory's disk."""
    if free_bytes >= NEEDED_DISK_BYTES:
        return None
    return (
        f"{free_bytes / _GIB:.1f} GiB are free for {data_dir}, needed are {NEEDED_DISK_BYTES // _GIB}: "
        "free some, or choose another disk with --data-dir"
    )


def memory_fault(available_bytes: int, more_spark_jobs: int = 0) -> str | None:
    """Too little memory for the whole stack."""
    needed_bytes = NEEDED_MEMORY_BYTES + more_spark_jobs * MORE_SPARK_BYTES
    if available_bytes >= needed_bytes:
        return None
    less = "--no-lake, --no-views or --no-spark" if more_spark_jobs else "--no-spark"
    return (
        f"{available_bytes / _GIB:.1f} GiB of memory are available, needed are {needed_bytes / _GIB:g}: "
        f"stop other programs, or start less with {less}"
    )


def port_faults(ports: Mapping[str, int]) -> Iterable[str]:
    """One for each port that somebody else listens on."""
    taken = [(name, port) for name, port in ports.items() if not is_free(port)]
    for name, port in taken:
        yield f"port {port} ({name}) is taken{_by_whom(port)}: stop that program, or move all ports with --port-base"


def is_free(port: int) -> bool:
    """A server could listen there now."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _by_whom(port: int) -> str:
    try:
        pids = [c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
    except psutil.AccessDenied:
        return ""
    return f" by process {pids[0]}" if pids else ""


def _existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that exists."""
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)
