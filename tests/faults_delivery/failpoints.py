"""Kills at each failpoint, and zombies there: the next process of a part is armed, and the supervisor starts it after a kill."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from starling_broadcaster import failpoints as of_broadcaster
from starling_common.testing import free_port
from starling_delivery import failpoints as of_delivery
from starling_local.instance import Instance, PartReport
from starling_local.stack.parts.part import HttpProbe
from starling_local.stack.supervision.probes import is_ready
from starling_local.stack.supervision.process import MARK, Identity, identify, is_alive, kill_group
from starling_stream.model import failpoints as of_stream
from tests.faults_platform.processes import Durations, Injected, Processes
from tests.faults_platform.schedule import Fault, Wave

_AT: Final = "at "
_STOP: Final = ":stop"
ARMING: Final = Path(__file__).parent / "arming"
_VARIABLE: Final = "FAULTS_ARMING"
_REACH_SECONDS: Final = 120.0
"""How long a process may take to come by its failpoint. Its start, after a delay that grows to 30 s, and a flush after 30 s are
included."""
_READY_SECONDS: Final = 25.0
"""The supervisor ends a suspended part after 30 s: its successor has to be there before."""
_WORK_SECONDS: Final = 2.0
_END_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1

MESSENGER: Final = "messenger-0"
CHANNELS: Final = "delivery-email-0"
BROADCASTER: Final = "broadcaster"

_ELSEWHERE: Final = {of_stream.AFTER_SLICE, of_stream.AFTER_FAILURE, of_stream.AFTER_TIMERS, of_stream.BEFORE_RELEASE}
OF_MESSENGER: Final = tuple(point for point in of_stream.FAILPOINTS if point not in _ELSEWHERE)
"""Not a slice, because the messenger has no plan to which it would switch its people; not a failure, which would need a record that
no comparison expects; not `before_release`, because one messenger has no other to which its tasks would move: `make faults` passes
these three. `after_timers` comes with the jump of the clock."""
OF_CHANNELS: Final = of_delivery.FAILPOINTS
OF_BROADCASTER: Final = of_broadcaster.FAILPOINTS
OF_WEBHOOKS: Final = tuple(point for point in of_delivery.FAILPOINTS if point != "after_sending")
"""A channel that sends at least once stores no SENDING."""


def at(part: str, *points: str) -> Fault:
    """Return kills of a part, one at each failpoint. With `:stop` at its end a failpoint makes a zombie of the process instead."""
    return Fault(f"{_AT}{'+'.join(points)}", (part,))


def zombie(point: str) -> str:
    """Return the failpoint as one that suspends the process."""
    return f"{point}{_STOP}"


def points_of(fault: Fault) -> tuple[str, ...]:
    """Return the failpoints of a fault, in order; none of a fault at no place in particular."""
    return tuple(fault.kind.removeprefix(_AT).split("+")) if fault.kind.startswith(_AT) else ()


def ends_of(fault: Fault) -> int:
    """Return how many processes of each part a fault ends, at most. Each may have messages under way."""
    points = points_of(fault)
    # A zombie, its successor, and the process that replaces both.
    return sum(3 if point.endswith(_STOP) else 1 for point in points) + 1


def armed_line(point: str) -> str:
    """Return the setting of a process that is to end at its first passage."""
    return f"{point.removesuffix(_STOP)}:1{_STOP}" if point.endswith(_STOP) else f"{point}:1"


class Arms:
    """The failpoints that wait for the next processes of the parts, in a directory: a file a part, a line a process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Every process that is started meanwhile, directly or not, looks for a failpoint of its part."""
        before = {name: os.environ.get(name) for name in ("PYTHONPATH", _VARIABLE)}
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ARMING), before["PYTHONPATH"]]))
        os.environ[_VARIABLE] = str(self._directory)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def set(self, part: str, points: Sequence[str]) -> None:
        """Arm the next processes of a part."""
        (self._directory / part).write_text("".join(f"{armed_line(point)}\n" for point in points))

    def reached(self, part: str) -> list[tuple[str, int]]:
        """Return the settings that ended or suspended processes of the part, with the ids of the processes, in order."""
        file = self._directory / f"{part}.reached"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(line, int(process)) for line, _, process in (line.partition(" ") for line in lines)]

    def armed(self, part: str) -> int | None:
        """Return the id of the last process that was armed."""
        file = self._directory / f"{part}.armed"
        return int(file.read_text()) if file.exists() else None


def without_arms(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that is never armed."""
    return {name: value for name, value in environment.items() if name not in {"PYTHONPATH", _VARIABLE}}


