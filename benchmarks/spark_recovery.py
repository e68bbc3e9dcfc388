"""An executor is killed while events flow: time until computed traits take less than 5 s again. Prints JSON.

    PYTHONPATH=. python benchmarks/spark_recovery.py [--events 500000] [--kills 3] [--small] [--write]

A cluster on this machine: the driver, and two executors with their Python workers in processes of their own. The history is that of
`spark_live.py`, and events come at a quarter of the rate at which the job read it. One executor at a time gets SIGKILL, with its
workers, its stores and its copies of states. The recovery of a kill ends when the last value arrives that took more than 5 s.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
from common import goals
from common.bench import Stack, keep, stack
from spark_live import SHARES, TRAITS, USERS, WARM_UP_SECONDS, Bench, history, summary

EXECUTORS: Final = 2
EXECUTOR_MB: Final = 1024
GOAL_LATENCY_SECONDS: Final = 5.0
GOAL_RECOVERY_SECONDS: Final = 30.0
_BEFORE_SECONDS, _AFTER_SECONDS = 20.0, 70.0
_BACKEND: Final = "CoarseGrainedExecutorBackend"


def executors(driver: int) -> list[psutil.Process]:
    """Return the running executors of a driver."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            found += [process] if _BACKEND in " ".join(process.cmdline()) else []
        except psutil.Error:
            continue
    return found


def killed(bench: Bench, rate: float) -> dict[str, Any]:
    """Kill one executor while events come at a rate; return the latencies before, and the recovery."""
    known, killed_at, began = set(bench.load.sent), 0.0, time.monotonic()

    def kills() -> bool:
        nonlocal killed_at
        if not killed_at and time.monotonic() - began > _BEFORE_SECONDS:
            victim = random.choice(executors(bench.job.pid))
            below = victim.children(recursive=True)
            for process in (victim, *below):
                process.kill()
            killed_at = time.monotonic()
        return False

    seconds = _BEFORE_SECONDS + _AFTER_SECONDS
    bench.load.run(rate, seconds, kills, bench.load.prepare(rate, seconds))
    bench.settle()
    bench.job.check()
    sent = {user: at for user, at in bench.load.sent.items() if user not in known}
    arrived = {user: bench.values.at[user, "probe"] for user in sent}
    slow = [arrived[user] for user, at in sent.items() if arrived[user] > killed_at and arrived[user] - at > GOAL_LATENCY_SECONDS]
    after = sorted(arrived[user] - at for user, at in sent.items() if arrived[user] > killed_at)
    found = {
        "before": summary(sorted(arrived[user] - at for user, at in sent.items() if arrived[user] <= killed_at)),
        "longest_seconds": round(after[-1], 1),
        "recovered_after_seconds": round(max(slow, default=killed_at) - killed_at, 1),
        "executors_afterwards": len(executors(bench.job.pid)),
    }
    print(found, flush=True)
    return found


def measure(made: Stack, directory: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Load the history, start the job, and kill executors."""
    history(made, asked.events, asked.users)
    cluster = {
        "STARLING_SPARK_MASTER": f"local-cluster[{EXECUTORS},1,{EXECUTOR_MB}]",
        "STARLING_SPARK_PROPERTIES": json.dumps({"spark.executor.memory": f"{EXECUTOR_MB}m"}),
    }
    bench = Bench(made, directory, warm_seconds=asked.warm_up, more=cluster)
    try:
        held = bench.read_history(asked.events)
        print(f"history: {held:,.0f} events/s", flush=True)
        rate = held * SHARES[0]
        bench.at_rate(rate, asked.warm_up)
        kills = [killed(bench, rate) for _ in range(asked.kills)]
    finally:
        bench.close()
    return {
        "history_events_per_second": round(held),
        "events_per_second": round(rate),
        "kills": kills,
        "median_recovered_after_seconds": statistics.median(one["recovered_after_seconds"] for one in kills),
    }


def rows(result: dict[str, Any]) -> Iterator[goals.Row]:
    """Yield the row of the table."""
    median = result["median_recovered_after_seconds"]
    each = ", ".join(str(one["recovered_after_seconds"]) for one in result["kills"])
    yield goals.Row(
        f"executor killed at {result['events_per_second']:,} events/s: each value within 5 s again",
        f"{median} s ({each})",
        f"<= {GOAL_RECOVERY_SECONDS:.0f} s",
        median <= GOAL_RECOVERY_SECONDS,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000, help="of the history")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds before the first kill")
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_recovery.json")
    asked = parser.parse_args()
    if asked.small:
        asked.events, asked.users, asked.kills, asked.warm_up, asked.write = 50_000, 5_000, 1, 10.0, False
    before = round(os.getloadavg()[1], 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, stack(Path(directory) / "stack") as made:
        found = measure(made, Path(directory), asked)
    result = {
        "benchmark": "spark_recovery",
        "cores": os.cpu_count(),
        "executors": EXECUTORS,
        "events": asked.events,
        "users": asked.users,
        "traits": TRAITS,
        "load_average_5m_before": before,
        **found,
    }
    print(json.dumps(result, indent=1))
    print(goals.as_text(rows(result)))
    if asked.write:
        keep("spark_recovery", result)


if __name__ == "__main__":
    main()
