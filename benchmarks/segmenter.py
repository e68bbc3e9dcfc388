"""Throughput of one segmenter worker: real broker, exactly once, changelog on, 20 segments, 100,000 users.

    python benchmarks/segmenter.py [--events 400000] [--rounds 3] [--peer-events 40000] [--stack stack.json]

Every user has a profile first (one record each; not measured). Each round writes events, starts the worker process and
measures it from its first committed offsets to its last. Stock Faust with a RocksDB table then does the same work on the
same topics. Prints JSON; `--write` stores it as benchmarks/results/segmenter.json. `--stack` names a JSON file with
`brokers` and `registry_url` of a stack for this benchmark alone, which writes to the product's topics; without it an
embedded stack is started and deleted afterwards.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from common import segmenting, shop
from common.bench import HERE, PARTITIONS, Progress, Rate, Stack, add_topics, deployed, keep, medians, stack, steady_rate

from starling_common.kafka.topics import BEHAVIOUR, PROFILE, SEGMENT_DEFINITIONS


@contextmanager
def running(described: Path | None, directory: Path) -> Iterator[Stack]:
    if described is not None:
        document = json.loads(described.read_text())
        yield _with_peer_topics(deployed(Stack(document["brokers"], document["registry_url"])))
        return
    with stack(directory / "stack") as made:
        yield _with_peer_topics(made)


def _with_peer_topics(made: Stack) -> Stack:
    # Stock Faust would create these topics later; here they have the same number of partitions as all others.
    add_topics(made.brokers, dict.fromkeys(("stock-segmenter-membership", "stock-segmenter-membership-state"), PARTITIONS))
    return made


def measured(made: Stack, directory: Path, topic: str, until: int) -> Rate:
    """Measure a worker from the first offsets that it commits to the last but one before `until`."""
    progress = Progress(made.brokers, segmenting.GROUP, topic)
    before, worker = progress.done(), segmenting.start(made, directory)
    try:
        return steady_rate(worker, progress, before + 1, until)
    finally:
        worker.stop()
        progress.close()


def peer(made: Stack, directory: Path, topic: str, count: int) -> Rate:
    environment = {
        **made.environment(),
        "PYTHONPATH": str(HERE),
        "PEER_INPUT": topic,
        "PEER_COUNT": str(count),
        "PEER_DATA_DIR": str(directory / "peer"),
    }
    command = [sys.executable, str(HERE / "peers" / "stock_faust" / "app.py"), "worker", "--without-web", "-l", "error"]
    with (directory / "peer.log").open("ab") as log:
        found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, check=True, timeout=1800)
    lines = [line for line in found.stdout.decode().splitlines() if line.startswith('{"events"')]
    return Rate(**json.loads(lines[-1]))


def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    shop.USERS = arguments.users
    with running(arguments.stack, directory) as made:
        segmenting.load(made, SEGMENT_DEFINITIONS, shop.definitions())
        segmenting.load(made, PROFILE, shop.profiles())
        measured(made, directory, PROFILE, arguments.users)
        # Three live rounds of an hour each, in which few windows end; then one as when history is loaded: ten days,
        # in which about every second event is followed by a user's exit on a timer.
        ours, at_ms = [], shop.FIRST_MS
        for number, span_ms in enumerate([segmenting.HOUR_MS] * arguments.rounds + [10 * shop.DAY_MS], 1):
            segmenting.load(made, BEHAVIOUR, shop.behaviour(arguments.events, number, at_ms, span_ms))
            ours.append(measured(made, directory, BEHAVIOUR, arguments.events * number))
            print(f"round {number}: {ours[-1]}", file=sys.stderr, flush=True)
            at_ms += span_ms
        theirs = []
        if arguments.peer_events:
            peer(made, directory, PROFILE, arguments.users)
            theirs.append(peer(made, directory, BEHAVIOUR, arguments.peer_events))
    return report(arguments, ours, theirs)


def report(arguments: argparse.Namespace, ours: list[Rate], theirs: list[Rate]) -> dict[str, Any]:
    found = {
        "users": arguments.users,
        "segments": len(shop.conditions()),
        "cores": psutil.cpu_count(),
        "load_average_15_min": round(os.getloadavg()[2], 1),
        "segmenter": medians(ours[:-1]),
        "segmenter_history": medians(ours[-1:]),
    }
    if theirs:
        found["stock_faust"] = medians(theirs)
        per_second = found["segmenter"]["events_per_second"] / found["stock_faust"]["events_per_second"]
        found["times_stock_faust"] = round(per_second, 1)
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--events", type=int, default=400_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--users", type=int, default=shop.USERS)
    arguments.add_argument("--peer-events", type=int, default=40_000)
    arguments.add_argument("--stack", type=Path)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--keep", type=Path, help="a directory in which logs and state are kept")
    parsed = arguments.parse_args()
    with tempfile.TemporaryDirectory() as thrown_away:
        directory = parsed.keep or Path(thrown_away)
        directory.mkdir(parents=True, exist_ok=True)
        found = run(parsed, directory)
    print(json.dumps(found, indent=2))
    if parsed.write:
        keep("segmenter", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