class ArmedProcesses(Processes):
    """The parts of an instance whose processes can be armed."""

    def __init__(self, arms: Arms, instance: Instance, durations: Durations, evidence: Path, seed: int = 0) -> None:
        """`arms`: those with which the instance was started. The others: as of `Processes`."""
        super().__init__(instance, durations, evidence, seed)
        self.reached: set[tuple[str, str]] = set()
        """(part, failpoint) at which a process was killed or suspended."""
        self._arms = arms

    def inject(self, wave: Wave, number: int, began: float) -> list[Injected]:
        """As `Processes.inject`. Faults at failpoints begin at once: each waits until its part comes by."""
        if not any(map(points_of, wave.faults)):
            return super().inject(wave, number, began)
        before = self._reports()
        injected = [Injected(fault, number, round(time.monotonic() - began, 1)) for fault in wave.faults]
        with ThreadPoolExecutor(len(injected)) as pool:
            for caused in [pool.submit(self._cause, one, before) for one in injected]:
                caused.result()
        self._await_ready(injected, began)
        return injected

    def _cause(self, injected: Injected, reports: Mapping[str, PartReport]) -> None:
        points = points_of(injected.fault)
        if not points:
            super()._cause(injected, reports)
            return
        [part] = injected.fault.parts
        self._end_at(part, points)
        injected.ended_at = time.monotonic()

    def _end_at(self, part: str, points: Sequence[str]) -> None:
        """Let processes of a part end at these failpoints, one after the other, and note those that are reached."""
        before, by_line = len(self._arms.reached(part)), {armed_line(point): point for point in points}
        self._arms.set(part, points)
        present = self._reports()[part]
        if present.pid is not None and present.started_at is not None:
            self._kill([part], [Identity(present.pid, present.started_at)])
        for number in range(before + 1, before + len(points) + 1):
            if not self._within(_REACH_SECONDS, partial(self._has_reached, part, number)):
                break
            line, process = self._arms.reached(part)[number - 1]
            if not line.endswith(_STOP) or self._replace(part, process):
                self.reached.add((part, by_line[line]))
        else:
            return
        self._arms.set(part, [])
        armed = self._arms.armed(part)
        if armed is not None:
            # It may still be armed, and would end at any time. Its id may belong to another process, which has no mark.
            kill_group(Identity(armed, 0.0), self._instance.options().instance_id)

    def _has_reached(self, part: str, count: int) -> bool:
        return len(self._arms.reached(part)) >= count

    def _replace(self, part: str, process: int) -> bool:
        """Start a successor of a suspended process with the same identity at the broker, wake the zombie up, and end both.

        Return False if there was no zombie: the supervisor was faster than the successor.
        """
        try:
            suspended = identify(process)
        except psutil.NoSuchProcess:
            return False
        with self._successor(part) as is_there:
            has_successor = self._within(_READY_SECONDS, is_there)
            is_zombie = has_successor and is_alive(suspended)
            time.sleep(_WORK_SECONDS)  # sleep: the successor takes over what the zombie had read
            if is_alive(suspended):
                os.kill(suspended.pid, signal.SIGCONT)
            self._within(_END_SECONDS, lambda: not is_alive(suspended))
        # A zombie that still runs has rejoined as a new member, which is allowed. The next process starts without it.
        self._kill([part], [suspended])
        return is_zombie

    @contextmanager
    def _successor(self, part: str) -> Iterator[Callable[[], bool]]:
        """Run a process of the part beside its supervised one, with a disk of its own; yield whether it is ready."""
        plan, port = self._plan[part], free_port()
        mark = self._instance.options().instance_id
        with tempfile.TemporaryDirectory(prefix="starling-successor-") as disk:
            own = {"STARLING_HTTP__PORT": str(port), "STARLING_STATE_DIR": disk, MARK: mark}
            with self._instance.log_file(f"{part}-successor").open("ab") as log:
                process = subprocess.Popen(
                    plan.command,
                    env=without_arms({**os.environ, **plan.env}) | own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
            try:
                probe = HttpProbe(f"http://127.0.0.1:{port}/readyz")
                yield lambda: process.poll() is None and is_ready(probe)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _within(self, seconds: float, true: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)  # sleep: between two looks
        return True


def missing(faults: Collection[Fault], reached: Collection[tuple[str, str]]) -> list[Fault]:
    """Return the faults at the failpoints that were not reached, one for each part."""
    left: dict[str, list[str]] = {}
    for fault in faults:
        for point in points_of(fault):
            if (fault.parts[0], point) not in reached:
                left.setdefault(fault.parts[0], []).append(point)
    return [at(part, *dict.fromkeys(points)) for part, points in left.items()]
