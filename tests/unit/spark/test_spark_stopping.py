"""A job's end at a signal, in a process of its own."""

import subprocess
import sys

_STUCK = """
import os, signal, time
from starling_common.telemetry.logs import configure_logs
from starling_spark.session.stopping import stop_at_signals

configure_logs("test", "INFO")
stopping = stop_at_signals(0.1, close_seconds=0.1)
os.kill(os.getpid(), signal.SIGTERM)
stopping.wait()

def a_close_that_never_returns():
    time.sleep(600)

a_close_that_never_returns()
"""
_LOCKED = """
import os, signal
from starling_spark.session.stopping import stop_at_signals

stopping = stop_at_signals(600)
with stopping._cond:  # as within `stopping.wait`
    os.kill(os.getpid(), signal.SIGTERM)
    signal.sigpending()
stopping.wait()
print("stopped")
"""


def _run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)


def test_a_close_that_never_returns_ends_in_a_forced_stop_with_the_stacks() -> None:
    ended = _run(_STUCK)
    assert ended.returncode == 0
    output = ended.stdout + ended.stderr
    assert "stop_forced" in output
    assert "a_close_that_never_returns" in output


def test_a_signal_while_the_main_thread_holds_the_lock_of_the_event_does_not_block_the_job() -> None:
    assert _run(_LOCKED).stdout == "stopped\n"
