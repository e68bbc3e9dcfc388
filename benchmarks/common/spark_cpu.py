"""The processor time of a session of Spark by part, and of a job, also of workers that have ended."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

import psutil

PARTS: Final = ("jvm", "python_workers", "driver", "servers")
_SECONDS: Final = 1.0
"""Spark ends a worker that was idle for a minute, so no work is missed."""


class _Watching(ABC):
    """Reads the times in a thread while the block lasts, so that a process is known before it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    @abstractmethod
    def _read(self) -> object:
        """Read the times."""

    def _watch(self) -> None:
        while not self._stopping.wait(_SECONDS):
            self._read()


class Meter(_Watching):
    """Processor time of this process and of those below it, while the block lasts.

    The daemon of Spark's Python workers ignores their end, so the system adds their time to no other process. A thread reads it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._workers: dict[psutil.Process, float] = {}

    def seconds(self) -> dict[str, float]:
        """Return user and system time so far by `PARTS`: Spark's JVM, its Python workers, this process, and all servers."""
        this = psutil.Process()
        found = dict.fromkeys(PARTS, 0.0) | {"driver": _own(this)}
        for child in this.children():
            if _is_jvm(child):
                found["jvm"] += _own(child)
            else:
                found["servers"] += sum(_own(one) + _ended(one) for one in (child, *_below(child)))
        return found | {"python_workers": self._of_workers()}

    def _of_workers(self) -> float:
        with self._lock:
            for jvm in psutil.Process().children():
                if _is_jvm(jvm):
                    self._workers |= {worker: max(_own(worker), self._workers.get(worker, 0.0)) for worker in _below(jvm)}
            return sum(self._workers.values())

    def _read(self) -> float:
        return self._of_workers()


class Spent(_Watching):
    """Processor time of a process and of all below it, since the start of each and also of those that end while the block lasts."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._root = psutil.Process(pid)
        self._seen: dict[psutil.Process, float] = {}

    def seconds(self) -> float:
        """Return user and system time so far."""
        with self._lock:
            for one in (self._root, *_below(self._root)):
                self._seen[one] = max(_own(one), self._seen.get(one, 0.0))
            return sum(self._seen.values())

    def _read(self) -> float:
        return self.seconds()


def _is_jvm(process: psutil.Process) -> bool:
    try:
        return any("SparkSubmit" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


def _own(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _ended(process: psutil.Process) -> float:
    """Return the time of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.children_user + times.children_system)
