"""How long the past of one new segment takes to gather, and what that costs the live traffic beside it.

    python benchmarks/backfill.py [--events 10000000] [--users 1000000] [--live-events 400000] [--write]

First a topic full of events (drawn from 100,000 different ones, given to users at random), the segmenter's group at its end,
and one segment that waits: from the start of the job's process to its end, and by the job's own clock. Then, on a stack of its
own, a segmenter with 20 segments works off a backlog of events, once alone and once while the job gathers the past of a
21st: events a second of both; then how long each partition stands still at the switch, by the worker's log, is what is
left of the wait until the segment is in force. Prints JSON; `--write` keeps it as benchmarks/results/backfill.json.
"""

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
from common import segmenting, shop
from common.bench import PARTITIONS, Progress, Stack, Watched, keep, stack, write
from confluent_kafka import Consumer, TopicPartition

from starling_api.jobs.process import command
from starling_api.settings import ApiSettings
from starling_common.kafka.clients import TopicView, consumer_config
from starling_common.kafka.topics import BACKFILLS, BEHAVIOUR, PROGRESS, SEGMENT_DEFINITIONS, load_catalogue
from starling_common.testing import free_port
from starling_common.wire import Codec, Registry
from starling_rules.ledger import DONE, Run, applied

WHERE: Final = {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 300, "within": "90d"}
PAGES: Final = {"event": "Page Viewed", "op": "gte", "value": 12, "within": "30d"}
GOAL_SECONDS: Final = 180.0
_DIFFERENT: Final = 100_000


def codec(made: Stack, topic: str) -> Codec:
    return Registry(made.registry_url).codec(topic, load_catalogue().topics[topic].schema)


def fill(made: Stack, count: int, users: int) -> None:
    """Many events quickly: their bytes are encoded once, their users are drawn again each time."""
    encode = codec(made, BEHAVIOUR).encode
    values = [encode(record) for _, record in shop.behaviour(min(count, _DIFFERENT), 1, shop.FIRST_MS, 60 * shop.DAY_MS)]
    dice = random.Random(2)
    records = ((f"default/user-{int(dice.random() * users)}".encode(), value) for value in itertools.cycle(values))
    write(made.brokers, BEHAVIOUR, itertools.islice(records, count))


def define(made: Stack, key: str, where: dict[str, Any]) -> None:
    """One segment that waits for a backfill."""
    ((name, record),) = shop.definitions({key: where})
    value = codec(made, SEGMENT_DEFINITIONS).encode(record | {"awaits_backfill": True})
    write(made.brokers, SEGMENT_DEFINITIONS, iter([(name, value)]))


def stand_at_the_end(made: Stack) -> None:
    """As a segmenter that has processed everything."""
    consumer = Consumer(consumer_config(made.brokers, segmenting.GROUP))
    try:
        places = [TopicPartition(BEHAVIOUR, number) for number in range(PARTITIONS)]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def job(made: Stack, directory: Path) -> Watched:
    environment = made.environment() | {
        "STARLING_HTTP__PORT": str(free_port()),
        "STARLING_CLOCK": "event",
        "STARLING_INSTANCE_ID": "backfill",
        "STARLING_SPARK_DRIVER_MEMORY": "1g",
    }
    return Watched(command("backfill", ApiSettings.model_fields["job_nice"].default), environment, directory / "backfill.log")


class Cost:
    """The job's processes, looked at until they end: CPU seconds, and the most memory that they had at once."""

    def __init__(self, process: Watched) -> None:
        self._root = psutil.Process(process.pid)
        self._cpu: dict[int, float] = {}
        self.most_mb = 0.0

    def look(self) -> None:
        resident = 0.0
        for one in [self._root, *self._root.children(recursive=True)]:
            try:
                times = one.cpu_times()
                self._cpu[one.pid] = times.user + times.system
                resident += one.memory_info().rss / 1e6
            except psutil.NoSuchProcess:
                continue
        self.most_mb = max(self.most_mb, resident)

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu.values())


def followed(process: Watched) -> tuple[float, Cost]:
    """Seconds until it has ended, and what it cost. Raises: RuntimeError when it failed."""
    began, cost = time.monotonic(), Cost(process)
    wait(process, cost.look)
    return time.monotonic() - began, cost


