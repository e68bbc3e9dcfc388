"""The shared parts of the stream tests: topics and worker processes of their own, and a plain fold to compare with."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.settings import Cassandra
from starling_common.testing import free_port
from starling_common.wire import Registry
from tests.transactions import until_markers_are_written
from tests.unit.stream.counting import event

ROOT = Path(__file__).resolve().parents[3]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 240.0, details: Callable[[], str] = str) -> None:
    """Return when the condition holds; fail the test with `what` and the `details` after the time-out."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}\n{details()}"
        time.sleep(0.05)


CLIENT_HUNG = b"Timeout (0:"
"""In a worker's log: the worker ended because a call of the Kafka client did not return."""


@dataclass
class Worker:
    process: "subprocess.Popen[bytes]"
    log: Path
    port: int
    begin: "Callable[[], subprocess.Popen[bytes]] | None" = None

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metrics(self) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return bytes(answer.read())

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def revive(self) -> None:
        """Restart the process, as a supervisor would, if it ended because the Kafka client hung."""
        if self.begin is not None and self.process.poll() == 1 and self.log.read_bytes().count(CLIENT_HUNG) == 1:
            self.process = self.begin()

    def asleep(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, *, leave: bool = False) -> int:
        self.process.send_signal(signal.SIGUSR1 if leave else signal.SIGTERM)
        code = self.process.wait(timeout=120)
        if code:
            print(self.log.read_text(errors="replace")[-3000:])  # noqa: T201 - shown when the test fails
        return code


