"""Adapter: reads what the parts of an instance have used: processor time, records and bytes of topics, writes of tables."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_common.cassandra.sessions import open_session
from starling_common.kafka.clients import consumer_config
from starling_common.settings import Cassandra

_TICKS = os.sysconf("SC_CLK_TCK")


class TopicUse(NamedTuple):
    """Offsets used (control records of transactions included) and bytes on disk of a topic."""

    records: int
    size_bytes: int


class Reading(NamedTuple):
    """Counters at one instant. `cpu_seconds`: service -> seconds of its processes; `writes`: table -> mutations of the node.

    `thread_seconds`: (service, kind of thread) -> seconds of the living threads whose names differ in numbers only.
    """

    cpu_seconds: Mapping[str, float]
    thread_seconds: Mapping[tuple[str, str], float]
    topics: Mapping[str, TopicUse]
    writes: Mapping[str, int]
    processes: int


class Meters:
    """Reads the counters of one running instance."""

    def __init__(self, status: Mapping[str, Any], data_dir: Path) -> None:
        """`status`: the document of `starling status --json`."""
        self._pids = {part["name"]: part["pid"] for part in status["parts"] if part["pid"]}
        self._brokers = status["endpoints"]["kafka"]
        host, _, port = status["endpoints"]["cassandra"].partition(":")
        self._session = open_session(Cassandra(contact_points=host, port=int(port)))
        self._logs = data_dir / "kafka" / "data"

    def cpu_seconds(self) -> dict[str, float]:
        """Return service -> processor seconds of its processes, children included. Unlike `read` it asks no broker and no node."""
        used: dict[str, float] = defaultdict(float)
        for name, pid in self._pids.items():
            for process in _tree(pid):
                times = process.cpu_times()
                used[_service(name)] += times.user + times.system
        return dict(used)

    def read(self) -> Reading:
        """Return the counters now."""
        used: dict[str, float] = defaultdict(float)
        threads: dict[tuple[str, str], float] = defaultdict(float)
        count = 0
        for name, pid in self._pids.items():
            for process in _tree(pid):
                times = process.cpu_times()
                used[_service(name)] += times.user + times.system
                for kind, seconds in _threads(process.pid):
                    threads[_service(name), kind] += seconds
                count += 1
        return Reading(dict(used), dict(threads), self._topics(), self._writes(), count)

    def close(self) -> None:
        """Close the session."""
        self._session.cluster.shutdown()

    def pids(self, service: str) -> Sequence[int]:
        """Return the processes of a service, children included."""
        return [process.pid for name, pid in self._pids.items() if _service(name) == service for process in _tree(pid)]

    def partitions(self) -> int:
        """Return the number of partitions of all topics."""
        topics = AdminClient({"bootstrap.servers": self._brokers}).list_topics(timeout=30).topics
        return sum(len(topic.partitions) for topic in topics.values())

    def _topics(self) -> dict[str, TopicUse]:
        sizes: dict[str, int] = defaultdict(int)
        for path in self._logs.glob("*-*/*.log"):
            sizes[path.parent.name.rpartition("-")[0]] += path.stat().st_size
        consumer = Consumer(consumer_config(self._brokers, "benchmark-meters"))
        try:
            topics = AdminClient({"bootstrap.servers": self._brokers}).list_topics(timeout=30).topics
            return {
                name: TopicUse(
                    sum(consumer.get_watermark_offsets(TopicPartition(name, number), timeout=30)[1] for number in topic.partitions),
                    sizes.get(name, 0),
                )
                for name, topic in topics.items()
            }
        finally:
            consumer.close()

    def _writes(self) -> dict[str, int]:
        rows = self._session.execute("SELECT keyspace_name, table_name, count FROM system_views.local_write_latency")
        return {f"{row['keyspace_name']}.{row['table_name']}": row["count"] for row in rows}


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _threads(pid: int) -> Iterator[tuple[str, float]]:
    """Yield the kind and the processor seconds of each living thread, from `/proc`. The kernel cuts names to 15 characters."""
    for directory in Path(f"/proc/{pid}/task").glob("*"):
        try:
            head, _, fields = (directory / "stat").read_text().rpartition(") ")
        except OSError:
            continue
        user, system = fields.split()[11:13]
        yield re.sub(r"[-#.:]*\d+.*$", "", head.partition("(")[2]).strip(), (int(user) + int(system)) / _TICKS


def _service(name: str) -> str:
    service, dash, number = name.rpartition("-")
    return service if dash and number.isdigit() else name
