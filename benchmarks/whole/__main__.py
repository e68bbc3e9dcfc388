"""What one event costs the whole platform, from the edge to the readable membership. Prints tables and writes JSON.

    python -m benchmarks.whole [--users 50000] [--events 200000] [--segments 20] [--changes 1] [--profile] [--freshness] [--matrix]

Starts an instance of its own with real parts, makes every user known, sends events to warm it up, sends the events through
`/v1/batch` as fast as the edge accepts them, and waits until `starling settle` returns and the states are flushed. Processor time
is that of each part's processes and their children, idle time included; the sender is not part of it. While the last states are
flushed nothing else happens: of that time only what exceeds an idle instance counts.

`--freshness` sends events at a quarter, half and three quarters of the measured rate, and measures how long after the edge's answer
a change is in the feed and in the read model. `--matrix` measures other numbers of segments, changes and workers, in turn, and
`--workers` one, two and four workers of each stage.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from whole.freshness import SHARES, Site, freshness
from whole.load import Load, segments
from whole.meters import Meters, Reading
from whole.profiles import profiles
from whole.report import print_report, result
from whole.yardstick import yardstick_micros

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "platform.json"
WRITE_KEY, TOKEN = "local-write-key", "local-admin-token"
PATIENCE = "900s"
SCALED = ("normalizer", "segmenter", "projector", "delivery")


def _workers(each: int) -> list[str]:
    """Return the options of an instance with that many workers of each stage."""
    return [f"{service}={each}" for service in SCALED]


MATRIX: tuple[Mapping[str, Any], ...] = (
    {"segments": 20, "changes": 1.0, "freshness": True},
    {"segments": 20, "changes": 0.2},
    {"segments": 20, "changes": 3.0},
    {"segments": 100, "changes": 1.0},
    {"segments": 1_000, "changes": 1.0, "users": 10_000, "events": 40_000, "warm_up_events": 40_000},
    {"segments": 20, "changes": 1.0, "scale": _workers(2)},
)
"""The cases of the table. With 1,000 segments an event changes about 23 memberships, so fewer events take as long."""


HISTORY = ROOT / "benchmarks" / "results" / "history.json"
HISTORY_PAIR: tuple[Mapping[str, Any], ...] = tuple(
    {"history_days": days, "users": 20_000, "events": 80_000, "warm_up_events": 80_000} for days in (30, 0)
)
"""With and without the events of users in the read model, one after the other."""

WORKERS = ROOT / "benchmarks" / "results" / "platform_workers.json"
WORKERS_SERIES: tuple[Mapping[str, Any], ...] = tuple({"scale": _workers(each)} for each in (1, 2, 4))
"""With one, two and four workers of each stage, one after the other."""


def starling(*words: str, check: bool = True) -> str:
    """Run a command of the command line; return its output."""
    done = subprocess.run([sys.executable, "-m", "starling_cli", *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"starling {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def send(url: str, bodies: Iterator[bytes]) -> None:
    """Send the bodies over four connections. A refused one (429, 503) is sent again after its `Retry-After`."""

    def one(client: httpx.Client, body: bytes) -> None:
        while True:
            answer = client.post("/v1/batch", content=body)
            if answer.status_code not in (429, 503):
                answer.raise_for_status()
                return
            time.sleep(min(1.0, float(answer.headers.get("Retry-After", "1"))))

    with httpx.Client(base_url=url, auth=(WRITE_KEY, ""), timeout=60) as client, ThreadPoolExecutor(4) as pool:
        waiting = []
        for body in bodies:
            waiting.append(pool.submit(one, client, body))
            if len(waiting) == 64:
                waiting.pop(0).result()
        for future in waiting:
            future.result()


def define(url: str, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Define the segments, and wait until all are in force."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as api:
        for key, where in wanted.items():
            api.post("/v1/segments", json={"key": key, "name": key, "where": where}).raise_for_status()
        deadline = time.monotonic() + 300
        for key in wanted:
            while api.get(f"/v1/segments/{key}").raise_for_status().json()["status"] != "active":
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{key} is not in force after 300 s")
                time.sleep(0.2)


def measure(arguments: argparse.Namespace, data_dir: Path) -> dict[str, Any]:
    """Run the load against a running instance; return the result."""
    instance = ("--data-dir", str(data_dir))
    status = json.loads(starling("status", "--json", *instance, check=False))
    urls = status["endpoints"]
    define(urls["api"], segments(arguments.segments, arguments.changes))
    load = Load(arguments.users, arguments.changes)
    # The JVMs compile what runs often: without further events before, the first ones cost a multiple of the later ones.
    for bodies in (load.profiles(), load.first_events(), load.events(arguments.warm_up_events)):
        send(urls["ingest"], bodies)
        starling("settle", "--timeout", PATIENCE, *instance)
    yardstick = yardstick_micros()
    meters = Meters(status, data_dir)
    time.sleep(arguments.flush_seconds)
    idle = _idle(meters, arguments.idle_seconds)
    before, began = meters.read(), time.monotonic()
    with profiles(meters, ROOT / "out" / "platform-profiles", enabled=arguments.profile):
        send(urls["ingest"], load.events(arguments.events))
        sent_at = time.monotonic()
        starling("settle", "--timeout", PATIENCE, *instance)
        ended = time.monotonic()
    if not arguments.profile:
        time.sleep(arguments.flush_seconds)  # the last flush to the backing store belongs to the events
    after, meted = meters.read(), time.monotonic()
    meters.close()
    after = _without(after, {name: used * (meted - ended) for name, used in idle.items()})
    idle_share = {name: used * (ended - began) for name, used in idle.items()}
    found = result(vars(arguments), before, after, idle_share, sent_seconds=sent_at - began, seconds=ended - began)
    found["yardstick_micros"] = round(min(yardstick, yardstick_micros()), 2)
    found["load_average_15m"] = round(os.getloadavg()[2], 1)
    if arguments.freshness:
        with Site(urls, WRITE_KEY, TOKEN) as site:
            rates = [share * found["events_per_second"] for share in SHARES]
            found["freshness"] = freshness(site, load, rates, arguments.freshness_seconds)
    return found


def _without(reading: Reading, idle: Mapping[str, float]) -> Reading:
    """Return the reading without what an idle instance used."""
    return reading._replace(cpu_seconds={name: used - idle.get(name, 0.0) for name, used in reading.cpu_seconds.items()})


def _idle(meters: Meters, seconds: float) -> dict[str, float]:
    """Return the processor seconds that each service uses in a second without events."""
    first: Reading = meters.read()
    time.sleep(seconds)
    second = meters.read()
    return {name: (second.cpu_seconds[name] - used) / seconds for name, used in first.cpu_seconds.items()}


def main() -> int:
    """Run one measurement and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--warm-up-events", type=int, default=200_000, help="events before the measured ones")
    parser.add_argument("--segments", type=int, default=20)
    parser.add_argument("--changes", type=float, default=1.0, help="membership changes an event by switches, 0 to 3")
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--flush-seconds", type=float, default=40.0, help="the wait for the last flush of the states")
    parser.add_argument("--freshness", action="store_true", help="measure latency under load too: three minutes more")
    parser.add_argument("--freshness-seconds", type=float, default=40.0, help="for each rate")
    parser.add_argument("--matrix", action="store_true", help="measure every case of the table: an hour")
    parser.add_argument("--scale", action="append", default=[], help="SERVICE=N, as `starling up --scale`")
    parser.add_argument("--history-days", type=int, default=30, help="as `starling up --history-days`")
    parser.add_argument("--port-base", type=int, default=26_000)
    parser.add_argument("--data-dir", type=Path, default=ROOT / "out" / "platform")
    parser.add_argument("--keep", action="store_true", help="leave the instance running")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="profile each process with py-spy, which must be installed, or the Flight Recorder (slower)",
    )
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--history-pair", action="store_true", help=f"measure with and without history, for {HISTORY.name}")
    parser.add_argument("--workers", action="store_true", help=f"measure one, two and four workers a stage, for {WORKERS.name}")
    arguments = parser.parse_args()
    if arguments.history_pair:
        _series(arguments, HISTORY, ("stored", "not-stored"), HISTORY_PAIR)
        return 0
    if arguments.workers:
        _series(arguments, WORKERS, ("one", "two", "four"), WORKERS_SERIES)
        return 0
    for case in MATRIX if arguments.matrix else ({},):
        _run(argparse.Namespace(**{**vars(arguments), **case}))
    return 0


