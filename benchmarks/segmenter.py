"""How many events one segmenter worker takes: real broker, exactly once, changelog on, 20 segments, 100,000 users.

    python benchmarks/segmenter.py [--events 400000] [--rounds 3] [--peer-events 40000] [--stack stack.json]

Every user is known first (one profile record each; not measured). Then, round by round, a stretch of events is written,
the worker process is started on it, and is measured from its first committed offsets to its last. The peer,
stock Faust with a RocksDB table, then does the same work on the same topics. Prints JSON; `--write` keeps it as
benchmarks/results/segmenter.json. `--stack` is a JSON file with `brokers` and `registry_url` of a stack of this
benchmark's own (it writes to the product's topics); without it an embedded one is started and thrown away.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import shop
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.deploy import create_topics, register_schemas
from starling_common.headers import record_headers
from starling_common.kafka import consumer_config, producer_config
from starling_common.topics import BEHAVIOUR, PROFILE, SEGMENT_DEFINITIONS, load_catalogue
from starling_common.wire import Registry
from starling_local.testing import embedded

HERE = Path(__file__).resolve().parent
GROUP = "starling-segmenter"
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Stack:
    brokers: str
    registry_url: str

    def environment(self) -> dict[str, str]:
        return {**os.environ, "STARLING_KAFKA__BROKERS": self.brokers, "STARLING_REGISTRY__URL": self.registry_url}


@contextmanager
def running(described: Path | None, directory: Path) -> Iterator[Stack]:
    if described is not None:
        document = json.loads(described.read_text())
        yield _deployed(Stack(document["brokers"], document["registry_url"]))
        return
    with embedded({"kafka", "registry"}, directory / "stack") as found:
        yield _deployed(Stack(found.kafka, found.registry_url))


def _deployed(stack: Stack) -> Stack:
    topics = list(load_catalogue().topics.values())
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    create_topics(admin, topics, 1)
    register_schemas(Registry(stack.registry_url), topics)
    # Stock Faust would make these as it goes; here they have the partitions of all others from the start.
    for name in ("stock-segmenter-membership", "stock-segmenter-membership-state"):
        if name not in admin.list_topics(timeout=30).topics:
            admin.create_topics([NewTopic(name, load_catalogue().profile_partitions, 1)])[name].result()
    return stack


def load(stack: Stack, topic: str, records: Iterator[tuple[bytes, dict[str, Any]]]) -> None:
    codec = Registry(stack.registry_url).codec(topic, load_catalogue().topics[topic].schema)
    producer = Producer(producer_config(stack.brokers, **{"queue.buffering.max.messages": 2_000_000, "linger.ms": 50}))
    for number, (key, record) in enumerate(records):
        headers = record_headers(record["correlation_id"], "benchmark")
        producer.produce(topic, codec.encode(record), key, timestamp=int(time.time() * 1000), headers=headers)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def committed(consumer: Consumer, topic: str) -> int:
    places = [TopicPartition(topic, number) for number in range(load_catalogue().profile_partitions)]
    for _ in range(100):
        try:
            return sum(max(0, place.offset) for place in consumer.committed(places, timeout=30))
        except KafkaException as cause:
            # A broker that has just begun finds its groups' coordinator a little later.
            if cause.args[0].code() not in {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}:
                raise
            time.sleep(0.1)
    raise RuntimeError("the group has no coordinator")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Worker:
    """`python -m starling_segmenter`, watched by what it commits."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self._consumer = Consumer(consumer_config(stack.brokers, GROUP))
        self._log = (directory / "worker.log").open("ab")
        environment = {
            **stack.environment(),
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_CLOCK": "event",
            "STARLING_INSTANCE_ID": "segmenter-0",
            "STARLING_STATE_DIR": str(directory / "state"),
        }
        command = [sys.executable, "-m", "starling_segmenter"]
        self._process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=subprocess.STDOUT)

    def measure(self, topic: str, until: int) -> dict[str, float]:
        """Events, wall seconds and CPU seconds from the first offsets that it commits to `until`."""
        before = committed(self._consumer, topic)
        first: tuple[float, float, int] | None = None
        while True:
            if self._process.poll() is not None:
                raise RuntimeError("the worker stopped: see worker.log")
            done, now = committed(self._consumer, topic), time.monotonic()
            if first is None and done > before:
                first = (now, self._cpu_seconds(), done)
            if first is not None and done >= until:
                return {"events": done - first[2], "seconds": now - first[0], "cpu_seconds": self._cpu_seconds() - first[1]}
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._consumer.close()
        self._log.close()

    def _cpu_seconds(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


def measured(stack: Stack, directory: Path, topic: str, until: int) -> dict[str, float]:
    worker = Worker(stack, directory)
    try:
        return worker.measure(topic, until)
    finally:
        worker.stop()


def peer(stack: Stack, directory: Path, topic: str, count: int) -> dict[str, float]:
    environment = {
        **stack.environment(),
        "PYTHONPATH": str(HERE),
        "PEER_INPUT": topic,
        "PEER_COUNT": str(count),
        "PEER_DATA_DIR": str(directory / "peer"),
    }
    command = [sys.executable, str(HERE / "peers" / "stock_faust" / "app.py"), "worker", "--without-web", "-l", "error"]
    with (directory / "peer.log").open("ab") as log:
        found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, check=True, timeout=1800)
    lines = [line for line in found.stdout.decode().splitlines() if line.startswith('{"events"')]
    return dict(json.loads(lines[-1]))


