"""The normalizer as a process of its own, and the topics that it reads and writes, on the real broker and registry."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import BEHAVIOUR, OUTCOMES, PROFILE, load_catalogue
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_normalizer.testing import key_of, received
from tests.conftest import Stack

DEAD_LETTERS = "normalizer.dlq"
PATIENCE_SECONDS = 120.0


class Topics:
    """The stack's topics as a test sees them: writes records, reads what came for its workspace since the test began."""

    def __init__(self, stack: Stack, workspace: str) -> None:
        self._workspace = workspace
        registry, catalogue = Registry(stack.registry_url), load_catalogue().topics
        self.codecs = {name: registry.codec(name, topic.schema) for name, topic in catalogue.items() if "changelog" not in name}
        self._producer = Producer(producer_config(stack.brokers))
        self._consumer = Consumer(consumer_config(stack.brokers, "test-normalizer"))
        read = [BEHAVIOUR, PROFILE, OUTCOMES, DEAD_LETTERS]
        ends = [TopicPartition(name, number) for name in read for number in range(catalogue[name].partitions)]
        for end in ends:
            end.offset = self._consumer.get_watermark_offsets(end, timeout=10)[1]
        self._places = ends
        self._consumer.assign(ends)
        self.seen: dict[str, list[dict[str, Any]]] = {name: [] for name in read}

    def write(self, topic: str, key: bytes, value: dict[str, Any] | bytes | None) -> None:
        data = self.codecs[topic].encode(value) if isinstance(value, dict) else value
        self._producer.produce(topic, data, key, headers=[("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01")])
        assert self._producer.flush(30) == 0

    def send(self, kind: str, item: dict[str, Any] | str, **fields: Any) -> None:
        record = received(kind, item, **{"workspace": self._workspace, "received_at": wall_clock_micros(), **fields})
        self.write(f"ingest.{kind}", key_of(record), record)

    def read_until(self, enough: Callable[[], bool]) -> None:
        """Raises: AssertionError when it does not come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not enough():
            assert time.monotonic() < deadline, (
                f"not seen in time, only { ({name: len(found) for name, found in self.seen.items()}) }"
            )
            self.read_some()

    def read_some(self) -> None:
        """Read the records that arrive within 0.2 s."""
        for message in self._consumer.consume(500, 0.2):
            self._take(message)

    def read_to_end(self) -> None:
        """Read the records that the topics have now."""
        ends = [self._consumer.get_watermark_offsets(place, timeout=10)[1] for place in self._places]

        def behind() -> bool:
            # A partition of which nothing was read has no position.
            positions = zip(self._consumer.position(self._places), self._places, ends, strict=True)
            return any(max(position.offset, start.offset) < end for position, start, end in positions)

        while behind():
            self.read_some()

    def _take(self, message: Message) -> None:
        assert message.error() is None
        # Other tests write to the same topics, and not only what can be decoded.
        if (message.key() or b"").startswith(record_key(self._workspace, "")):
            topic = message.topic() or ""
            self.seen[topic].append(self.codecs[topic].decode(message.value() or b""))

    def close(self) -> None:
        self._consumer.close()


class Worker:
    """`python -m starling_normalizer`, ended by its own process id."""

    def __init__(self, stack: Stack, state_dir: Path, failpoint: str = "") -> None:
        self._log = (state_dir / "worker.log").open("ab")
        self.port = port = free_port()
        environment = {
            **os.environ,
            **stack.environment(),
            "STARLING_HTTP__PORT": str(port),
            # One member after another, as a restarted pod, without a wait for the previous session.
            "STARLING_INSTANCE_ID": f"normalizer-{os.getpid()}",
            "STARLING_SESSION_TIMEOUT_SECONDS": "10",
            "STARLING_STATE_DIR": str(state_dir),
            **({"STARLING_FAILPOINT": failpoint} if failpoint else {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "starling_normalizer"], env=environment, stdout=self._log, stderr=subprocess.STDOUT
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(60)
        finally:
            self._process.kill()
            self._log.close()