def wait(process: Watched, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Until it has ended, which it may have already. Raises: RuntimeError when it failed."""
    while process.ended() is None:
        meanwhile()
        time.sleep(0.2)
    if process.ended():
        process.check()


def run_of(made: Stack) -> Run:
    """Return the newest reported run."""
    runs: dict[str, Run] = {}
    reports = codec(made, BACKFILLS)
    view = TopicView(made.brokers, BACKFILLS, lambda message: runs.update(applied(runs, reports.decode(message.value() or b""))))
    view.start()
    view.stop()
    return max(runs.values(), key=lambda run: run.started_at)


def bulk(directory: Path, events: int, users: int) -> dict[str, Any]:
    found: dict[str, Any] = {"events": events, "users": users}
    with stack(directory / "bulk") as made:
        began = time.monotonic()
        fill(made, events, users)
        found["written_in_seconds"] = round(time.monotonic() - began, 1)
        stand_at_the_end(made)
        for name, where in {"orders_sum_90d": WHERE, "pages_count_30d": PAGES}.items():
            define(made, name.replace("_", "-"), where)
            seconds, cost = followed(job(made, directory))
            run = run_of(made)
            assert run.state == DONE, (directory / "backfill.log").read_text()[-3000:]
            own = (run.recorded_at - run.started_at) / 1e6
            found[name] = {
                "seconds": round(seconds, 1),
                "seconds_without_the_start_of_spark": round(own, 1),
                "events_per_second": round(run.records_done / own),
                "users_with_a_state": sum(share.part.users for share in run.shares.values() if share.part is not None),
                "cpu_seconds": round(cost.cpu_seconds, 1),
                "most_memory_mb": round(cost.most_mb),
                "goal_seconds": GOAL_SECONDS if events == 10_000_000 else None,
            }
    return found


class InForce:
    """The segments that each partition reports as applied."""

    def __init__(self, made: Stack) -> None:
        self._codec = codec(made, PROGRESS)
        self._applied: dict[int, Any] = {}
        self._view = TopicView(made.brokers, PROGRESS, lambda message: self._apply(message.value() or b""))
        self._view.start()

    def everywhere(self, key: str) -> bool:
        return sum(f"default/{key}" in applied for applied in self._applied.values()) == PARTITIONS

    def close(self) -> None:
        self._view.stop()

    def _apply(self, value: bytes) -> None:
        record = self._codec.decode(value)
        self._applied[record["partition"]] = record["definitions"]


def backlog(made: Stack, count: int, seed: int) -> None:
    """Events that the worker has yet to take, after the past."""
    days = 60 + seed
    segmenting.load(made, BEHAVIOUR, shop.behaviour(count, seed, shop.FIRST_MS + days * shop.DAY_MS, shop.DAY_MS))


def rate(progress: Progress, worker: Watched, until: int, busy: Iterator[bool]) -> float:
    """Events a second, from the first commit that is seen while `busy` to the last."""
    first = last = None
    for is_busy in busy:
        worker.check()
        mark = (time.monotonic(), progress.done())
        if is_busy and first is None:
            first = mark
        if is_busy:
            last = mark
        if mark[1] >= until or (first is not None and not is_busy):
            break
        time.sleep(0.1)
    assert first is not None
    assert last is not None
    return (last[1] - first[1]) / (last[0] - first[0])


def live(directory: Path, past: int) -> dict[str, Any]:
    with stack(directory / "live") as made:
        segmenting.define(made, shop.conditions())
        worker = segmenting.make_known(made, directory, 50_000)
        progress, in_force = segmenting.events(made), InForce(made)
        try:
            backlog(made, past, 3)
            progress.wait(past, worker)
            backlog(made, past, 4)
            alone = rate(progress, worker, 2 * past - 1, itertools.repeat(True))
            progress.wait(2 * past, worker)
            backlog(made, 2 * past, 5)
            define(made, "late-comer", WHERE)
            process = job(made, directory)
            began = time.monotonic()
            beside = rate(progress, worker, 4 * past - 1, (process.ended() is None for _ in itertools.count()))
            wait(process)
            ended = time.monotonic()
            while not in_force.everywhere("late-comer"):
                worker.check()
                time.sleep(0.05)
            switched = time.monotonic() - ended
        finally:
            in_force.close()
            progress.close()
            worker.stop()
    return {
        "past_events": past * 2,
        "cores": os.cpu_count(),
        "events_per_second_alone": round(alone),
        "events_per_second_beside": round(beside),
        "slower_by_percent": round(100 * (1 - beside / alone), 1),
        "seconds_of_the_job": round(ended - began, 1),
        "seconds_from_the_end_of_the_job_until_in_force": round(switched, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="0: this part is left out")
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--live-events", type=int, default=400_000, help="half of the past; 0: this part is left out")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if asked.events:
            found["bulk"] = bulk(directory, asked.events, asked.users)
        if asked.live_events:
            found["live"] = live(directory, asked.live_events)
    print(json.dumps(found, indent=2))
    if asked.write:
        keep("backfill", found)


if __name__ == "__main__":
    main()
