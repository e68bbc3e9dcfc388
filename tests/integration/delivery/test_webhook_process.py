"""The webhook process against the real broker: delivered, retried, given up, switched off; killed and started again."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_common.deploy import create_topics
from starling_common.kafka.clients import consumer_config, produce_and_wait, producer_config
from starling_common.kafka.topics import Topic
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_demo.receiver import Receiver
from tests.conftest import Stack
from tests.contract.delivery.guide import source_of_the_guide
from tests.unit.delivery.making import SECRET, change

SCHEMAS = {
    "membership": "SegmentMembershipChanged",
    "definitions": "DefinitionChanged",
    "retry": "DeliveryRequested",
    "outcome": "DeliveryReported",
    "dead_letter": "DeadLetter",
}
WAIT_SECONDS = 60.0

GUIDE_PROCESS = """
import sys
from pathlib import Path
from file_channel import FileChannel
from starling_delivery.channels import CHANNELS
CHANNELS["file"] = lambda settings, targets: FileChannel(Path(sys.argv[1]))
from starling_delivery.__main__ import main
sys.exit(main())
"""
"""The channel of the guide, registered as the guide describes."""


@dataclass
class World:
    """Topics of one test's own, and a way to write and read them."""

    stack: Stack
    prefix: str
    registry: Registry
    producer: Producer

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def write(self, name: str, key: bytes, record: dict[str, Any]) -> None:
        value = self.registry.codec(self.topic(name), SCHEMAS[name]).encode(record)
        produce_and_wait(self.producer, self.topic(name), key=key, value=value, headers=[])

    def define(self, url: str, key: str = "hook", **more: Any) -> None:
        record = {
            "recorded_at": 1,
            "event_id": str(uuid.uuid4()),
            "workspace": "default",
            "kind": "webhook",
            "key": key,
            "version": 1,
            "action": "DEFINED",
            "document": json.dumps({"key": key, "url": url, "secret": SECRET} | more),
            "actor": "a test",
            "correlation_id": "c",
        }
        self.write("definitions", record_key("default", key), record)

    def change(self, user: str, **more: Any) -> None:
        received_at = wall_clock_micros()
        self.write("membership", record_key("default", user), change(user, received_at=received_at, **more))

    def records(self, name: str) -> list[dict[str, Any]]:
        """All that the topic holds now."""
        codec = self.registry.codec(self.topic(name), SCHEMAS[name])
        consumer = Consumer(consumer_config(self.stack.brokers, f"{self.prefix}-reader", **{"enable.partition.eof": True}))
        found: list[dict[str, Any]] = []
        try:
            consumer.assign([TopicPartition(self.topic(name), 0, OFFSET_BEGINNING)])
            while True:
                for message in consumer.consume(500, 0.3):
                    error = message.error()
                    if error is None:
                        found.append(codec.decode(message.value() or b"") | {"timestamp_ms": message.timestamp()[1]})
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return found
        finally:
            consumer.close()

    def has_read_all(self) -> bool:
        """Return whether the process has committed the last membership change."""
        place = TopicPartition(self.topic("membership"), 0)
        consumer = Consumer(consumer_config(self.stack.brokers, self.prefix))
        try:
            [committed] = consumer.committed([place], timeout=30)
            return bool(committed.offset == consumer.get_watermark_offsets(place, timeout=30)[1])
        finally:
            consumer.close()

    def outcomes(self) -> list[str]:
        return [record["outcome"] for record in self.records("outcome")]

    @contextmanager
    def process(
        self, command: Sequence[str] = (sys.executable, "-m", "starling_delivery"), **settings: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`python -m starling_delivery` on this world's topics, ready."""
        port = free_port()
        process = subprocess.Popen(command, env=self.environment(port, **settings))
        try:
            wait_for(lambda: _status(port) == 200)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            finally:
                process.kill()

    def environment(self, port: int, **settings: str) -> dict[str, str]:
        return {
            **os.environ,
            **self.stack.environment(),
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": "delivery-0",
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            "STARLING_GROUP": self.prefix,
            "STARLING_RETRY_DELAYS_SECONDS": "[0.2, 0.2, 0.4]",
            **{f"STARLING_{name.upper()}_TOPIC": self.topic(name) for name in SCHEMAS if name != "definitions"},
            "STARLING_DEFINITIONS_TOPIC": self.topic("definitions"),
            **settings,
        }


@pytest.fixture
def world(stack: Stack) -> Iterator[World]:
    prefix = f"test{uuid.uuid4().hex[:10]}"
    made = World(stack, prefix, Registry(stack.registry_url), Producer(producer_config(stack.brokers)))
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    topics = [Topic(made.topic(name), schema, 1, False, "delete", 3_600_000, "FULL_TRANSITIVE") for name, schema in SCHEMAS.items()]
    create_topics(admin, topics, 1)
    for topic in topics:
        made.registry.register(topic.subject, topic.schema, topic.compatibility)
    yield made
    for pending in admin.delete_topics([topic.name for topic in topics]).values():
        pending.result()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.close()


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


def _readiness(port: int) -> str:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).text
    except httpx.TransportError:
        return ""


