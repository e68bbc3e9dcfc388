"""Computed traits while events flow, with 10,000 to 3,000,000 people: cost of an event, latency, memory, checkpoint.

Each size has a stack and a job of its own, a history of two events for each person (a million at least), and then the same rate of
events for all sizes. Run: PYTHONPATH=. python benchmarks/spark_scale.py [--small] [--write]
"""

import argparse
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
from common import goals
from common.bench import keep, kept, stack
from spark_live import TRAITS, WARM_SLICE_SECONDS, WARM_UP_SECONDS, Bench, history

PEOPLE: Final = (10_000, 100_000, 1_000_000, 3_000_000)
RATE: Final = 4_000
SECONDS: Final = 60.0
_LEAST_EVENTS: Final = 1_000_000


class Checkpoint:
    """The bytes that the job writes below its checkpoints while the block lasts. Spark deletes files meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before: set[Path] = set()
        self._sizes: dict[Path, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = set(_files(self._directory))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    def figures(self) -> dict[str, Any]:
        """Return the micro-batches, the bytes that each wrote, and the bytes of the directory."""
        self._read()
        batches = sum(path.parent.name == "commits" and path.name.isdigit() for path in self._sizes)
        written = sum(self._sizes.values())
        return {
            "micro_batches": batches,
            "checkpoint_bytes_a_micro_batch": round(written / batches) if batches else 0,
            "checkpoint_bytes": sum(_files(self._directory).values()),
        }

    def _watch(self) -> None:
        while not self._stopping.wait(1.0):
            self._read()

    def _read(self) -> None:
        for path, size in _files(self._directory).items():
            if path not in self._before and not path.name.startswith("."):
                self._sizes[path] = max(size, self._sizes.get(path, 0))


def _files(directory: Path) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for path in directory.rglob("*"):
        try:
            if path.is_file():
                found[path] = path.stat().st_size
        except OSError:
            continue  # deleted meanwhile
    return found


def jvm_mb(job: int) -> int:
    """Return the resident memory of the JVM of a job, with RocksDB."""
    return round(max(child.memory_info().rss for child in psutil.Process(job).children()) / 1e6)


def measure(people: int, rate: float, seconds: float, warm_seconds: float = WARM_UP_SECONDS) -> dict[str, Any]:
    """Return the figures with so many people."""
    events = 2 * people if people < PEOPLE[0] else max(_LEAST_EVENTS, 2 * people)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, stack(Path(scratch) / "stack") as made:
        history(made, events, people)
        bench = Bench(made, Path(scratch), warm_seconds=warm_seconds)
        try:
            held = bench.read_history(events)
            with Checkpoint(Path(scratch) / "checkpoints") as checkpoint:
                live = bench.at_rate(rate, seconds)
                written = checkpoint.figures()
            memory = {"jvm_mb": jvm_mb(bench.job.pid)}
        finally:
            bench.close()
    warmed = {"warm_up_seconds": warm_seconds}
    return {"history_events": events, "history_events_per_second": round(held), **warmed, **live, **memory, **written}


def rows(people: dict[str, dict[str, Any]]) -> Iterator[goals.Row]:
    """Yield the rows of the table. Only the memory of a worker has a goal."""
    for count, one in people.items():
        written = f"checkpoint {one['checkpoint_bytes_a_micro_batch']:,} B a micro-batch"
        figure = f"p99 {one['p99_seconds']} s, {one['cpu_us_an_event']} CPU-µs, {written}"
        yield goals.Row(f"{int(count):,} people, {one['events_per_second']:,} events/s", figure)
        worker = one["largest_python_worker_mb"]
        yield goals.Row("  Python worker", f"{worker} MB", "<= 256 MB", worker <= 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=PEOPLE, help="sizes; --write leaves other sizes as they were")
    parser.add_argument("--rate", type=float, default=RATE, help="events/s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the measurement")
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument("--write", action="store_true", help="keep the result in benchmarks/results/spark_scale.json")
    asked = parser.parse_args()
    if asked.small:
        asked.people, asked.rate, asked.seconds, asked.write = (2_000,), 1_000, 10.0, False
    warm_seconds = WARM_SLICE_SECONDS if asked.small else WARM_UP_SECONDS
    found: dict[str, Any] = {}
    for people in asked.people:
        before = os.getloadavg()
        found[str(people)] = measure(people, asked.rate, asked.seconds, warm_seconds) | {
            "load_average_5m_before": round(before[1], 1)
        }
        print(people, found[str(people)], flush=True)
    result = {"benchmark": "spark_scale", "cores": os.cpu_count(), "traits": TRAITS, "seconds": asked.seconds}
    earlier = kept("spark_scale").get("people", {}) if asked.write else {}
    result["people"] = dict(sorted((earlier | found).items(), key=lambda one: int(one[0])))
    print(json.dumps(result, indent=1))
    print(goals.as_text(rows(result["people"])))
    if asked.write:
        keep("spark_scale", result)


if __name__ == "__main__":
    main()
