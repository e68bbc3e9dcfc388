"""A past for reprocessing: what was received, in Kafka's shape, and what the real normalizer made of it, on tasks in memory."""

import json
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, INGEST_TOPICS, OUTCOMES, PROFILE, load_catalogue
from starling_common.settings import Clock
from starling_common.wire import Item, Registry, schema_text
from starling_items.enrich import Product
from starling_items.profile import Profile
from starling_items.work import StageDependencies
from starling_normalizer.agents import Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.testing import RECEIVED_MS, key_of, local_codecs, received
from starling_spark.kafka.codec import TopicSchema, Wire
from starling_stream.testing import Fed, MemoryTask

PARTITIONS = 2
HOUR_MS = 3_600_000
CODECS = local_codecs()
SCHEMAS = {name: topic.schema for name, topic in load_catalogue().topics.items()}
WIRE = Wire("http://127.0.0.1:1", tuple(TopicSchema(name, schema, CODECS[name].schema_id) for name, schema in SCHEMAS.items()))

KafkaRecord = tuple[str, int, int, int, bytes | None, bytes, None]
"""As `sources.RECORDS`."""


def registry() -> Registry:
    """Knows the newest schema of every topic, and nothing else."""
    newest = lambda topic: (CODECS[topic].schema_id, schema_text(SCHEMAS[topic]))  # noqa: E731 - a registry in a line
    return cast("Registry", SimpleNamespace(newest=newest))


