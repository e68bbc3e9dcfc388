"""The group under test: segmenter workers as real processes, each with a disk of its own, started again whenever they end."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from starling_common.testing import free_port
from tests.integration.stream.rig import Worker, wait_until

SESSION_SECONDS = 6.0
_RESTART_SECONDS = 0.2

RAISE = "raise-in-"
"""A record with this text and the name of a point makes the code of every worker raise there."""

FAST = {
    "STARLING_CLOCK": "event",
    "STARLING_SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
    "STARLING_HEARTBEAT_INTERVAL_SECONDS": "0.5",
    "STARLING_REBALANCE_TIMEOUT_SECONDS": "15",
    "STARLING_TRANSACTION_TIMEOUT_SECONDS": "8",
    "STARLING_UNIT_MAX_RECORDS": "1000",
    "STARLING_TIMERS_PER_UNIT": "10",
    "STARLING_STANDBY_REPLICAS": "1",
    "PYTHONFAULTHANDLER": "1",
}
"""Short time-outs, so that a run has many faults; small units, so that a backlog has many places to die at, and that timers need
units without records. Each partition has a standby.
"""

NEVER_REPLAY = {"STARLING_BACKING_STORE_REPLAY_RECORDS": "0"}
"""Every other worker: a lost disk is restored from Cassandra even where the changelog is short; users are read when touched."""


@dataclass
class Exit:
    """One end of a worker process. `expected`: the harness or a failpoint ended it."""

    slot: str
    code: int
    log: Path


@dataclass
class Slot:
    """One worker by name. A fault that holds `lock` may stop it; `wanted`: whether it is to run."""

    name: str
    directory: Path
    environment: Mapping[str, str]
    wanted: bool = True
    armed: str | None = None
    starts: int = 0
    worker: Worker | None = None
    exits: list[Exit] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _ended_at: float = 0.0

    @property
    def disk(self) -> Path:
        """Its local state, as a pod's volume."""
        return self.directory / self.name

    @property
    def stores(self) -> list[Path]:
        """The directory of each partition's store."""
        return sorted(path for path in (self.disk / "segmenter").glob("*") if path.is_dir())

    def keep(self) -> None:
        """Notice an end, start again when wanted. Called again and again, as a supervisor does."""
        with self.lock:
            if self.worker is not None and not self.worker.alive():
                self.exits.append(Exit(self.name, self.worker.process.returncode, self.worker.log))
                self.worker, self._ended_at = None, time.monotonic()
            if self.worker is None and self.wanted and time.monotonic() - self._ended_at > _RESTART_SECONDS:
                self._start()

    def kill(self) -> None:
        with self.lock:
            if self.worker is not None:
                self.worker.resume()
                self.worker.kill()
            self.keep()

    def stop(self, seconds: float = 120.0, *, leaves_group: bool = False) -> int | None:
        """Stop as for a restart, or leave the group. Return the exit code; None if it did not run."""
        with self.lock:
            worker = self.worker
        if worker is None or not worker.alive():
            return None
        worker.process.send_signal(signal.SIGUSR1 if leaves_group else signal.SIGTERM)
        try:
            code = worker.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.dump_stacks()
            raise AssertionError(f"{self.name} does not stop; where it hangs is at the end of {worker.log}") from None
        self.keep()
        return code

    def dump_stacks(self) -> None:
        """End it with the stack of each thread in its log."""
        with self.lock:
            if self.worker is not None and self.worker.alive():
                self.worker.process.send_signal(signal.SIGABRT)
                self.worker.process.wait()

    @contextmanager
    def away(self, *, gracefully: bool = False, leaves_group: bool = False) -> Iterator[None]:
        """Down for as long as the block runs; `leaves_group`: gracefully, and out of the group."""
        self.wanted = False
        if gracefully or leaves_group:
            self.stop(leaves_group=leaves_group)
        self.kill()
        try:
            yield
        finally:
            self.wanted = True

    def pause(self) -> None:
        with self.lock:
            if self.worker is not None and self.worker.alive():
                self.worker.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        with self.lock:
            if self.worker is not None and self.worker.alive():
                self.worker.resume()

    def asleep(self) -> bool:
        """Return whether it is suspended."""
        with self.lock:
            return self.worker is not None and self.worker.alive() and self.worker.asleep()

    def promotions(self) -> int:
        """Return how many partitions the running process has restored from its own disk, standbys included."""
        with self.lock:
            return 0 if self.worker is None or not self.worker.log.exists() else restored_from(self.worker.log)["disk"]

    def limit_file_bytes(self, size: int) -> bool:
        """No file of the running worker can grow beyond this: to it the disk is full. False when it does not run."""
        with self.lock:
            if self.worker is None or not self.worker.alive():
                return False
            resource.prlimit(self.worker.process.pid, resource.RLIMIT_FSIZE, (size, size))
            return True

    def wait_ready(self, seconds: float = 240.0) -> None:
        wait_until(lambda: self.worker is not None and self.worker.ready(), f"{self.name} to be ready", seconds, self._hanging)

    def _hanging(self) -> str:
        """Return the end of its log, with the stack of each thread."""
        self.dump_stacks()
        return self.output()[-6_000:]

    def output(self) -> str:
        """The log of the process that runs, or ran last."""
        log = self.worker.log if self.worker is not None else self.exits[-1].log
        return log.read_text(errors="replace")

    def _start(self) -> None:
        armed, self.armed = self.armed, None
        port, log = free_port(), self.directory / "logs" / f"{self.name}-{self.starts:04}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        own = {
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": self.name,
            "STARLING_STATE_DIR": str(self.disk),
            "STARLING_FAILPOINT": ";".join(filter(None, [f"raise_in_any:{RAISE}", armed])),
        }
        # Through a pipe, as in a cluster: a full disk is the states' and not the log's.
        replay = NEVER_REPLAY if self.name[-1] in "13579" else {}
        process = subprocess.Popen(
            [sys.executable, "-m", "starling_segmenter"],
            env={**os.environ, **self.environment, **replay, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        threading.Thread(target=_copy, args=(process.stdout, log), name=f"log of {log.name}", daemon=True).start()
        self.worker = Worker(process, log, port)
        self.starts += 1


def _copy(source: IO[bytes], log: Path) -> None:
    with source, log.open("wb", buffering=0) as out:
        shutil.copyfileobj(source, out)


class Workers:
    """All slots, and the thread that keeps them running."""

    def __init__(self, directory: Path, environment: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._directory = directory
        self._environment = {**FAST, **environment}
        self.slots = {name: self._slot(name) for name in names}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for slot in self.slots.values():
            slot.wanted = False
            slot.kill()

    def added(self, name: str) -> Slot:
        """One more worker, or one that was there before."""
        slot = self.slots.setdefault(name, self._slot(name))
        slot.wanted = True
        return slot

    @contextmanager
    def joined(self, name: str) -> Iterator[Slot]:
        """One more worker, for as long as the block runs."""
        slot = self.added(name)
        try:
            yield slot
        finally:
            slot.wanted = False
            slot.kill()

    def exits(self) -> list[Exit]:
        return [ended for slot in self.slots.values() for ended in slot.exits]

    def dump_stacks(self) -> None:
        for slot in self.slots.values():
            slot.wanted = False
            slot.dump_stacks()

    def stop_all(self) -> dict[str, int | None]:
        """Stop all workers, which leave the group. Return the exit codes."""
        for slot in self.slots.values():
            slot.wanted = False
        return {name: slot.stop() for name, slot in self.slots.items()}

    def _slot(self, name: str) -> Slot:
        return Slot(name, self._directory, self._environment)

    def _keep(self) -> None:
        while not self._over.wait(0.05):
            for slot in list(self.slots.values()):
                slot.keep()


def bases(directory: Path) -> dict[str, int]:
    """What partitions were restored from: base -> how often, by the logs of all workers there."""
    found: Counter[str] = Counter()
    for log in directory.glob("logs/*.log"):
        found += restored_from(log)
    return dict(found)


def restored_from(log: Path) -> Counter[str]:
    """As `bases`, by the log of one process."""
    lines = log.read_text(errors="replace").splitlines()
    return Counter(json.loads(line)["base"] for line in lines if '"event": "task_running"' in line and line.endswith("}"))


def complaints(exits: list[Exit]) -> dict[str, int]:
    """Return last error message -> count, of the workers that ended with code 1."""
    found: dict[str, int] = {}
    for ended in exits:
        if ended.code == 1:
            message = _last_error(ended.log)
            found[message] = found.get(message, 0) + 1
    return found


def _last_error(log: Path) -> str:
    message = log.read_text(errors="replace")
    if "\nTimeout (" in message:
        return "a call of the Kafka client hung"
    for line in reversed(message.splitlines()):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level") == "error" and str(entry.get("logger")).startswith("starling"):
            text = str(entry.get("exception") or entry.get("error") or entry.get("reason") or "-").strip()
            return f"{entry.get('event')}: {text.splitlines()[-1][:160]}"
    return "nothing"