def rates(runs: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "events": [run["events"] for run in runs],
        "events_per_second": round(statistics.median(run["events"] / run["seconds"] for run in runs)),
        "events_per_cpu_second": round(statistics.median(run["events"] / run["cpu_seconds"] for run in runs)),
    }


def run(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    shop.USERS = arguments.users
    with running(arguments.stack, directory) as stack:
        load(stack, SEGMENT_DEFINITIONS, shop.definitions())
        load(stack, PROFILE, shop.profiles())
        measured(stack, directory, PROFILE, arguments.users)
        # Three rounds as live, an hour each, in which few windows run out; then one as when history is loaded: ten days,
        # in which about every second event is followed by somebody's exit on a timer.
        ours, at_ms = [], shop.FIRST_MS
        for number, span_ms in enumerate([HOUR_MS] * arguments.rounds + [10 * shop.DAY_MS], 1):
            load(stack, BEHAVIOUR, shop.behaviour(arguments.events, number, at_ms, span_ms))
            ours.append(measured(stack, directory, BEHAVIOUR, arguments.events * number))
            print(f"round {number}: {ours[-1]}", file=sys.stderr, flush=True)
            at_ms += span_ms
        theirs = []
        if arguments.peer_events:
            peer(stack, directory, PROFILE, arguments.users)
            theirs.append(peer(stack, directory, BEHAVIOUR, arguments.peer_events))
    return report(arguments, ours, theirs)


def report(arguments: argparse.Namespace, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, Any]:
    found = {
        "users": arguments.users,
        "segments": len(shop.conditions()),
        "cores": psutil.cpu_count(),
        "load_average_15_min": round(os.getloadavg()[2], 1),
        "segmenter": rates(ours[:-1]),
        "segmenter_history": rates(ours[-1:]),
    }
    if theirs:
        found["stock_faust"] = rates(theirs)
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
    arguments.add_argument("--keep", type=Path, help="a directory for logs and state that is not thrown away")
    parsed = arguments.parse_args()
    with tempfile.TemporaryDirectory() as thrown_away:
        directory = parsed.keep or Path(thrown_away)
        directory.mkdir(parents=True, exist_ok=True)
        found = json.dumps(run(parsed, directory), indent=2)
    print(found)
    if parsed.write:
        (HERE / "results" / "segmenter.json").write_text(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
