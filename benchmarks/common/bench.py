"""What the benchmarks of the stream layer share: a stack of their own, load, watched processes, rates and results."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.deploy import DeploySettings, create_topics, deploy, register_schemas
from starling_common.headers import Headers
from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from starling_local.testing import embedded

HERE = Path(__file__).resolve().parent.parent
PARTITIONS = load_catalogue().profile_partitions


@dataclass(frozen=True)
class Stack:
    """Where a benchmark's own stack answers. `cassandra` is host:port, "" when it was not asked for."""

    brokers: str
    registry_url: str
    cassandra: str = ""

    def environment(self) -> dict[str, str]:
        """What a worker of ours needs to find it."""
        found = {**os.environ, "STARLING_KAFKA__BROKERS": self.brokers, "STARLING_REGISTRY__URL": self.registry_url}
        if self.cassandra:
            host, _, port = self.cassandra.partition(":")
            found |= {"STARLING_CASSANDRA__CONTACT_POINTS": host, "STARLING_CASSANDRA__PORT": port}
        return found


@contextmanager
def stack(directory: Path, *, cassandra: bool = False) -> Iterator[Stack]:
    """A broker and a registry (and Cassandra) on free ports, with the product's topics, schemas and tables; thrown away after."""
    parts = {"kafka", "registry"} | ({"cassandra"} if cassandra else set())
    with embedded(parts, directory) as found:
        database = f"{found.cassandra_host}:{found.cassandra_port}" if cassandra else ""
        made = Stack(found.kafka, found.registry_url, database)
        deployed(made)
        yield made


def deployed(made: Stack) -> Stack:
    """The deploy step: topics and schemas, and tables if there is a Cassandra."""
    if made.cassandra:
        host, port = made.cassandra.split(":")
        known = {"kafka": {"brokers": made.brokers}, "registry": {"url": made.registry_url}, "acknowledge_single_copy": True}
        deploy(DeploySettings.model_validate({**known, "cassandra": {"contact_points": host, "port": int(port)}}))
        return made
    topics = list(load_catalogue().topics.values())
    create_topics(AdminClient({"bootstrap.servers": made.brokers}), topics, 1)
    register_schemas(Registry(made.registry_url), topics)
    return made


def add_topics(brokers: str, partitions: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Topics of a benchmark's own; those that are there stay as they are."""
    admin = AdminClient({"bootstrap.servers": brokers})
    there = admin.list_topics(timeout=30).topics
    missing = [NewTopic(name, count, 1, config=dict(config or {})) for name, count in partitions.items() if name not in there]
    if missing:
        for future in admin.create_topics(missing).values():
            future.result()


def remove_topics(brokers: str, wanted: Callable[[str], bool]) -> None:
    """Those whose name is wanted no more: disks are small and a run has many rounds."""
    admin = AdminClient({"bootstrap.servers": brokers})
    gone = [name for name in admin.list_topics(timeout=30).topics if wanted(name)]
    for future in admin.delete_topics(gone).values() if gone else ():
        future.result()


def write(brokers: str, topic: str, records: Iterator[tuple[bytes, bytes]], headers: Headers | None = None) -> int:
    """Keys and values, as fast as the broker takes them; returns how many."""
    config = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 50, "batch.size": 1_000_000}
    producer = Producer(producer_config(brokers, **config))
    count = 0
    for count, (key, value) in enumerate(records, 1):
        while True:
            try:
                producer.produce(topic, value, key, headers=headers or [])
                break
            except BufferError:
                producer.poll(0.1)
        if count % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    return count


class Progress:
    """How far a consumer group has committed a topic."""

    def __init__(self, brokers: str, group: str, topic: str) -> None:
        # What is last committed is asked for, not what is stable: a transaction on its way must not hold the answer back.
        self._consumer = Consumer(consumer_config(brokers, group, **{"isolation.level": "read_uncommitted"}))
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def done(self) -> int:
        """Records committed, over all partitions."""
        for _ in range(100):
            try:
                return sum(max(0, place.offset) for place in self._consumer.committed(self._places, timeout=30))
            except KafkaException as cause:
                # A broker that has just begun finds its groups' coordinator a little later.
                if cause.args[0].code() not in {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}:
                    raise
                time.sleep(0.1)
        raise RuntimeError("the group has no coordinator")

    def wait(self, until: int, process: "Watched", timeout_seconds: float = 3600.0) -> None:
        """Return when so many are committed. Raises: RuntimeError when the worker ends, TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        while self.done() < until:
            process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not {until} records within {timeout_seconds} s: see {process.log}")
            time.sleep(0.1)

    def close(self) -> None:
        self._consumer.close()


class Watched:
    """One worker process: started, asked what it costs, stopped."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, env=dict(environment), stdout=out, stderr=subprocess.STDOUT)
        self._seen = psutil.Process(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises: RuntimeError when it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the worker ended with {self._process.returncode}: see {self.log}")

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def cpu_seconds(self) -> float:
        """User and system time of all its threads (a JVM's compiler and collector among them)."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        return float(self._seen.memory_info().rss) / 1e6

    def stop(self, patience_seconds: float = 60.0) -> None:
        """As asked; killed when it does not go."""
        self._process.terminate()
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Rate(NamedTuple):
    """What a worker did between two of its commits in mid-run."""

    events: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.events / self.cpu_seconds


def steady_rate(process: Watched, progress: Progress, warm_up: int, until: int, patience_seconds: float = 1800.0) -> Rate:
    """From the first commit at or after `warm_up` records to the last one before `until`: the worker was busy all the while.

    The start (joining, restoring, a JVM's compiling) and the end (a last commit that waits for its interval) are left out.
    Raises: RuntimeError when the worker ends or commits too seldom to measure, TimeoutError.
    """
    marks: list[tuple[int, float, float]] = []
    deadline = time.monotonic() + patience_seconds
    while not marks or marks[-1][0] < until:
        process.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {until} records within {patience_seconds} s: see {process.log}")
        done = progress.done()
        if done and (not marks or done > marks[-1][0]):
            marks.append((done, time.monotonic(), process.cpu_seconds()))
        time.sleep(0.05)
    kept = [mark for mark in marks if mark[0] >= warm_up][:-1]
    if len(kept) < 2:
        raise RuntimeError(f"{len(marks)} commits in {until} records are too few: give it more events")
    (first, began, cpu_before), (last, ended, cpu_after) = kept[0], kept[-1]
    return Rate(last - first, ended - began, cpu_after - cpu_before)


def medians(rates: Sequence[Rate]) -> dict[str, Any]:
    """Of several rounds, with each round's figures beside them."""
    return {
        "rounds": len(rates),
        "events_per_second": round(statistics.median(rate.per_second for rate in rates)),
        "events_per_cpu_second": round(statistics.median(rate.per_cpu_second for rate in rates)),
        "each_events_per_second": [round(rate.per_second) for rate in rates],
        "each_events_per_cpu_second": [round(rate.per_cpu_second) for rate in rates],
    }


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The nearest rank of sorted values. Raises: IndexError when there are none."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def kept(name: str) -> dict[str, Any]:
    """Return the content of benchmarks/results/<name>.json; empty without the file."""
    path = HERE / "results" / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Write benchmarks/results/<name>.json."""
    (HERE / "results" / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
