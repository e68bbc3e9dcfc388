"""A failpoint that kills or suspends the process: in processes of their own."""

import os
import signal
import subprocess
import sys

import pytest

from starling_broadcaster.failpoints import FAILPOINTS as OF_BROADCASTER
from starling_common.failpoints.ending import Ending
from starling_delivery.failpoints import FAILPOINTS as OF_DELIVERY
from starling_stream.model.failpoints import FAILPOINTS as OF_STREAM
from starling_stream.model.failpoints import Failpoints

PASSES = """
from starling_common.failpoints.ending import Ending
ending = Ending({armed!r}, ("after_read", "before_commit"))
for name in {names!r}:
    print(name, flush=True)
    ending.passed(name)
"""


def run(armed: str | None, *names: str) -> tuple[int, list[str]]:
    """Return the exit code of a process that passes failpoints, and those that it has passed."""
    script = PASSES.format(armed=armed, names=names)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.split()


@pytest.mark.parametrize(
    ("armed", "names", "passed", "code"),
    [
        (None, ["after_read", "before_commit"], 2, 0),
        ("before_commit", ["after_read", "before_commit", "after_read"], 2, -signal.SIGKILL),
        ("after_read:2", ["after_read", "before_commit", "after_read", "after_read"], 3, -signal.SIGKILL),
        ("raise_in_process:x;after_read", ["after_read", "after_read"], 1, -signal.SIGKILL),
    ],
)
def test_a_process_is_killed_at_its_failpoint(armed: str | None, names: list[str], passed: int, code: int) -> None:
    assert run(armed, *names) == (code, names[:passed])


def test_a_process_is_suspended_and_goes_on() -> None:
    script = PASSES.format(armed="after_read:1:stop", names=["after_read", "before_commit"])
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=30)
    assert (process.returncode, output.split()) == (0, ["after_read", "before_commit"])


@pytest.mark.parametrize("points", [OF_BROADCASTER, OF_DELIVERY, OF_STREAM])
def test_an_unknown_failpoint_is_refused_with_the_known_ones(points: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"'after_nothing' is none of {points[0]}, "):
        Ending("after_nothing:2", points)


def test_a_worker_knows_its_own_failpoints() -> None:
    Failpoints(f"{OF_STREAM[0]}:3")
    with pytest.raises(ValueError, match="is none of"):
        Failpoints("after_read")
