"""The processor time of a worker counts after its end, although the daemon of the workers ignores it."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
worker = os.fork()
if not worker:
    while time.process_time() < 0.3:
        pass
    print("busy", flush=True)
    signal.pause()
sys.stdin.readline()
os.kill(worker, signal.SIGKILL)
try:
    os.wait()
except ChildProcessError:
    print("ended", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("name", ["Meter", "Spent"])
def test_a_worker_counts_after_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spark_cpu = importlib.import_module("common.spark_cpu")
    command = [sys.executable, "-c", DAEMON, "SparkSubmit"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        with spark_cpu.Meter() if name == "Meter" else spark_cpu.Spent(jvm.pid) as meter:
            assert jvm.stdout.readline() == "busy\n"
            before = _workers(meter.seconds())
            jvm.stdin.write("\n")
            jvm.stdin.flush()
            assert jvm.stdout.readline() == "ended\n"
            after = _workers(meter.seconds())
        jvm.stdin.close()
    assert before >= 0.29
    assert after >= before


def _workers(seconds: float | dict[str, float]) -> float:
    return seconds["python_workers"] if isinstance(seconds, dict) else seconds
