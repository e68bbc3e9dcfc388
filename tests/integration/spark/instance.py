"""One `profiles` job as an operator runs it: its own topics, group and checkpoint on the shared stack, a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.kafka.clients import committed, consumer_config, producer_config
from starling_common.kafka.position_notes import PositionNote, position_note
from starling_common.testing import free_port
from starling_common.values import record_key
from starling_common.wire import Codec, Registry
from starling_local.runtime import runtime_jars
from tests.unit.spark.keeping import PROFILE

PARTITIONS = 4
RECORDS = {
    "events": "BehaviourEvent",
    "clock": "ClockAdvanced",
    "definitions": "DefinitionChanged",
    "aggregates": "AggregateComputed",
    "dead_letters": "DeadLetter",
}
T = TypeVar("T")


def wait_for(what: Callable[[], T | None], seconds: float, explain: Callable[[], str]) -> T:
    """The first answer that is not None or False."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found is not None and found is not False:
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {explain()}")


class Instance:
    """Topics under a unique prefix, and the job's process."""

    def __init__(self, brokers: str, registry_url: str, directory: Path) -> None:
        self.brokers = brokers
        self.registry_url = registry_url
        self.directory = directory
        prefix = f"t{uuid.uuid4().hex[:10]}"
        self.topics = {name: f"{prefix}.{name}" for name in RECORDS}
        self.group = f"{prefix}-profiles"
        self.registry = Registry(registry_url)
        self.producer = Producer(producer_config(brokers))
        self.process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._codecs: dict[str, Codec] = {}
        self._sent = 0

    def deploy(self) -> None:
        counts = {"definitions": 1, "dead_letters": 1}
        admin = AdminClient({"bootstrap.servers": self.brokers})
        wanted = [NewTopic(topic, counts.get(name, PARTITIONS), 1) for name, topic in self.topics.items()]
        for future in admin.create_topics(wanted, operation_timeout=30).values():
            future.result()
        for name, record in RECORDS.items():
            self.registry.register(f"{self.topics[name]}-value", record, "FULL_TRANSITIVE")
            self._codecs[name] = self.registry.codec(self.topics[name], record)

    def remove(self) -> None:
        self.kill()
        AdminClient({"bootstrap.servers": self.brokers}).delete_topics(list(self.topics.values()), operation_timeout=30)

    # -- the process

    def start(self, command: Sequence[str] = (sys.executable, "-m", "starling_spark.jobs.profiles"), **more: str) -> None:
        topics = {f"STARLING_PROFILES_{name.upper()}_TOPIC": topic for name, topic in self.topics.items()}
        environment = {
            **os.environ,
            **topics,
            "STARLING_KAFKA__BROKERS": self.brokers,
            "STARLING_REGISTRY__URL": self.registry_url,
            "STARLING_HTTP__PORT": str(self.port),
            "STARLING_CLOCK": "event",
            "STARLING_INSTANCE_ID": "profiles-0",
            "STARLING_CHECKPOINT_DIR": str(self.directory / "checkpoints"),
            "STARLING_SPARK_JARS": os.pathsep.join(str(jar) for jar in runtime_jars("spark")),
            "STARLING_PROFILES_GROUP": self.group,
            "STARLING_PROFILES_TRIGGER_SECONDS": "0.2",
            "TZ": "Asia/Tokyo",
            **more,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.directory)

    @property
    def log(self) -> Path:
        return self.directory / "profiles.log"

    def log_tail(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else "no log"

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=240)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=120)

    def died(self, seconds: float) -> int:
        """Wait for the end of the process, and return its exit code."""
        assert self.process is not None
        return self.process.wait(timeout=seconds)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer:
            found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    # -- records in

    def define(self, key: str, document: Mapping[str, Any], version: int = 1, action: str = "DEFINED") -> None:
        record = {
            "recorded_at": time.time_ns() // 1000,
            "event_id": f"{key}-{version}-{action}",
            "workspace": "w",
            "kind": "computed_trait",
            "key": key,
            "version": version,
            "action": action,
            "document": json.dumps({"key": key, **document}),
            "actor": "test",
            "correlation_id": "c-define",
        }
        self.send("definitions", record_key("w", key), self._codecs["definitions"].encode(record))

    def event(self, user: str, time_ms: int, name: str = "Order Completed", **properties: Any) -> None:
        self.send("events", record_key("w", user), self.event_value(user, time_ms, name, properties))

    def event_value(self, user: str, time_ms: int, name: str, properties: Mapping[str, Any]) -> bytes:
        return self._codecs["events"].encode(self.event_record(user, time_ms, name, properties))

    def event_record(self, user: str, time_ms: int, name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
        self._sent += 1
        return {
            "received_at": time.time_ns() // 1000,
            "workspace": "w",
            "user_id": user,
            "event_id": f"e{self._sent}",
            "message_id": f"m{self._sent}",
            "kind": "track",
            "name": name,
            "event_time": time_ms,
            "properties": json.dumps(properties),
            "context": json.dumps({"app": {"version": "2.1.0"}}),
            "traits": json.dumps(PROFILE),
            "correlation_id": f"c{self._sent}",
        }

    def advance(self, instant_ms: int) -> None:
        record = {"received_at": time.time_ns() // 1000, "instant": instant_ms, "correlation_id": "c-clock"}
        for partition in range(PARTITIONS):
            self.producer.produce(self.topics["clock"], self._codecs["clock"].encode(record), partition=partition)
        assert self.producer.flush(120) == 0

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("correlation_id", b"c-header")]
        self.producer.produce(self.topics[topic], value, key, headers=headers)
        assert self.producer.flush(120) == 0

    def delete_records(self) -> None:
        """What retention does: of all events and clock records none is left."""
        places = [TopicPartition(self.topics[name], number, -1) for name in ("events", "clock") for number in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for deleted in admin.delete_records(places).values():
            deleted.result()

    # -- what came of it

    def settle(self, seconds: float = 300.0) -> None:
        """Until the job's group has passed all that was sent before."""
        ends = self._ends()
        wait_for(lambda: self._lag(ends) == {}, seconds, lambda: f"lag {self._lag(ends)}\n{self.log_tail()}")

    def _lag(self, ends: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the job ended: {self.log_tail()}")
        committed = self.committed()
        return {place: end - committed[place] for place, end in ends.items() if committed[place] < end}

    def committed(self) -> dict[tuple[str, int], int]:
        consumer = Consumer(consumer_config(self.brokers, self.group))
        try:
            wanted = [TopicPartition(topic, number) for topic, number in self._ends()]
            return {(found.topic, found.partition): found.offset for found in committed(consumer, wanted, 60)}
        finally:
            consumer.close()

    def ends(self, name: str) -> dict[tuple[str, int], int]:
        """Return the ends of the partitions of a topic that have a record."""
        return {place: end for place, end in self._ends().items() if place[0] == self.topics[name]}

    def history_note(self) -> PositionNote:
        """Return what the job has committed with the offset of the definitions."""
        consumer = Consumer(consumer_config(self.brokers, self.group))
        try:
            [found] = committed(consumer, [TopicPartition(self.topics["definitions"], 0)], 60)
            return position_note(found.metadata)
        finally:
            consumer.close()

    def _ends(self) -> dict[tuple[str, int], int]:
        return wait_for(self._ends_now, 120, lambda: "the broker does not name the ends of the topics")

    def _ends_now(self) -> dict[tuple[str, int], int] | None:
        """Return the ends; None while a busy broker does not name the partitions of a topic."""
        consumer = Consumer(consumer_config(self.brokers, self.group))
        try:
            places = [(self.topics[name], number) for name in ("events", "clock") for number in range(PARTITIONS)]
            places.append((self.topics["definitions"], 0))
            spans = {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=10) for place in places}
            return {place: span[1] for place, span in spans.items() if span is not None and span[1] > 0}
        except KafkaException:
            return None
        finally:
            consumer.close()

    def read(self, name: str) -> list["Written"]:
        """Every record of one of the topics, in the order of offsets a partition."""
        return [Written(message, self._codecs[name].decode(message.value() or b"")) for message in self.messages(name)]

    def messages(self, name: str) -> list[Message]:
        """As `read`, without decoding."""
        consumer = Consumer(consumer_config(self.brokers, f"{self.group}-reader", **{"enable.partition.eof": True}))
        count = 1 if name == "dead_letters" else PARTITIONS
        consumer.assign([TopicPartition(self.topics[name], number, OFFSET_BEGINNING) for number in range(count)])
        found: list[Message] = []
        at_end: set[int] = set()
        try:
            while len(at_end) < count:
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        found.append(message)
                    else:
                        at_end.add(message.partition() or 0)
        finally:
            consumer.close()
        return found

    def values(self) -> dict[tuple[str, str], Any]:
        """Return (user, trait) -> the last published value."""
        latest: dict[tuple[str, str], Any] = {}
        for written in self.read("aggregates"):
            record = written.record
            latest[record["user_id"], record["trait_key"]] = json.loads(record["value"] or "null")
        return latest


class Written:
    """A record as it was found."""

    def __init__(self, message: Any, record: dict[str, Any]) -> None:
        self.partition: int = message.partition()
        self.key: bytes = message.key()
        self.timestamp_ms: int = message.timestamp()[1]
        self.headers: dict[str, bytes] = dict(message.headers() or ())
        self.record = record