def _series(arguments: argparse.Namespace, file: Path, names: Sequence[str], cases: Sequence[Mapping[str, Any]]) -> None:
    """Measure the cases in turn; keep all results in a file of their own if asked."""
    found = [_run(argparse.Namespace(**{**vars(arguments), **case, "write": False})) for case in cases]
    if arguments.write:
        file.write_text(json.dumps(dict(zip(names, found, strict=True)), indent=2) + "\n")


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one case in an instance of its own; print its tables, keep the result if asked, and return it."""
    data_dir = arguments.data_dir
    shutil.rmtree(data_dir, ignore_errors=True)
    scale = [word for one in arguments.scale for word in ("--scale", one)]
    history = ("--history-days", str(arguments.history_days))
    instance = ("--data-dir", str(data_dir))
    starling(
        "up", "--detach", "--no-spark", "--clock", "wall", "--port-base", str(arguments.port_base), *scale, *history, *instance
    )
    try:
        found = measure(arguments, data_dir)
    finally:
        if not arguments.keep:
            starling("down", *instance, check=False)
            shutil.rmtree(data_dir, ignore_errors=True)
    print_report(found)
    if arguments.write:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        name = "-".join([f"{arguments.segments}-segments-{arguments.changes:g}-switches", *arguments.scale])
        RESULTS.write_text(json.dumps(known | {name: found}, indent=2) + "\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
