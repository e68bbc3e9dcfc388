"""Computed traits on two executors beside one: how fast a history is folded. Each executor has at most half a core.

A cluster on this machine: the driver, and each executor with its Python workers in processes of its own. The kernel limits each
executor to half a core, so two of them leave one core to the driver and the broker. A round is a micro-batch over the whole
topic with 50 traits, after the same one that warms up: each JVM compiles its code for itself, which two executors at half a core do
not share, and which costs a job that runs for days nothing. Run: python benchmarks/spark_executors.py [--small] [--write]
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from common import goals, shop
from common.bench import Stack, keep, stack
from common.segmenting import load
from common.spark_cpu import Meter
from pyspark.sql import SparkSession
from spark_profiles import DAYS, Bench, settings

from starling_common.kafka.topics import BEHAVIOUR
from starling_spark.session.spark import open_session

EXECUTORS: Final = (1, 2)
EXECUTOR_MB: Final = 1024
TASKS: Final = 4
"""Tasks with state: two for each core of the larger cluster."""
GOAL: Final = 1.8
_PERIOD_US: Final = 100_000
_CAP_US: Final = 50_000
_GROUPS: Final = Path("/sys/fs/cgroup/cpu")
_PATIENCE_SECONDS: Final = 60.0


@contextmanager
def capped(executors: int) -> Iterator[None]:
    """Limit each executor of the session, and the workers that it will start, to half a core for the duration of a block.

    Raises: PermissionError, FileNotFoundError without a writable CPU controller of control groups (version 1); TimeoutError.
    """
    groups: list[Path] = []
    try:
        for process in _executors(executors):
            group = _GROUPS / f"starling-benchmark-{process.pid}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(_CAP_US))
            for one in (process, *process.children(recursive=True)):
                (group / "cgroup.procs").write_text(str(one.pid))
        yield
    finally:
        for group in groups:
            _release(group)


def _executors(count: int) -> list[psutil.Process]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        found = [one for one in psutil.Process().children(recursive=True) if _is_executor(one)]
        if len(found) == count:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} executors have started")
        time.sleep(0.2)


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def _release(group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        (_GROUPS / "cgroup.procs").write_text(pid)
    group.rmdir()


def with_executors(count: int, made: Stack, directory: Path) -> float:
    """Return the seconds of the micro-batch on a new cluster of so many executors."""
    place = Path(tempfile.mkdtemp(dir=directory, prefix=f"executors-{count}-"))
    given = settings(made, place).model_copy(update={"spark_master": f"local-cluster[{count},1,{EXECUTOR_MB}]"})
    spark = open_session("benchmark", given, {"spark.executor.memory": f"{EXECUTOR_MB}m"}, is_streaming=True)
    try:
        _started(spark, count)
        with capped(count), Meter() as meter:
            bench = Bench(made, spark, place, meter, TASKS)
            bench.profiles(50)
            return float(bench.profiles(50)["took"].seconds)
    finally:
        spark.stop()


def _started(spark: SparkSession, executors: int) -> None:
    spark.range(0, 100, 1, executors * 2).count()


def measure(made: Stack, directory: Path, rounds: int) -> dict[str, Any]:
    """One executor and two in turns, so that other load slows both; medians."""
    took: dict[int, list[float]] = {count: [] for count in EXECUTORS}
    for number in range(rounds):
        for count in EXECUTORS:
            took[count].append(with_executors(count, made, directory))
            print(f"round {number}: {count} executors: {took[count][-1]:.1f} s", flush=True)
    one, two = (statistics.median(took[count]) for count in EXECUTORS)
    seconds = {str(count): {"seconds": statistics.median(found), "each_seconds": found} for count, found in took.items()}
    return seconds | {"speedup": round(one / two, 2)}


def rows(result: dict[str, Any]) -> Iterator[goals.Row]:
    """Yield the row of the table."""
    figure = f"{result['1']['seconds']} s, {result['2']['seconds']} s: {result['speedup']} x"
    yield goals.Row("one executor, two executors, half a core each", figure, f">= {GOAL} x", result["speedup"] >= GOAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_executors.json")
    asked = parser.parse_args()
    if asked.small:
        asked.events, asked.users, asked.rounds, asked.write = 50_000, 2_000, 1, False
    shop.USERS = asked.users
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, stack(Path(directory) / "stack") as made:
        names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
        load(made, BEHAVIOUR, shop.behaviour(asked.events, 1, shop.FIRST_MS, DAYS * shop.DAY_MS, names))
        found = measure(made, Path(directory), asked.rounds)
    result = {
        "benchmark": "spark_executors",
        "cores": os.cpu_count(),
        "cores_an_executor": _CAP_US / _PERIOD_US,
        "events": asked.events,
        "users": asked.users,
        "rounds": asked.rounds,
        "load_average_5m_before": round(before[1], 1),
        **found,
    }
    print(json.dumps(result, indent=1))
    print(goals.as_text(rows(result)))
    if asked.write:
        keep("spark_executors", result)


if __name__ == "__main__":
    main()
