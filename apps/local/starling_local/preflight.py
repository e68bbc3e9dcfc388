"""Adapter: checks the machine before the start and reports all problems together."""

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
"""Heap of Kafka (0.5 GiB), Cassandra (1 GiB) and the registry (0.25 GiB), and the rest for services, Spark and page cache."""
MORE_SPARK_BYTES = 3 * _GIB // 2
"""One more Spark job: a heap of 1 GiB, Java's memory outside the heap, and the Python workers."""

_UNFIT_IN_PATHS = ",:;\"'"
"""Separators in Kafka's directory list, Java's class path and the registry's database address, and YAML's quotes."""


def problems(
    data_dir: Path, ports: Mapping[str, int], *, fetching: bool, whole_stack: bool = True, more_spark_jobs: int = 0
) -> list[str]:
    """Return one sentence for each problem, with its cure; an empty list means that the stack can start.

    `fetching`: Maven must fetch a bundle. `ports`: name → number, all must be free.
    `more_spark_jobs`: number of optional Spark jobs.
    """
    found = [
        python_problem(sys.version_info[:2]),
        java_problem(),
        maven_problem() if fetching else None,
        data_dir_problem(data_dir),
        disk_problem(data_dir, shutil.disk_usage(_existing(data_dir)).free),
        memory_problem(psutil.virtual_memory().available, more_spark_jobs) if whole_stack else None,
        *port_problems(ports),
    ]
    return [problem for problem in found if problem]


def python_problem(version: tuple[int, ...]) -> str | None:
    """Return the problem of a Python older than 3.11. Shape: `version` is (major, minor)."""
    if version >= (3, 11):
        return None
    return f"this is Python {version[0]}.{version[1]}, but 3.11 or newer is needed: create the environment with python3.11"


def java_problem() -> str | None:
    """Return the problem of a missing Java or another version."""
    try:
        find_java()
    except JavaError as error:
        return str(error)
    return None


def maven_problem() -> str | None:
    """Return the problem of a missing Maven."""
    if shutil.which("mvn"):
        return None
    return "mvn is not on the PATH: install Maven 3.8 or newer (Debian: apt install maven)"


def data_dir_problem(data_dir: Path) -> str | None:
    """Return the problem of a directory that is not writable, or whose path a configuration file cannot contain."""
    if unfit := sorted(set(_UNFIT_IN_PATHS) & set(str(data_dir.absolute()))):
        return f"the path {data_dir.absolute()} contains {' '.join(unfit)}: choose another directory with --data-dir"
    if os.access(_existing(data_dir), os.W_OK | os.X_OK):
        return None
    return f"{data_dir} is not writable: choose another directory with --data-dir"


def disk_problem(data_dir: Path, free_bytes: int) -> str | None:
    """Return the problem of a full disk."""
    if free_bytes >= NEEDED_DISK_BYTES:
        return None
    return (
        f"{free_bytes / _GIB:.1f} GiB are free for {data_dir}, but {NEEDED_DISK_BYTES // _GIB} are needed: "
        "free some space, or choose another disk with --data-dir"
    )


def memory_problem(available_bytes: int, more_spark_jobs: int = 0) -> str | None:
    """Return the problem of too little memory for the whole stack."""
    needed_bytes = NEEDED_MEMORY_BYTES + more_spark_jobs * MORE_SPARK_BYTES
    if available_bytes >= needed_bytes:
        return None
    less = "--no-lake, --no-views or --no-spark" if more_spark_jobs else "--no-spark"
    return (
        f"{available_bytes / _GIB:.1f} GiB of memory are available, but {needed_bytes / _GIB:g} are needed: "
        f"stop other programs, or start fewer parts with {less}"
    )


def port_problems(ports: Mapping[str, int]) -> Iterable[str]:
    """Yield one problem for each port that another program listens on."""
    taken = [(name, port) for name, port in ports.items() if not is_free(port)]
    for name, port in taken:
        yield f"port {port} ({name}) is taken{_owner(port)}: stop that program, or choose other ports with --port-base"


def is_free(port: int) -> bool:
    """Return whether a server can listen on the port now."""
    with socket.socket() as probe:
        # Servers set it too: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _owner(port: int) -> str:
    try:
        pids = [c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
    except psutil.AccessDenied:
        return ""
    return f" by process {pids[0]}" if pids else ""


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)
