"""Kills the drivers of the lake and of the views at random moments, under load, and compares what is there in the
end with what was sent: `python -m tests.faults_spark.lake_and_views [--job lake|views] [--kills 20] [--seed N]`.
Exit code 1 names the difference.

The load: orders of two writers, one a schema version ahead, interleaved; late ones; broken ones. Both jobs are started
again each time as a supervisor would; one of the restarts of the lake finds no checkpoint.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.settings import Cassandra
from starling_common.testing import Service, own_keyspace
from starling_common.time.instants import format_instant
from starling_local.testing import embedded
from tests.conftest import Stack, deployed
from tests.integration.spark.lake_instance import LakeInstance, behaviour, received
from tests.integration.spark.views_instance import ViewsInstance

WINDOW_MS = 6 * 3_600_000
START_MS = 1_700_049_600_000
TABLE_OF = {"ingest.track": "ingest_items", BEHAVIOUR: "behaviour_events"}
Start = Callable[[bool], AbstractContextManager[Service]]
"""`ready`: yields when the job is ready, else at once."""


class Load:
    """Calls `send` again and again until it is stopped."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send, self._stopping = send, threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.5):
                self._send()
        except BaseException as failure:  # noqa: BLE001 - raised when the load ends
            self._failure = failure


def kill_often(start: Start, kills: int, chance: random.Random, between: Callable[[int], None]) -> None:
    """Start and kill; a third of the kills hit the start itself, or the repetition of what was cut off."""
    for number in range(kills):
        ready = number % 3 > 0
        with start(ready) as service:
            time.sleep(chance.uniform(0.0, 8.0) if ready else chance.uniform(5.0, 25.0))  # sleep: a random instant of the kill
            service.kill()
        report(f"kill {number + 1} of {kills}")
        between(number)


def lake(stack: Stack, directory: Path, kills: int, chance: random.Random) -> list[str]:
    """Every record exactly once, in its table or in the quarantine."""
    made = LakeInstance(stack, directory)
    made.deploy()
    newer = made.newer_writer(BEHAVIOUR, "region")
    broken: set[bytes] = set()

    def send() -> None:
        old = [made.value(BEHAVIOUR, behaviour(f"e{chance.random()}")) for _ in range(20)]
        poison = chance.randbytes(12)
        broken.add(poison)
        made.send(BEHAVIOUR, *[one for value in old for one in (value, newer.value(value, "eu"))], poison)
        made.send("ingest.track", *[made.value("ingest.track", received("track", {"event": "E"})) for _ in range(20)], poison)

    def between(number: int) -> None:
        if number == kills // 2:
            shutil.rmtree(directory / "checkpoints", ignore_errors=True)
            report("the checkpoint is gone")

    with Load(send):
        # Upkeep and micro-batches as many as can be: a kill must find each of them at work.
        often = {"STARLING_LAKE_UPKEEP_MINUTES": "0.05", "STARLING_LAKE_KEEP_HOURS": "0.001", "STARLING_LAKE_BATCH_RECORDS": "300"}
        kill_often(lambda ready: made.running(ready=ready, **often), kills, chance, between)
    with made.running() as service:
        made.settle(service, 600)
        service.stop()
    expected: dict[str, Counter[tuple[str, int, int]]] = {table: Counter() for table in (*TABLE_OF.values(), "quarantine")}
    for place, value in made.sent.items():
        expected["quarantine" if value in broken else TABLE_OF[place[0]]][place] += 1
    found = {table: Counter(made.places(table)) for table in expected}
    report(f"sent {sum(map(len, expected.values()))}, found { ({table: sum(places.values()) for table, places in found.items()}) }")
    made.remove()
    return [f"{table}: {len(expected[table] - found[table])} are missing, {len(found[table] - expected[table])} too many"
            for table in expected if expected[table] != found[table]]  # fmt: skip


def views(stack: Stack, cassandra: Cassandra, directory: Path, kills: int, chance: random.Random) -> list[str]:
    """Every row is the sum of all orders of its window, late ones included."""
    made = ViewsInstance(stack, cassandra, directory)
    made.deploy()
    sums: dict[tuple[str, str, str], list[Decimal]] = {}
    moment = START_MS

    def send() -> None:
        nonlocal moment
        for _ in range(40):
            moment += chance.randrange(600_000)
            at_ms = moment - chance.choice([0, 0, 0, 3 * WINDOW_MS, 40 * WINDOW_MS])
            product, region, cents, quantity = (
                f"p{chance.randrange(3)}",
                chance.choice("AB"),
                chance.randrange(10_000),
                chance.randrange(5),
            )
            order = {"product_id": product, "revenue": cents / 100, "quantity": quantity}
            made.order(at_ms, order, partition=chance.randrange(2), region=region)
            row = sums.setdefault((format_instant(at_ms - at_ms % WINDOW_MS), product, region), [Decimal(0), Decimal(0)])
            row[0] += Decimal(cents) / 100
            row[1] += quantity
        made.send(chance.randbytes(12))
        made.producer.flush(30)

    with Load(send):
        kill_often(lambda ready: made.running(ready=ready), kills, chance, lambda _: None)
    with made.running() as service:
        made.settle(service, 600)
        service.stop()
    rows, _ = made.asked()
    expected = {key: (float(revenue), float(quantity)) for key, (revenue, quantity) in sums.items()}
    report(f"sent {made.sent} orders; {len(rows)} rows")
    made.remove()
    return [f"{key}: {rows.get(key)} and not {expected.get(key)}" for key in sorted(rows.keys() | expected.keys())
            if rows.get(key) != expected.get(key)]  # fmt: skip


def run(jobs: list[str], kills: int, seed: int) -> int:
    """0 when everything is there exactly once."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="starling-spark-faults-") as scratch, embedded(
        {"kafka", "registry", "cassandra"}, Path(scratch) / "stack"
    ) as found:  # fmt: skip
        cassandra = Cassandra(contact_points=found.cassandra_host, port=found.cassandra_port)
        stack = deployed(Stack(found.kafka, found.registry_url, cassandra))
        for job in jobs:
            directory = Path(scratch) / job
            directory.mkdir()
            report(f"{job}: {kills} kills, seed {seed}")
            if job == "lake":
                differences = lake(stack, directory, kills, random.Random(seed))
            else:
                with own_keyspace(cassandra) as own:
                    differences = views(stack, own, directory, kills, random.Random(seed))
            faults += [f"{job}: {fault}" for fault in differences]
    for fault in faults[:20]:
        report(fault)
    report(json.dumps({"jobs": jobs, "kills": kills, "seed": seed, "faults": len(faults)}))
    return 1 if faults else 0


def report(text: str) -> None:
    """One line."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=("lake", "views"), action="append")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    asked = parser.parse_args()
    sys.exit(run(asked.job or ["lake", "views"], asked.kills, asked.seed))
