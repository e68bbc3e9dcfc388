"""The real broadcaster on the real broker and Cassandra: each member is listed once, wherever the process is killed."""

import json
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_END, Producer

from starling_broadcaster.failpoints import AFTER_COMMIT, AFTER_READ, AFTER_START, BEFORE_COMMIT
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import member_bucket
from starling_common.headers import record_headers
from starling_common.kafka.clients import offsets, produce_and_wait, producer_config
from starling_common.kafka.topic_range import range_consumer, read_topic
from starling_common.kafka.topics import (
    BROADCAST_PROGRESS,
    BROADCASTS,
    DELIVERY_DEFINITIONS,
    MESSENGER_PROGRESS,
    load_catalogue,
)
from starling_common.testing import eventually, own_keyspace, running
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.unit.messages.stories import campaign

AT = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
USERS = [f"user-{number}" for number in range(300)]
LATER = ["late-1", "late-2"]
PARTITIONS = load_catalogue().profile_partitions
MEMBER = (
    "INSERT INTO {ks}.segment_members (workspace, segment_key, bucket, user_id, entered_at_ms, sequence) VALUES (?, ?, ?, ?, ?, 1)"
)
CLOCK = "INSERT INTO {ks}.segmenter_progress (id, source_partition, stream_time_ms) VALUES (0, ?, ?)"


@dataclass
class World:
    """A workspace with a segment of members, and the topics of the installation."""

    stack: Stack
    database: Database
    workspace: str

    def __post_init__(self) -> None:
        self.registry = Registry(self.stack.registry_url)
        self.producer = Producer(producer_config(self.stack.brokers))

    def write(self, topic: str, key: bytes, record: dict[str, Any]) -> None:
        value = self.registry.codec(topic, load_catalogue().topics[topic].schema).encode(record)
        produce_and_wait(self.producer, topic, key=key, value=value, headers=record_headers("test", "test"))

    def activate(self) -> None:
        """Activate a broadcast of which the whole messenger knows."""
        trigger = {"broadcast": "vip", "at": "2026-01-01T00:00:00Z"}
        document = json.dumps(campaign(key="sale", trigger=trigger, rate=100_000))
        common = {"recorded_at": 0, "event_id": str(uuid.uuid4()), "workspace": self.workspace, "kind": "campaign", "key": "sale"}
        record = {**common, "version": 1, "action": "ACTIVATED", "document": document, "actor": "test", "correlation_id": "test"}
        self.write(DELIVERY_DEFINITIONS, record_key(self.workspace, "sale"), record)
        consumer = range_consumer(self.stack.brokers, "starling-reader")
        end = offsets(consumer, [(DELIVERY_DEFINITIONS, 0)], OFFSET_END, 30)[DELIVERY_DEFINITIONS, 0]
        consumer.close()
        for number in range(PARTITIONS):
            known = {"recorded_at": 0, "partition": number, "stream_time": AT, "definitions": {DELIVERY_DEFINITIONS: end}}
            self.write(MESSENGER_PROGRESS, str(number).encode(), known)

    def enter(self, users: list[str], at: int) -> None:
        self.database.write_each(MEMBER, [(self.workspace, "vip", member_bucket(user), user, at) for user in users])

    def advance(self, at: int) -> None:
        self.database.write_each(CLOCK, [(number, at) for number in range(PARTITIONS)])

    def records(self, topic: str) -> list[dict[str, Any]]:
        codec = self.registry.codec(topic, load_catalogue().topics[topic].schema)
        found = [codec.decode(message.value() or b"") for message in read_topic(self.stack.brokers, topic)]
        return [one for one in found if one["workspace"] == self.workspace]

    def is_done(self) -> bool:
        return any(one["state"] == "DONE" for one in self.records(BROADCAST_PROGRESS))

    def check(self) -> None:
        """Fail unless each member is listed once, as the progress states."""
        listed = self.records(BROADCASTS)
        assert Counter(one["user_id"] for one in listed) == Counter(USERS)
        assert {one["campaign"] for one in listed} == {"sale"}
        progress = self.records(BROADCAST_PROGRESS)
        assert (progress[-1]["state"], progress[-1]["written"]) == ("DONE", len(USERS))
        assert [one["written"] for one in progress] == sorted({one["written"] for one in progress} - {0})


@pytest.fixture(scope="module")
def own_stack(stack: Stack) -> Iterator[Stack]:
    """The session's broker, with read models of this file's own."""
    with own_keyspace(stack.cassandra) as cassandra:
        yield replace(stack, cassandra=cassandra)


@pytest.fixture
def world(own_stack: Stack, workspace: str) -> Iterator[World]:
    database = Database(own_stack.cassandra)
    found = World(own_stack, database, workspace)
    found.enter(USERS, AT)
    found.enter(LATER, AT + 1)
    found.advance(AT)
    yield found
    database.close()


def settings(world: World, failpoint: str = "") -> dict[str, str]:
    own = {"STARLING_BATCH_RECORDS": "40", **({"STARLING_FAILPOINT": failpoint} if failpoint else {})}
    return {**world.stack.environment(), **own}


EVERYWHERE = (AFTER_START, AFTER_READ, BEFORE_COMMIT, AFTER_COMMIT, f"{BEFORE_COMMIT}:2", f"{AFTER_READ}:3")


@pytest.mark.parametrize(
    "failpoints",
    [pytest.param(EVERYWHERE, marks=pytest.mark.long, id="everywhere"), pytest.param((f"{BEFORE_COMMIT}:2",), id="once")],
)
def test_each_member_is_listed_once_wherever_the_process_is_killed(
    world: World, tmp_path: Path, failpoints: tuple[str, ...]
) -> None:
    world.activate()
    with running("starling_broadcaster", settings(world), tmp_path / "waiting.log") as service:
        eventually(lambda: 'starling_broadcaster_broadcasts{state="waiting"} 1.0' in metrics(service.url))
        assert world.records(BROADCASTS) == []
        assert service.stop() == 0
    world.advance(AT + 1)
    for failpoint in failpoints:
        with running("starling_broadcaster", settings(world, failpoint), tmp_path / "killed.log", ready=False) as service:
            assert service.process.wait(60) == -signal.SIGKILL
    assert not world.is_done()
    with running("starling_broadcaster", settings(world), tmp_path / "last.log"):
        eventually(world.is_done)
    world.check()


@pytest.mark.long
def test_a_process_that_another_one_has_replaced_writes_nothing_more_and_ends(world: World, tmp_path: Path) -> None:
    world.activate()
    world.advance(AT + 1)
    with ExitStack() as last:
        suspended = settings(world, f"{BEFORE_COMMIT}:3:stop")
        first = last.enter_context(running("starling_broadcaster", suspended, tmp_path / "first.log", ready=False))
        eventually(lambda: is_suspended(first.process.pid))
        assert not world.is_done()
        last.enter_context(running("starling_broadcaster", settings(world), tmp_path / "second.log"))
        eventually(world.is_done)
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(90) == 1
    world.check()


def metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", trust_env=False).text


def is_suspended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
