"""The job `views` over a history beside reading and decoding alone, with its processor time by part. Prints JSON.

    python benchmarks/spark_views.py [--events 1000000] [--warm-up 1000000] [--days 1] [--rounds 3] [--small] [--write]

Each round reads and decodes the topic of events, with the fields that computed traits need, into a sink that drops everything; then
the job computes its view of the same events from the beginning, with its rows in Cassandra; then it computes two of that view. The
job has one query for its views and one for the dead letters of the topic; both read the topic. A further view costs the difference
between the job with two views and that with one, of which the rows that it writes are a part: the fewer days the events have, the
fewer rows they change. The job begins with `--warm-up` further events, which are not measured: meanwhile
the JVM compiles the code of the queries, which costs a job that runs for days nothing.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
from common import goals, shop
from common.bench import Progress, Stack, Watched, keep, stack
from common.segmenting import load
from common.spark_cpu import Meter, Spent
from spark_profiles import Bench, settings

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.testing import free_port
from starling_local.runtime import runtime_jars
from starling_spark.jobs.profiles.fold.matches import EVENT_FIELDS
from starling_spark.session.spark import open_session

GOAL: Final = 0.3
PATIENCE_SECONDS: Final = 1_800.0
MANY_VIEWS: Final = Path(__file__).parent / "common" / "many_views.py"


def decoding(made: Stack, directory: Path) -> dict[str, float]:
    """Return seconds and CPU seconds of reading and decoding alone, after a round that warms up."""
    spark = open_session("benchmark", settings(made, directory), is_streaming=True)
    try:
        with Meter() as meter:
            bench = Bench(made, spark, directory, meter)
            bench.read(EVENT_FIELDS)
            return dict(bench.read(EVENT_FIELDS)._asdict())
    finally:
        spark.stop()


def views(made: Stack, directory: Path, number: int, asked: argparse.Namespace, copies: int) -> dict[str, float]:
    """Return seconds and CPU seconds of the job, with copies of its view, in a new process with a new checkpoint."""
    events, all_events = asked.events, asked.warm_up + asked.events
    group = f"views-{number}-{copies}"
    environment = made.environment() | {
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_CLOCK": "event",
        "STARLING_INSTANCE_ID": "views-0",
        "STARLING_CHECKPOINT_DIR": str(directory / group),
        "STARLING_SPARK_JARS": os.pathsep.join(str(jar) for jar in runtime_jars("spark")),
        "STARLING_VIEWS_GROUP": group,
        "STARLING_VIEWS_TRIGGER_SECONDS": "0.1",
    }
    job = Watched([sys.executable, str(MANY_VIEWS), str(copies)], environment, directory / f"{group}.log")
    try:
        with closing(Progress(made.brokers, group, BEHAVIOUR)) as progress, Spent(job.pid) as spent:
            progress.wait(asked.warm_up, job, PATIENCE_SECONDS)
            began, first, before = time.monotonic(), progress.done(), spent.seconds()
            progress.wait(all_events, job, PATIENCE_SECONDS)
            share = events / (all_events - first)
            found = {"seconds": (time.monotonic() - began) * share, "cpu_seconds": (spent.seconds() - before) * share}
            return found | {"rows": rows_written(environment["STARLING_HTTP__PORT"]) / all_events * events}
    finally:
        job.stop()


def rows_written(port: str) -> float:
    """Return the rows that the job has written since its start."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("starling_views_rows_total{"))


def measure(made: Stack, directory: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Rounds in turns, medians."""
    events, all_events = asked.events, asked.warm_up + asked.events
    alone: list[dict[str, float]] = []
    one: list[dict[str, float]] = []
    two: list[dict[str, float]] = []
    for number in range(asked.rounds):
        alone.append(decoding(made, directory / f"read-{number}"))
        one.append(views(made, directory, number, asked, 1))
        two.append(views(made, directory, number, asked, 2))
        print(f"round {number}: reading and decoding {alone[-1]}, one view {one[-1]}, two views {two[-1]}", flush=True)
    found = {"read_and_decode": figures(alone, all_events), "view": figures(one, events), "two_views": figures(two, events)}
    read, single, double = (part["cpu_us_an_event"] for part in found.values())
    return found | {"cpu_of_read_and_decode": round(single / read, 2), "further_view": round((double - single) / read, 2)}


def figures(rounds: list[dict[str, float]], events: int) -> dict[str, float]:
    """Return the medians."""
    seconds, cpu = (statistics.median(one[name] for one in rounds) for name in ("seconds", "cpu_seconds"))
    written = {"rows": round(statistics.median(one["rows"] for one in rounds))} if "rows" in rounds[0] else {}
    return {"events_per_second": round(events / seconds), "cpu_us_an_event": round(cpu / events * 1e6, 2), **written}


def rows(result: dict[str, Any]) -> Iterator[goals.Row]:
    """Yield the row of the table."""
    found, further = result["cpu_of_read_and_decode"], result["further_view"]
    figure = f"{result['view']['cpu_us_an_event']} µs an event: {found} x"
    yield goals.Row("the job with a view, of reading and decoding, by CPU", figure)
    yield goals.Row("a further view", f"{further} x", f"<= {GOAL} x", further <= GOAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--warm-up", type=int, default=1_000_000, help="events before those that are measured")
    parser.add_argument("--days", type=int, default=1, help="of event time over which all events are spread")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="so light that it is over in minutes; not representative")
    parser.add_argument(
        "--write", action="store_true", help="keep the result in benchmarks/results/spark_views.json, or spark_views_90_days.json"
    )
    asked = parser.parse_args()
    if asked.small:
        asked.events, asked.warm_up, asked.users, asked.rounds, asked.write = 400_000, 400_000, 2_000, 1, False
    shop.USERS = asked.users
    before = round(os.getloadavg()[1], 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, stack(Path(directory) / "stack", cassandra=True) as made:
        names = (shop.WIDE_NAMES, shop.WIDE_WEIGHTS)
        load(made, BEHAVIOUR, shop.behaviour(asked.warm_up + asked.events, 1, shop.FIRST_MS, asked.days * shop.DAY_MS, names))
        found = measure(made, Path(directory), asked)
    result = {
        "benchmark": "spark_views",
        "cores": os.cpu_count(),
        "events": asked.events,
        "warm_up_events": asked.warm_up,
        "users": asked.users,
        "days": asked.days,
        "rounds": asked.rounds,
        "load_average_5m_before": before,
        **found,
    }
    print(json.dumps(result, indent=1))
    print(goals.as_text(rows(result)))
    if asked.write:
        keep("spark_views" if asked.days == 1 else f"spark_views_{asked.days}_days", result)


if __name__ == "__main__":
    main()
