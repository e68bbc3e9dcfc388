"""Arms a failpoint in the next process of a part. Python imports this module at its start.

`tests.faults_delivery.failpoints` names this directory in PYTHONPATH, which every process of an instance inherits. A process
removes the first line of the file with the name of its part, and is armed with it. Before it ends or suspends itself it notes that.
"""

import os
import signal
from pathlib import Path


def take(file: Path) -> str | None:
    """Remove the first line of a file, and return it; None if there is none."""
    lines = file.read_text().splitlines() if file.exists() else []
    if not lines:
        return None
    file.write_text("".join(f"{line}\n" for line in lines[1:]))
    return lines[0]


def note_end(reached: Path, line: str) -> None:
    """Write a line, with the id of this process, before it kills or suspends itself."""
    kill = os.kill

    def noted(process: int, number: int) -> None:
        if process == os.getpid() and number in {signal.SIGKILL, signal.SIGSTOP}:
            with reached.open("a") as file:
                file.write(f"{line} {process}\n")
        kill(process, number)

    os.kill = noted


FEW_TIMERS = {"after_timers": {"STARLING_TIMERS_PER_UNIT": "8"}}
"""Settings with which a process comes by a failpoint: units without records begin when more timers are due than one unit fires."""


def arm(directory: Path, part: str) -> None:
    """Set the failpoint of this process, if its part has one."""
    point = take(directory / part)
    if point is not None:
        os.environ["STARLING_FAILPOINT"] = point
        os.environ.update(FEW_TIMERS.get(point.partition(":")[0], {}))
        (directory / f"{part}.armed").write_text(str(os.getpid()))
        note_end(directory / f"{part}.reached", point)


if "FAULTS_ARMING" in os.environ and "STARLING_INSTANCE_ID" in os.environ:
    arm(Path(os.environ["FAULTS_ARMING"]), os.environ["STARLING_INSTANCE_ID"])