def _status(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code
    except httpx.TransportError:
        return 0


def test_changes_are_delivered_once_each_and_reported(world: World, receiver: Receiver) -> None:
    world.define(receiver.url, segments=["vip"])
    for user in ("ada", "bob", "cyd"):
        world.change(user)
    world.change("dan", segment="other")
    with world.process():
        wait_for(lambda: world.outcomes() == ["DELIVERED"] * 3)
    assert sorted(call["data"]["user_id"] for call in receiver.calls) == ["ada", "bob", "cyd"]
    assert receiver.forged == 0
    assert {record["status_code"] for record in world.records("outcome")} == {204}
    assert all(record["timestamp_ms"] == record["received_at"] // 1000 for record in world.records("outcome"))


def test_changes_that_expired_are_not_skipped_in_silence(world: World, receiver: Receiver) -> None:
    world.define(receiver.url)
    world.change("ada")
    place = TopicPartition(world.topic("membership"), 0, 0)
    group = Consumer(consumer_config(world.stack.brokers, world.prefix))
    group.commit(offsets=[place], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": world.stack.brokers})
    admin.delete_records([TopicPartition(place.topic, 0, 1)])[place].result()
    world.change("bob")
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "starling_delivery"], env=world.environment(port))
    try:
        wait_for(lambda: "expired before they were processed" in _readiness(port))
        assert "starling stage accept-loss webhook" in _readiness(port)
        place.offset = 1
        group.commit(offsets=[place], asynchronous=False)  # as the command does, while the process waits
        wait_for(lambda: world.outcomes() == ["DELIVERED"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        group.close()
    assert [call["data"]["user_id"] for call in receiver.calls] == ["bob"]


def test_a_failing_endpoint_is_tried_again_until_it_takes_it(world: World, receiver: Receiver) -> None:
    receiver.failures = 3
    world.define(receiver.url)
    world.change("ada")
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)
        wait_for(lambda: world.outcomes() == ["RETRYING"] * 3 + ["DELIVERED"])
    assert [record["attempt"] for record in world.records("outcome")] == [1, 2, 3, 4]


def test_what_cannot_be_delivered_goes_to_the_dead_letters_whole(world: World, receiver: Receiver) -> None:
    receiver.failures = 1_000
    world.define(receiver.url)
    world.change("ada")
    with world.process(STARLING_GIVE_UP_AFTER_SECONDS="1"):
        wait_for(lambda: "FAILED" in world.outcomes())
    [letter] = world.records("dead_letter")
    assert (letter["stage"], letter["code"]) == ("delivery", "not_delivered")
    kept = world.registry.codec(world.topic("retry"), "DeliveryRequested").decode(letter["value"])
    assert kept["user_id"] == "ada"
    assert receiver.calls == []


def test_a_410_disables_the_webhook_permanently(world: World, receiver: Receiver) -> None:
    receiver.failures, receiver.failure_status = 1, 410
    world.define(receiver.url)
    world.change("ada")
    with world.process():
        wait_for(lambda: world.outcomes() == ["FAILED"])
        world.change("bob")
        world.change("cyd")
        wait_for(world.has_read_all)
    last = world.records("definitions")[-1]
    assert (last["action"], json.loads(last["document"])["disabled"]) == ("DISABLED", True)
    with world.process():
        world.change("dan")
        wait_for(world.has_read_all)
    assert receiver.calls == []


def test_a_record_that_cannot_be_read_does_not_stop_the_others(world: World, receiver: Receiver) -> None:
    world.define(receiver.url)
    produce_and_wait(world.producer, world.topic("membership"), key=b"default/x", value=b"\x00garbage", headers=[])
    world.change("ada")
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)
    [letter] = world.records("dead_letter")
    assert letter["value"] == b"\x00garbage"
    assert letter["code"] in {"unknown_schema", "bad_framing", "broken_avro"}


def test_a_killed_process_loses_nothing_and_a_waiting_retry_survives(world: World, receiver: Receiver) -> None:
    receiver.failures = 1
    world.define(receiver.url)
    world.change("ada")
    with world.process(STARLING_RETRY_DELAYS_SECONDS="[4]") as process:
        wait_for(lambda: world.outcomes() == ["RETRYING"])
        process.kill()
    world.change("bob")
    with world.process():
        wait_for(lambda: {call["data"]["user_id"] for call in receiver.calls} == {"ada", "bob"})
    assert len(receiver.calls) == 2


def test_a_stored_webhook_with_an_impossible_host_ends_in_dead_letters_alone(world: World, receiver: Receiver) -> None:
    hosts = {"empty": "https://a..b/", "long": f"https://{'x' * 64}.example/", "idna": "https://☃.example/", "open": "http://[::1"}
    for key, url in hosts.items():
        world.define(url, key)
    world.define(receiver.url)
    for user in ("ada", "bob"):
        world.change(user)
    with world.process() as process:
        wait_for(lambda: len(world.outcomes()) == 2 * (len(hosts) + 1))
        world.change("cyd")
        wait_for(lambda: len(receiver.calls) == 3)
        assert process.poll() is None
    assert sorted({call["data"]["user_id"] for call in receiver.calls}) == ["ada", "bob", "cyd"]
    failed = [record["target_key"] for record in world.records("outcome") if record["outcome"] == "FAILED"]
    assert sorted(set(failed)) == sorted(hosts)
    letters = [letter["message"] for letter in world.records("dead_letter")]
    assert sorted(set(letters)) == sorted(
        f"{url}: the address is invalid: {reason}"
        for url, reason in {
            hosts["empty"]: "its host 'a..b' is no host name: Empty Label",
            hosts["long"]: f"its host '{'x' * 64}.example' is no host name: Label too long",
            hosts["idna"]: "its host '☃.example' is no host name: Codepoint U+2603 at position 1 of '☃' not allowed",
            hosts["open"]: "it is no URL: Invalid IPv6 URL",
        }.items()
    )


@pytest.fixture
def file_process(tmp_path: Path) -> Sequence[str]:
    """The command of a process that has the guide's channel too. Its messages go to `tmp_path`."""
    (tmp_path / "file_channel.py").write_text(source_of_the_guide())
    (tmp_path / "main.py").write_text(GUIDE_PROCESS)
    return sys.executable, str(tmp_path / "main.py"), str(tmp_path)


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"STARLING_GROUP": "starling-file"}, b"set STARLING_TAKES_ALL_TARGETS=true"),
        ({"STARLING_GROUP": "starling-file", "STARLING_TAKES_ALL_TARGETS": "true"}, b"Unset STARLING_GROUP"),
    ],
)
def test_a_second_channel_does_not_answer_for_webhooks(
    world: World, receiver: Receiver, file_process: Sequence[str], settings: dict[str, str], cure: bytes
) -> None:
    world.define(receiver.url)
    world.change("ada")
    environment = world.environment(free_port(), STARLING_CHANNEL="file", **settings)
    refused = subprocess.run(file_process, env=environment, capture_output=True, timeout=WAIT_SECONDS, check=False)
    assert refused.returncode == 2
    assert cure in refused.stdout + refused.stderr
    with world.process():
        wait_for(lambda: len(receiver.calls) == 1)
    assert world.outcomes() == ["DELIVERED"]


def test_the_channel_of_the_guide_takes_the_place_of_the_webhook_process(
    world: World, receiver: Receiver, file_process: Sequence[str], tmp_path: Path
) -> None:
    webhook = {"STARLING_GROUP": "starling-webhook", "STARLING_RETRY_DELAYS_SECONDS": "[20]"}
    world.define(receiver.url)
    receiver.failures = 1
    world.change("ada")
    with world.process(**webhook):
        wait_for(lambda: world.outcomes() == ["RETRYING"])
    world.change("bob")
    with world.process(file_process, **webhook, STARLING_CHANNEL="file", STARLING_TAKES_ALL_TARGETS="true"):
        wait_for(lambda: world.outcomes() == ["RETRYING", "DELIVERED"])
    assert [line.split("\t")[0] for line in (tmp_path / "default.hook").read_text().splitlines()] == [change("bob")["event_id"]]
    assert [record["channel"] for record in world.records("outcome")] == ["webhook", "file"]
    world.change("cyd")
    with world.process(**webhook):
        wait_for(lambda: len(receiver.calls) == 2)
    assert sorted(call["data"]["user_id"] for call in receiver.calls) == ["ada", "cyd"]  # the retry stayed with its channel
