"""What an idle platform costs with few and with many partitions: processor time, memory, files and disk. Prints a table.

    python benchmarks/at_rest.py [--partitions 8,64] [--rounds 2] [--seconds 60] [--users 2000] [--write]

Each round starts an instance of its own for each number of partitions, in turn. Every user sends one event, so that each task has
states; then the instance is left alone until its states are flushed and its JVMs have compiled, and is measured while nothing is
sent. Processor time is that of each part's processes and their children, memory their resident pages. `--write` keeps
benchmarks/results/at_rest.json.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from common.bench import keep
from rich.console import Console
from rich.table import Table
from whole.__main__ import send, starling
from whole.meters import Meters
from whole.yardstick import yardstick_micros

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE: Final = "900s"
ITEMS_A_REQUEST: Final = 100


class Idle(NamedTuple):
    """One instance at rest. Shapes: service -> cores (CPU seconds a second), resident MB, and open files.

    `threads`: of all processes; `replicas`: partitions of all topics on the broker; `disk_mb`: of the whole instance.
    """

    cores: Mapping[str, float]
    memory_mb: Mapping[str, float]
    files: Mapping[str, int]
    threads: int
    replicas: int
    disk_mb: float
    start_seconds: float

    def totals(self) -> dict[str, float]:
        """Return the sums over all services."""
        return {
            "cores": sum(self.cores.values()),
            "memory_mb": sum(self.memory_mb.values()),
            "files": sum(self.files.values()),
            "threads": self.threads,
            "partitions_of_all_topics": self.replicas,
            "disk_mb": self.disk_mb,
            "start_seconds": self.start_seconds,
        }


def summary(runs: Mapping[int, Sequence[Idle]]) -> dict[str, Any]:
    """Return the medians of each number of partitions, and the ratio of the greatest number to the least one."""
    found: dict[str, dict[str, Any]] = {
        str(partitions): {
            **{name: _rounded(statistics.median(run.totals()[name] for run in each)) for name in each[0].totals()},
            "cores_by_service": _medians([run.cores for run in each]),
            "memory_mb_by_service": _medians([run.memory_mb for run in each]),
        }
        for partitions, each in runs.items()
    }
    few, many = (runs[partitions] for partitions in (min(runs), max(runs)))
    ratio = {
        name: round(statistics.median(run.totals()[name] for run in many) / statistics.median(run.totals()[name] for run in few), 2)
        for name in many[0].totals()
    }
    return {"median": found, f"ratio_of_{max(runs)}_to_{min(runs)}": ratio}


def _medians(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in each for name in one)
    found = {name: _rounded(statistics.median(one.get(name, 0.0) for one in each)) for name in names}
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _rounded(value: float) -> float:
    return round(value, 4 if value < 10 else 1)


def _bodies(users: int) -> Iterator[bytes]:
    """Yield requests with one event of each user."""
    for first in range(0, users, ITEMS_A_REQUEST):
        numbers = range(first, min(users, first + ITEMS_A_REQUEST))
        batch = [{"type": "track", "userId": f"user-{number}", "event": "Page Read", "properties": {}} for number in numbers]
        yield json.dumps({"batch": batch}).encode()


def measure(partitions: int, arguments: argparse.Namespace) -> Idle:
    """Start an instance with that number of partitions, and measure it at rest."""
    data_dir: Path = arguments.data_dir
    shutil.rmtree(data_dir, ignore_errors=True)
    instance = ("--data-dir", str(data_dir))
    os.environ["STARLING_PROFILE_PARTITIONS"] = str(partitions)
    began = time.monotonic()
    starling("up", "--detach", "--no-spark", "--clock", "wall", "--port-base", str(arguments.port_base), *instance)
    started = time.monotonic() - began
    try:
        status = json.loads(starling("status", "--json", *instance, check=False))
        send(status["endpoints"]["ingest"], _bodies(arguments.users))
        starling("settle", "--timeout", PATIENCE, *instance)
        time.sleep(arguments.quiet_seconds)
        return _read(status, data_dir, arguments.seconds, started)
    finally:
        starling("down", *instance, check=False)
        shutil.rmtree(data_dir, ignore_errors=True)
        del os.environ["STARLING_PROFILE_PARTITIONS"]


def _read(status: Mapping[str, Any], data_dir: Path, seconds: float, started: float) -> Idle:
    meters = Meters(status, data_dir)
    try:
        before, began = meters.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        after, took = meters.cpu_seconds(), time.monotonic() - began
        memory: dict[str, float] = defaultdict(float)
        files: dict[str, int] = defaultdict(int)
        threads = 0
        for service in after:
            for process in map(psutil.Process, meters.pids(service)):
                memory[service] += process.memory_info().rss / 1e6
                files[service] += process.num_fds()
                threads += process.num_threads()
        cores = {service: (used - before.get(service, 0.0)) / took for service, used in after.items()}
        return Idle(cores, dict(memory), dict(files), threads, meters.partitions(), _disk_mb(data_dir), started)
    finally:
        meters.close()


def _disk_mb(directory: Path) -> float:
    """Return what the files occupy, without the holes of preallocated ones."""
    done = subprocess.run(["du", "-sk", str(directory)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) / 1e3


def print_report(found: Mapping[str, Any]) -> None:
    """Print the medians side by side."""
    columns = list(found["median"])
    [(title, ratio)] = [(name, value) for name, value in found.items() if name.startswith("ratio_of_")]
    table = Table("at rest", *(f"{count} partitions" for count in columns), title.replace("_", " "))
    for name, value in ratio.items():
        table.add_row(name.replace("_", " "), *(f"{found['median'][count][name]:,}" for count in columns), f"{value:.2f}")
    services = found["median"][columns[-1]]["cores_by_service"]
    for service in services:
        of_each = (found["median"][count]["cores_by_service"].get(service, 0.0) for count in columns)
        table.add_row(f"cores of {service}", *(f"{cores:.4f}" for cores in of_each))
    Console(width=120).print(table)


def main() -> int:
    """Measure every number of partitions in turn, print the table, and keep the result if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="8,64", help="numbers of partitions, separated by commas")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the measurement")
    parser.add_argument("--quiet-seconds", type=float, default=60.0, help="the wait before it, longer than the flush of states")
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--port-base", type=int, default=26_000)
    parser.add_argument("--data-dir", type=Path, default=ROOT / "out" / "at-rest")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/at_rest.json")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.partitions.split(",")]
    if len(set(counts)) < 2:
        parser.error("--partitions: two different numbers are needed, for their ratio")
    runs: dict[int, list[Idle]] = {count: [] for count in counts}
    yardstick = yardstick_micros()
    for _ in range(arguments.rounds):
        for count in counts:
            runs[count].append(measure(count, arguments))
            print(f"{count} partitions: {runs[count][-1].totals()}", flush=True)
    setting = {
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "users": arguments.users,
        "processors": os.cpu_count(),
        "load_average_5m": round(os.getloadavg()[1], 1),
        "yardstick_micros": round(min(yardstick, yardstick_micros()), 2),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    found = {
        "setting": setting,
        **summary(runs),
        "runs": {str(count): [run._asdict() for run in each] for count, each in runs.items()},
    }
    print_report(found)
    if arguments.write:
        keep("at_rest", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
