"""The edge as a process of its own, as an operator starts it, and the records of the topics that it writes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, Message, TopicPartition

from starling_common.kafka.clients import consumer_config
from starling_common.testing import free_port


@dataclass(frozen=True)
class EdgeProcess:
    """A running edge. `url` has no path."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def peak_memory_bytes(self) -> int:
        """The most memory that it has held at once."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    def stop(self) -> int:
        """Ask it to end; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running(environment: Mapping[str, str], directory: Path, *, until_ready: bool = True) -> Iterator[EdgeProcess]:
    """Start an edge on a free port; it is gone when the block ends."""
    port = free_port()
    log = directory / f"edge-{port}.log"
    settings = {"STARLING_HTTP__PORT": str(port), "STARLING_INSTANCE_ID": f"edge-{port}", **environment}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "starling_ingest"], env=plain | settings, stdout=out, stderr=out)
    edge = EdgeProcess(process, f"http://127.0.0.1:{port}", log)
    try:
        _wait_for(edge, "/readyz" if until_ready else "/healthz")
        yield edge
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def records(brokers: str, topic: str, workspace: str) -> list[Message]:
    """All records of one workspace that a topic holds now, in the order of partition and offset."""
    consumer = Consumer(consumer_config(brokers, "edge-tests"))
    try:
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = _everything(consumer, [TopicPartition(topic, number) for number in numbers])
    finally:
        consumer.close()
    found.sort(key=lambda message: (message.partition() or 0, message.offset() or 0))
    return [message for message in found if f"{workspace}/".encode() in (message.key() or message.value() or b"")]


def timestamp_ms(message: Message) -> int:
    return int(message.timestamp()[1])


def headers_of(message: Message) -> dict[str, Any]:
    return dict(message.headers() or [])


def _everything(consumer: Consumer, partitions: list[TopicPartition]) -> list[Message]:
    # All at once: a consumer takes half a second to turn from one partition to another.
    spans = {place.partition: consumer.get_watermark_offsets(place, timeout=30) for place in partitions}
    left = {number: high for number, (low, high) in spans.items() if low < high}
    consumer.assign([TopicPartition(place.topic, place.partition, spans[place.partition][0]) for place in partitions])
    found: list[Message] = []
    while left:
        for message in consumer.consume(5000, 0.1):
            assert message.error() is None, message.error()
            number, offset = message.partition() or 0, message.offset() or 0
            if offset < spans[number][1]:
                found.append(message)
            if offset + 1 >= left.get(number, 0):
                left.pop(number, None)
    return found


def _wait_for(edge: EdgeProcess, path: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert edge.process.poll() is None, edge.log.read_text()
        try:
            if httpx.get(edge.url + path, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the edge did not get ready: {edge.log.read_text()}")
