"""The stream layer's speed, compared with its peers: prints a table, writes benchmarks/results/stream.json.

    python benchmarks/stream.py [--only counter,segments,latency] [--small] …

Every part starts a stack of its own and deletes it afterwards. benchmarks/README.md explains the measurements.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from common.bench import HERE, keep, stack
from common.goals import table
from stream_parts import counter, latency_under_load, lateness, scale, state

SMALL = {
    "events": 200_000,
    "users": 20_000,
    "peer_events": 20_000,
    "rounds": 1,
    "curve_events": 50_000,
    "curve_users": 5_000,
    "latency_seconds": 10,
    "timers": 50_000,
    "late_users": 2_000,
    "late_past": 4_000,
    "late_rate": 200,
    "late_seconds": 15,
    "state_users": "20000",
    "restore_events": 150_000,
    "faust_users": 10_000,
    "soak_seconds": 20,
}
"""Loads for seconds instead of minutes: a check that everything runs, without meaningful figures."""

_COUNTS = (1, 10, 100, 1000)


def job_1(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    chosen = counter.contenders(options.events, options.peer_events)
    with stack(directory / "stack") as made:
        counter.load(made, options.events, options.users)
        compared = counter.compare(made, directory, options.rounds, chosen, options.warm_up)
    return {"events": options.events, "users": options.users, "warm_up": options.warm_up, **compared}


def job_2(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return scale.at_size(directory, 100, options.users, options.events, options.rounds, scale.EVERY_KIND)


def thousand(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return scale.at_size(directory, 1_000, options.users, options.events, options.rounds, scale.EVERY_KIND)


def curve(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return scale.curve(directory, _COUNTS, options.curve_users, options.curve_events, scale.EVERY_KIND)


def crowded(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return scale.at_size(directory, 100, options.users, options.events, 1, scale.CROWDED)


def crowded_curve(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return scale.curve(directory, _COUNTS, options.curve_users, options.curve_events, scale.CROWDED)


def latency(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return latency_under_load.half_rate(directory, options.users, options.latency_seconds, options.latency_rate)


def timers(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    return latency_under_load.timer_wave(directory, options.timers)


def late(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    load = lateness.Load(options.late_users, options.late_past, options.late_rate, options.late_seconds)
    return lateness.under_load(directory, load)


def states(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Run each number of users; the soak runs with the most users only."""
    found, counts = {}, sorted(int(count) for count in options.state_users.split(","))
    for users in counts:
        soak_seconds = options.soak_seconds if users == counts[-1] else 0
        chosen = state.Options(soak_seconds, options.restore_events, options.faust_users)
        found[str(users)] = state.measured(directory / str(users), users, chosen)
    return found


PARTS: Mapping[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "counter": job_1,
    "segments": job_2,
    "thousand": thousand,
    "curve": curve,
    "crowded": crowded,
    "crowded_curve": crowded_curve,
    "latency": latency,
    "timers": timers,
    "lateness": late,
    "state": states,
}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, comma separated")
    parser.add_argument("--small", action="store_true", help="everything in a few minutes, such as for CI")
    parser.add_argument("--events", type=int, default=1_000_000, help="of jobs 1 and 2")
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument(
        "--peer-events", type=int, default=40_000, help="events of stock Faust; Quix Streams gets five times as many"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-up", type=float, default=0.3, help="fraction of job 1 before the measurement, in which a JVM compiles"
    )
    parser.add_argument("--curve-events", type=int, default=200_000)
    parser.add_argument("--curve-users", type=int, default=20_000)
    parser.add_argument("--latency-seconds", type=int, default=60)
    parser.add_argument("--latency-rate", type=int, help="events a second; default: half the rate of a backlog")
    parser.add_argument("--timers", type=int, default=1_000_000)
    parser.add_argument("--late-users", type=int, default=100_000)
    parser.add_argument("--late-past", type=int, default=100_000, help="events whose windows end during the measurement")
    parser.add_argument("--late-rate", type=int, default=1_000, help="live events a second beside the timers")
    parser.add_argument("--late-seconds", type=int, default=60)
    parser.add_argument("--state-users", default="200000,2000000")
    parser.add_argument("--restore-events", type=int, default=1_000_000)
    parser.add_argument(
        "--faust-users", type=int, default=200_000, help="states that stock Faust recovers; its time is scaled to more"
    )
    parser.add_argument("--soak-seconds", type=int, default=900)
    parser.add_argument("--keep", type=Path, help="a directory for logs and state, kept until the next run")
    parser.add_argument("--out", default="stream", help="the name of the file in benchmarks/results")
    return parser


def main() -> int:
    # SIGTERM also ends the workers and the stack.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = arguments()
    if "--small" in sys.argv:
        parser.set_defaults(**SMALL)
    options = parser.parse_args()
    known = HERE / "results" / f"{options.out}.json"
    found: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = (options.keep or Path(temporary)).absolute()
        for name in options.only.split(","):
            print(f"{name} ...", file=sys.stderr)
            shutil.rmtree(directory / name, ignore_errors=True)
            measured = PARTS[name](options, directory / name)
            setting = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "cores": psutil.cpu_count()}
            found[name] = {**setting, "load_average_5m": round(os.getloadavg()[1], 1), **measured}
            # Stored after each part, so that an error in the last part loses no figures.
            keep(options.out, found)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