@dataclass
class Past:
    """Everything that was received, by partition, and what became of it. `now_micros` goes on with each record."""

    clock: Clock
    records: list[KafkaRecord] = field(default_factory=list)
    """As Kafka has them: ingest topics, and the event topics that the normalizer wrote."""
    refused: list[tuple[str, int, int, str, str]] = field(default_factory=list)
    """(topic, partition, offset, code, message)."""
    outcomes: list[str] = field(default_factory=list)
    catalog: dict[tuple[str, str], Product] = field(default_factory=dict)
    now_micros: int = RECEIVED_MS * 1000

    def __post_init__(self) -> None:
        stage_dependencies = StageDependencies(self.clock, lambda workspace, product_id: self.catalog.get((workspace, product_id)))
        dependencies = NormalizerDependencies(lambda *_: None, lambda: RECEIVED_MS, lambda: None)
        service = normalizer_service(Normalizer(CODECS, stage_dependencies, dependencies), self.clock)
        self._tasks: list[MemoryTask[Profile]] = [MemoryTask(service, number) for number in range(PARTITIONS)]
        self._offsets: dict[tuple[str, int], int] = {}

    def call(self, kind: str, item: dict[str, Any] | str, user: str, **fields: Any) -> None:
        self.now_micros += 1000
        record = received(kind, item, **{"user_id": user, "received_at": self.now_micros, **fields})
        key = fields.pop("key", key_of(record))
        self.give(f"ingest.{kind}", key, CODECS[f"ingest.{kind}"].encode(record), user)

    def compute(self, user: str, value: object, as_of: int, version: int = 1) -> None:
        self.now_micros += 1000
        record = {
            "received_at": self.now_micros, "workspace": "default", "user_id": user, "event_id": f"e-{version}-{as_of}",
            "trait_key": "orders", "trait_version": version, "value": json.dumps(value), "as_of": as_of, "correlation_id": "c-9",
        }  # fmt: skip
        self.give(AGGREGATES, f"default/{user}".encode(), CODECS[AGGREGATES].encode(record), user)

    def give(self, topic: str, key: bytes | None, value: bytes, user: str) -> None:
        partition = sum(user.encode()) % PARTITIONS
        task = self._tasks[partition]
        offset = self._note(topic, partition, key, value, self.now_micros // 1000)
        task.feed_all([Fed(topic, key, value, [], self.now_micros // 1000)])
        for output in task.take_outputs():
            if output.topic == OUTCOMES:
                self.outcomes.append(CODECS[OUTCOMES].decode(output.value)["outcome"])
            else:
                self._note(output.topic, partition, output.key, output.value, output.received_at // 1000)
        for refusal in task.refusals:
            assert (refusal.record.topic, refusal.record.partition) == (topic, partition)
            self.refused.append((topic, partition, offset, refusal.code, refusal.message))
        task.refusals.clear()

    def of(self, *topics: str) -> list[KafkaRecord]:
        return [record for record in self.records if record[0] in topics]

    def received_count(self) -> int:
        return len(self.of(*INGEST_TOPICS))

    def _note(self, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> int:
        offset = self._offsets.get((topic, partition), 0)
        self._offsets[topic, partition] = offset + 1
        if topic in (*INGEST_TOPICS, BEHAVIOUR, PROFILE):
            self.records.append((topic, partition, offset, timestamp_ms, key, value, None))
        return offset


def lived(clock: Clock, seed: int, calls: int = 150) -> Past:
    """Ten people and what they sent in about ten days: repeats, bad items of every kind, late times, a catalog that changes."""
    past, lots = Past(clock), random.Random(seed)
    past.catalog["default", "sku-1"] = Product("shoes", 42.5, None, "Trail runner")
    for number in range(calls):
        past.now_micros += lots.choice((0, 1, 3)) * HOUR_MS * 1000
        user = f"u{lots.randrange(10)}"
        happened = past.now_micros // 1000 - lots.choice((0, 0, 1, 40)) * HOUR_MS
        year = 2026 if clock is Clock.WALL else 1997
        stamp = {"timestamp": f"{year}-01-{1 + number // 8:02}T{happened // HOUR_MS % 24:02}:00:00Z"}
        _one(past, lots, user, stamp, f"m-{number // 30}-{lots.randrange(3)}")
        if number == calls // 2:
            past.catalog["default", "sku-1"] = Product("boots", 50.0, "Acme", "Trail runner")
        if number == calls // 3:  # what chance may leave out
            past.call("track", "[", "u1", message_id="m-x")
            past.call("track", {"event": "Buy"}, "u1", message_id="m-y", received_at=-1)
            past.call("identify", {"traits": {"computed": {}}}, "u2", message_id="m-z")
    return past


def _one(past: Past, lots: random.Random, user: str, stamp: dict[str, str], message_id: str) -> None:
    base = {"message_id": message_id, "anonymous_id": lots.choice((None, f"a-{lots.randrange(5)}"))}
    buy = {"event": "Buy", "properties": {"product_id": "sku-1", "n": 1.5}, "context": {"ip": "é"}, **stamp}
    match lots.randrange(16):
        case 0 | 1 | 2:
            past.call("identify", {"traits": {lots.choice("abc"): lots.choice((1, "x", None, {"y": [1]}))}, **stamp}, user, **base)
        case 3:
            past.call("group", {"groupId": lots.randrange(3), "traits": {"seats": 3}, **stamp}, user, **base)
        case 4:
            past.call("page", {"name": "Home", **stamp}, user, **base)
        case 5:
            past.compute(user, lots.choice((1, 2, None)), lots.randrange(100), version=lots.randrange(1, 3))
        case 6:
            packed = Item(event="Buy", properties={"product_id": "sku-2"}).SerializeToString()
            past.call("track", "", user, item_protobuf=packed, **base)
        case 7:
            past.call("track", {**buy, "groupId": {}}, user, **base)  # the lake refuses it, the normalizer does not
        case 8:
            wrong = lots.choice(({**buy, "event": " "}, "[", {**buy, "timestamp": "yesterday"}, {**buy, "properties": []}))
            past.call("track", wrong, user, **base)
        case 9:
            past.call("alias", {"previousId": lots.choice((user, "old")), **stamp}, user, **base)
        case 10:
            past.now_micros += 1000
            good = CODECS["ingest.track"].encode(received("track", buy))
            past.give("ingest.track", f"default/{user}".encode(), lots.choice((b"junk", good[:-1])), user)
        case 11:
            past.call("track", buy, user, **base, **lots.choice(({"key": b"default/eve"}, {"key": None}, {"received_at": -1})))
        case _:
            past.call("track", {**buy, "sentAt": stamp["timestamp"]}, user, **base)
