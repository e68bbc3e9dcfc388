"""The topics of one test, and the segmenter as a process on them."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import (
    BEHAVIOUR,
    DELIVERY,
    LIST_MEMBERSHIP,
    MEMBERSHIP,
    MEMBERSHIP_STATE,
    PROFILE,
    PROGRESS,
    SEGMENT_CLOCK,
    SEGMENT_DEFINITIONS,
    load_catalogue,
)
from starling_common.partitioning import partition_of
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.stream.rig import ROOT, Worker, wait_until

DEAD_LETTERS = "segmenter.dlq"


class World:
    """One workspace on the stack: writes the segmenter's inputs, and reads its outputs since the start of the test."""

    def __init__(self, stack: Stack, workspace: str) -> None:
        registry, catalogue = Registry(stack.registry_url), load_catalogue().topics
        self.workspace = workspace
        self._codecs = {name: registry.codec(name, topic.schema) for name, topic in catalogue.items() if "changelog" not in name}
        self._partitions = load_catalogue().profile_partitions
        self._brokers = stack.brokers
        self._producer = Producer(producer_config(stack.brokers))
        self._chain: dict[str, int] = {}
        """The order of the records that are written, and that of their predecessor."""
        self._consumer = Consumer(consumer_config(stack.brokers, f"test-{workspace}"))
        read = [MEMBERSHIP, MEMBERSHIP_STATE, PROGRESS, SEGMENT_CLOCK, DEAD_LETTERS]
        starts = [TopicPartition(name, number) for name in read for number in range(catalogue[name].partitions)]
        for start in starts:
            start.offset = self._consumer.get_watermark_offsets(start, timeout=30)[1]
        self._consumer.assign(starts)
        self._seen: dict[str, list[tuple[Message, dict[str, Any]]]] = {name: [] for name in read}
        self._numbers = itertools.count(1)

    def define(self, key: str, where: object, version: int = 1, action: str = "DEFINED", *, awaits_backfill: bool = False) -> None:
        """Write a definition without any check. A text is used as JSON unchanged."""
        condition = where if isinstance(where, str) else json.dumps(where)
        document = f'{{"key": "{key}", "name": "{key}", "where": {condition}}}'
        fields = {"kind": "segment", "key": key, "version": version, "action": action, "document": document, "actor": "test"}
        more = {"recorded_at": wall_clock_micros(), "awaits_backfill": awaits_backfill}
        self._write(SEGMENT_DEFINITIONS, key, {**fields, **more})

    def track(self, user: str, name: str, at_ms: int | None = None) -> int:
        """Return the event time."""
        at_ms = wall_clock_ms() if at_ms is None else at_ms
        texts = {"kind": "track", "name": name, "properties": '{"revenue": 5}', "context": "{}", "traits": "{}"}
        message_id = f"message-{next(self._numbers)}"
        times = {"received_at": wall_clock_micros(), "event_time": at_ms}
        self._write(BEHAVIOUR, user, {"user_id": user, "message_id": message_id, **times, **texts})
        return at_ms

    def identify(self, user: str, traits: dict[str, Any], group_id: str | None = None) -> None:
        texts = {"change": "TRAITS", "traits": json.dumps(traits), "group_traits": "{}", "context": "{}", "group_id": group_id}
        times = {"received_at": wall_clock_micros(), "event_time": wall_clock_ms()}
        self._write(PROFILE, user, {"user_id": user, **times, **texts})

    def listed(self, user: str, key: str, *, is_on: bool) -> None:
        """Write the record as the API does: with a longer key than the profile's, to the profile's partition."""
        record = {"workspace": self.workspace, "user_id": user, "list_key": key, "on_list": is_on, "correlation_id": "upload"}
        value = self._codecs[LIST_MEMBERSHIP].encode(record | {"received_at": wall_clock_micros()})
        profile = record_key(self.workspace, user)
        self._producer.produce(LIST_MEMBERSHIP, value, b"%b/%b" % (profile, key.encode()), partition_of(profile, self._partitions))

    def report(self, user: str, outcome: str) -> int:
        """Write a report on a message that is a minute old; return its time."""
        at_ms, attempt = wall_clock_ms(), {"delivery_id": "d", "channel": "webhook", "target_key": "crm", "attempt": 1}
        times = {"received_at": wall_clock_micros() - 60_000_000, "event_time": at_ms}
        self._write(DELIVERY, user, {"user_id": user, "outcome": outcome, **times, **attempt})
        return at_ms

    def changed_then_tracked(self, user: str, traits: dict[str, Any], name: str, *, visible_after_seconds: float) -> None:
        """Write a profile record and the event that follows it; the former becomes visible later."""
        usual, order = self._producer, wall_clock_micros()
        producer = Producer(producer_config(self._brokers, **{"transactional.id": f"test-{self.workspace}"}))
        producer.init_transactions(30)
        producer.begin_transaction()
        self._producer, self._chain = producer, {"order": order, "previous_order": 0}
        self.identify(user, traits)
        self.flush()
        self._producer, self._chain = usual, {"order": order + 1, "previous_order": order}
        self.track(user, name)
        self.flush()
        self._chain = {}
        time.sleep(visible_after_seconds)  # sleep: the duration of the open transaction
        producer.commit_transaction(30)

    def behaviour(self, user: str, key: bytes, **times: int) -> None:
        """Write an event with these times, as a faulty writer does."""
        texts = {"kind": "track", "name": "Seen", "properties": "{}", "context": "{}", "traits": "{}", "correlation_id": "faulty"}
        ids = {"workspace": self.workspace, "user_id": user, "message_id": "m", "event_id": f"event-{next(self._numbers)}"}
        now = {"received_at": wall_clock_micros(), "event_time": wall_clock_ms()}
        value = self._codecs[BEHAVIOUR].encode({**texts, **ids, **now, **times})
        # In the partition of the user, beside the records of other users.
        self._producer.produce(BEHAVIOUR, value, key, partition_of(record_key(self.workspace, user), self._partitions))
        self.flush()

    def poison(self, user: str, topic: str = BEHAVIOUR) -> None:
        self._producer.produce(topic, b"\x00\x00\x00\x00\x01broken", record_key(self.workspace, user))
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def _write(self, topic: str, identifier: str, record: dict[str, Any]) -> None:
        number = next(self._numbers)
        ids = {"workspace": self.workspace, "event_id": f"event-{number}", "correlation_id": f"request-{number}"}
        self._producer.produce(
            topic, self._codecs[topic].encode(record | ids | self._chain), record_key(self.workspace, identifier)
        )
        if topic == SEGMENT_DEFINITIONS:
            self.flush()

    def of(self, topic: str) -> list[tuple[Message, dict[str, Any]]]:
        """Return the records of a topic; those with a workspace only of this one."""
        for message in self._consumer.consume(1000, 0.1):
            assert message.error() is None
            name = message.topic() or ""
            self._seen[name].append((message, self._codecs[name].decode(message.value() or b"")))
        return [
            (message, record) for message, record in self._seen[topic] if record.get("workspace", self.workspace) == self.workspace
        ]

    def letters(self, key: bytes) -> list[dict[str, Any]]:
        """Return the dead letters of a key, which may have no workspace."""
        self.of(DEAD_LETTERS)
        return [record for message, record in self._seen[DEAD_LETTERS] if message.key() == key]

    def feed(self, segment: str) -> list[tuple[str, str, int, str]]:
        return [
            (record["user_id"], record["status"], record["sequence"], record["cause"]["kind"])
            for _, record in self.of(MEMBERSHIP)
            if record["segment_key"] == segment
        ]

    def instants(self, partition: int) -> list[int]:
        """Return the instants that `segments.clock` contains for a partition."""
        return [record["instant"] for message, record in self.of(SEGMENT_CLOCK) if message.partition() == partition]

    def in_force(self, segment: str, version: int) -> bool:
        """Return whether every partition reports that version."""
        place = f"{self.workspace}/{segment}"
        reported = {record["partition"] for _, record in self.of(PROGRESS) if record["definitions"].get(place) == version}
        return reported == set(range(load_catalogue().profile_partitions))

    def is_paused(self, segment: str) -> bool:
        """Return whether no partition evaluates the segment."""
        last = {record["partition"]: record["definitions"] for _, record in self.of(PROGRESS)}
        held = [f"{self.workspace}/{segment}" not in definitions for definitions in last.values()]
        return len(held) == load_catalogue().profile_partitions and all(held)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def start(stack: Stack, workspace: str, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start `python -m starling_segmenter` on a disk of that name; wait until it is ready.

    `instance`: one of several workers; `module`: another program; further arguments are environment variables.
    """
    started: list[Worker] = []

    def start(
        disk: str, instance: str = "segmenter", module: str = "starling_segmenter", *, awaits_ready: bool = True, **settings: str
    ) -> Worker:
        port, log = free_port(), tmp_path / f"worker-{len(started)}.log"
        environment = {
            **os.environ,
            **stack.environment(),
            "STARLING_HTTP__PORT": str(port),
            "STARLING_INSTANCE_ID": f"{instance}-{workspace}",
            "STARLING_STATE_DIR": str(tmp_path / disk),
            **settings,
        }
        with log.open("wb") as out:
            command = [sys.executable, "-m", module]
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
            worker = Worker(process, log, port)
        started.append(worker)
        if awaits_ready:
            wait_until(lambda: worker.ready() or not worker.alive(), "the worker to get ready")
            assert worker.alive(), log.read_text()[-3000:]
        return worker

    yield start
    for worker in started:
        if worker.alive():
            worker.kill()