@dataclass
class Rig:
    brokers: str
    registry_url: str
    directory: Path
    cassandra: Cassandra | None = None
    """The backing store of the workers; None: only the changelog."""
    partitions: int = 4
    stage: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")
    workers: list[Worker] = field(default_factory=list)
    sent: int = 0

    @property
    def inputs(self) -> tuple[str, str]:
        return f"{self.stage}.a", f"{self.stage}.b"

    @property
    def group(self) -> str:
        return f"starling-{self.stage}"

    def create(self) -> None:
        changelog, dlq = f"{self.stage}-state-changelog", f"{self.stage}.dlq"
        names = [*self.inputs, f"{self.stage}.clock", f"{self.stage}.out"]
        topics = [NewTopic(name, self.partitions, 1) for name in names]
        topics.append(NewTopic(changelog, self.partitions, 1, config={"cleanup.policy": "compact"}))
        topics.append(NewTopic(dlq, 1, 1))
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for future in admin.create_topics(topics).values():
            future.result()
        registry = Registry(self.registry_url)
        registry.register(f"{changelog}-value", "StateChanged", "FULL_TRANSITIVE")
        registry.register(f"{dlq}-value", "DeadLetter", "FULL_TRANSITIVE")

    def destroy(self) -> None:
        for worker in self.workers:
            if worker.alive():
                worker.kill()
        names = [*self.inputs, *(f"{self.stage}{end}" for end in (".clock", ".out", ".dlq", "-state-changelog"))]
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for future in admin.delete_topics(names).values():
            future.result()

    def start(self, instance: str = "w0", disk: str | None = None, **environment: str) -> Worker:
        port = free_port()
        settings = {
            "COUNTER_STAGE": self.stage,
            "STARLING_KAFKA__BROKERS": self.brokers,
            "STARLING_REGISTRY__URL": self.registry_url,
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": instance,
            "STARLING_STATE_DIR": str(self.directory / (disk or instance)),
            "STARLING_SESSION_TIMEOUT_SECONDS": "6",
            "STARLING_HEARTBEAT_INTERVAL_SECONDS": "0.5",
            "STARLING_TRANSACTION_TIMEOUT_SECONDS": "5",
            **self._backing_store_settings(),
        }
        log = self.directory / f"{instance}-{len(self.workers)}.log"

        def begin() -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-m", "tests.integration.stream.counter_worker"]
            with log.open("ab") as out:
                return subprocess.Popen(
                    command, cwd=ROOT, env=os.environ | settings | environment, stdout=out, stderr=subprocess.STDOUT
                )

        worker = Worker(begin(), log, port, begin)
        self.workers.append(worker)
        return worker

    def _backing_store_settings(self) -> dict[str, str]:
        if self.cassandra is None:
            return {}
        return {
            "STARLING_CASSANDRA__CONTACT_POINTS": self.cassandra.contact_points,
            "STARLING_CASSANDRA__PORT": str(self.cassandra.port),
            "STARLING_CASSANDRA__KEYSPACE": self.cassandra.keyspace,
            "STARLING_BACKING_STORE_FLUSH_SECONDS": "0.3",
            # No replay of a small changelog instead of a lazy restore, which these tests are about.
            "STARLING_BACKING_STORE_REPLAY_RECORDS": "0",
        }

    def send(self, records: Iterable[tuple[str, bytes | None, bytes]], topic: str | None = None) -> None:
        """(topic, key, value) each; without a key to partition 0."""
        producer = Producer(producer_config(self.brokers))
        for topic_name, key, value in records:
            producer.produce(topic or topic_name, value, key, -1 if key else 0)
        assert producer.flush(30) == 0

    def send_to_each_partition(self, records: Iterable[tuple[str, bytes | None, bytes]]) -> None:
        producer = Producer(producer_config(self.brokers))
        for topic, key, value in records:
            for number in range(self.partitions):
                producer.produce(topic, value, key, number)
        assert producer.flush(30) == 0

    def recreate_changelog(self) -> None:
        """Delete the topic and create it again, as an operator might."""
        admin, name = AdminClient({"bootstrap.servers": self.brokers}), f"{self.stage}-state-changelog"
        admin.delete_topics([name])[name].result()
        wait_until(lambda: name not in admin.list_topics(timeout=10).topics, "the topic to be gone")
        admin.create_topics([NewTopic(name, self.partitions, 1, config={"cleanup.policy": "compact"})])[name].result()

    def cut_changelog(self) -> None:
        """Delete the topic's records, as an operator might."""
        admin, name = AdminClient({"bootstrap.servers": self.brokers}), f"{self.stage}-state-changelog"
        change = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result()

        def is_cut() -> bool:
            places = [TopicPartition(name, number, -1) for number in range(self.partitions)]
            try:
                for deleted in admin.delete_records(places).values():
                    deleted.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                    raise
                return False
            return True

        wait_until(is_cut, "the broker to apply the policy")

    def events(self, count: int, users: int) -> list[tuple[str, bytes, bytes]]:
        """Return events over both inputs, a second of event time apart, after those made before."""
        made = []
        for number in range(self.sent, self.sent + count):
            received_at = int(time.time() * 1e6) - 60_000_000 + number
            key = b"default/u%d" % (number * 7919 % users)
            made.append((self.inputs[number % 2], key, event(received_at, number * 1000)))
        self.sent += count
        return made

    def read(self, topic: str) -> list[tuple[int, bytes, bytes]]:
        """Return (partition, key, value) of every committed record, in the order of each partition.

        Waits until no transaction is open, such as that of a worker killed in the middle of it: later commits are invisible to
        every reader until then.
        """
        until_markers_are_written(self.brokers, [topic])
        consumer = Consumer(consumer_config(self.brokers, f"read-{uuid.uuid4().hex}", **{"enable.partition.eof": True}))
        count = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(count)])
        found, ended = [], 0
        while ended < count:
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    ended += 1
                else:
                    found.append((message.partition() or 0, message.key() or b"", message.value() or b""))
        consumer.close()
        return found

    def settled(self) -> bool:
        """Return whether the group has committed up to the end of every input."""
        return self._committed_to_end(self.inputs)

    def clock_settled(self) -> bool:
        """Return whether every task has reached the last instant of the clock topic."""
        return self._committed_to_end([f"{self.stage}.clock"])

    def _committed_to_end(self, topics: Sequence[str]) -> bool:
        # A consumer of committed records would wait until no transaction holds offsets of the group.
        consumer = Consumer(consumer_config(self.brokers, self.group, **{"isolation.level": "read_uncommitted"}))
        try:
            parts = [TopicPartition(topic, number) for topic in topics for number in range(self.partitions)]
            committed = consumer.committed(parts, timeout=10)
            ends = [consumer.get_watermark_offsets(part, timeout=10, cached=False) for part in parts]
            return all(end is not None and max(0, at.offset) >= end[1] for at, end in zip(committed, ends, strict=True))
        finally:
            consumer.close()

    def wait_settled(self, workers: Sequence[Worker] = ()) -> None:
        for worker in workers:
            wait_until(lambda w=worker: w.ready() or not w.alive(), "the worker to be ready")  # type: ignore[misc]

        def settled() -> bool:
            for worker in workers:
                worker.revive()
            return self.settled()

        try:
            wait_until(settled, "every input to be processed")
        except AssertionError as cause:
            for worker in workers:
                cause.add_note(f"{worker.log.name}: exit {worker.process.poll()}: {worker.log.read_text()[-2_000:]}")
            raise
