"""Doors: records on the input topics of each stage, valid by their schema with hostile values, or broken bytes."""

import copy
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer

from starling_common.kafka.clients import consumer_config, producer_config, watermarks
from starling_common.kafka.topics import (
    AGGREGATES,
    BEHAVIOUR,
    DELIVERY,
    DELIVERY_DEFINITIONS,
    INGEST_TOPICS,
    LAKE_DEFINITIONS,
    LIST_DEFINITIONS,
    LIST_MEMBERSHIP,
    PRODUCTS,
    PROFILE,
    SEGMENT_DEFINITIONS,
    TRAIT_DEFINITIONS,
    WATERMARKS,
    WEBHOOK_DEFINITIONS,
    load_catalogue,
)
from starling_common.schemas import schema_directory
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Codec, DecodeError, FieldReader, Registry
from starling_common.wire.codec import schema_text
from starling_projector.decoder import FIELDS
from starling_rules.events import BEHAVIOUR_FIELDS, CHAIN_FIELDS, LISTED_FIELDS, PROFILE_FIELDS, REPORT_FIELDS
from starling_spark.jobs.profiles.fold.matches import EVENT_FIELDS
from tests.fuzz import hostile
from tests.fuzz.letters import Letters
from tests.fuzz.tally import Account, Input

ATTACKER: Final = "lab"

USERS: Final = 200
TOPICS: Final[Mapping[str, tuple[str, ...]]] = {
    "normalizer": (*INGEST_TOPICS, AGGREGATES),
    "segmenter": (
        "events.behaviour",
        "events.profile",
        "lists.membership",
        "events.delivery",
        "accounts.answers",
        "accounts.tallies",
    ),
    "projector": ("events.profile", "segments.membership", "segments.progress", "events.behaviour", "events.delivery"),
    "delivery": ("segments.membership", "delivery.retry"),
    "profiles": ("events.behaviour",),
    "definitions": (
        SEGMENT_DEFINITIONS,
        TRAIT_DEFINITIONS,
        WEBHOOK_DEFINITIONS,
        LIST_DEFINITIONS,
        DELIVERY_DEFINITIONS,
        LAKE_DEFINITIONS,
        PRODUCTS,
    ),
    "watermarks": (WATERMARKS,),
}
"""Door -> the topics that it attacks. `stream.clock` is left out: a record there is the order of an operator."""

STAGE_LETTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "normalizer": ("normalizer",), "segmenter": ("segmenter",), "projector": ("projector",), "projector-events": ("projector",),
    "webhook": ("delivery",), "profiles": ("profiles",),
}  # fmt: skip
"""Stage of the catalogue -> the stages of its dead letters. The lake and views do not run."""

PARTS_READ: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "projector": FIELDS,
    "segmenter": {
        BEHAVIOUR: (*BEHAVIOUR_FIELDS, *CHAIN_FIELDS),
        PROFILE: (*PROFILE_FIELDS, *CHAIN_FIELDS),
        LIST_MEMBERSHIP: LISTED_FIELDS,
        DELIVERY: REPORT_FIELDS,
    },
    "profiles": {BEHAVIOUR: EVENT_FIELDS},
}
"""Stages that skip the other fields of a topic's records, whose text they do not check."""

REPEATING: Final = frozenset({"profiles"})
"""Stages that write the same dead letters again when they read their topic again, after a definition has changed."""

FOLLOWED: Final = frozenset({("profiles", TRAIT_DEFINITIONS)})
"""Topics that a stage follows as a table: the projector, which reads them as well, writes the dead letters."""

PACES: Final[Mapping[str, float]] = {"definitions": 2.0, "watermarks": 10.0}
"""Each definition in force makes the segmenter evaluate all users of the workspace."""

LONGS: Final = (
    0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000,
    253_402_300_799_999_000, 253_402_300_800_000_000,
)  # fmt: skip
INTS: Final = (0, 1, -1, 2**31 - 1, -(2**31))
JSONS: Final = (
    "", "{", "[]", "null", "1", '"text"', '{"a": "\\ud800"}', '{"\\udfff": 1}', '{"a": NaN}', '{"a": Infinity}', '{"a": 1e400}',
    '{"a": 1, "a": 2}', '{"revenue": ' + "9" * 400 + "}", "[" * 500 + "]" * 500, '{"a":' * 200 + "1" + "}" * 200,
    "\x00", "\ufeff{}",
)  # fmt: skip
_OWN: Final = frozenset({"order", "previous_order"})
"""Fields that only the normalizer's own transactions write: the segmenter waits for them."""
_JSON_FIELDS: Final = frozenset({"item", "properties", "context", "traits", "group_traits", "document", "payload", "value"})


def examples(topic: str) -> list[dict[str, Any]]:
    """Return the documented examples of a topic's record."""
    name = load_catalogue().topics[topic].schema
    fields = {field["name"]: field["type"] for field in json.loads(schema_text(name))["fields"]}
    found: list[dict[str, Any]] = json.loads((schema_directory() / "examples" / f"{name}.json").read_text())
    for record in found:
        for field, value in record.items():
            if isinstance(value, str) and "bytes" in fields[field]:
                record[field] = value.encode("latin-1")
    return found


class Records:
    """Writes records as another service of the installation would, with its schema and its keys."""

    def __init__(self, stage: str, brokers: str, registry_url: str, letters: Letters, running: frozenset[str]) -> None:
        """`running`: the stages of the catalogue that read topics at present."""
        self.name = f"records of {stage}" if stage in load_catalogue_stages() else f"records: {stage}"
        self.pace = PACES.get(stage, 50.0)
        self._topics = TOPICS[stage]
        registry = Registry(registry_url)
        self._codecs = {topic: registry.codec(topic, load_catalogue().topics[topic].schema) for topic in self._topics}
        self._examples = {topic: examples(topic) for topic in self._topics}
        self._producer = Producer(producer_config(brokers, **{"message.timeout.ms": 30_000}))
        self._brokers, self._workspace = brokers, ATTACKER
        self._letters = letters
        self._running = running
        self._part_readers = {
            (name, topic): FieldReader(codec, parts[topic])
            for name, parts in PARTS_READ.items()
            for topic, codec in self._codecs.items()
            if topic in parts
        }
        self._lock = threading.Lock()
        self._written: dict[tuple[str, int, int], tuple[int, frozenset[str]]] = {}
        self._refused: Counter[str] = Counter()

    def make(self, dice: random.Random) -> Input:
        """Return topic, key and value of one record. Its time of arrival is the present."""
        topic = dice.choice(self._topics)
        codec = self._codecs[topic]
        record = self._record(dice, topic)
        for _ in range(dice.choice((0, 1, 1, 2, 4))):
            self._make_hostile(dice, codec, record)
        try:
            value = codec.encode(record)
        except ValueError:  # half of a surrogate pair, which Avro cannot hold
            value = codec.encode(self._record(dice, topic))
        if dice.random() < 0.3:
            value = self._broken(dice, codec, value)
        # A producer of the platform writes the arrival as the timestamp, so that the broker refuses an impossible one.
        stamp = record.get("received_at", 0) // 1000
        return {"topic": topic, "key": self._key(dice, topic, record), "value": value, "timestamp": max(0, min(stamp, 2**62))}

    def send(self, given: Input, number: int) -> bool:
        """Hand the record to the client library; a record that the broker refuses is refused by an answer."""
        topic, value = given["topic"], given["value"]
        unreadable = self._unreadable(topic, value)

        def delivered(error: Any, message: Message) -> None:
            with self._lock:
                if error is None:
                    self._written[topic, message.partition() or 0, message.offset() or 0] = (number, unreadable)
                else:
                    self._refused[error.name()] += 1

        try:
            self._producer.produce(topic, value, given["key"], timestamp=given["timestamp"], on_delivery=delivered)
        except KafkaException:  # larger than the client sends
            return False
        self._producer.poll(0)
        return True

    def account(self) -> Account:
        """Compare the written records with the dead letters of every stage that reads their topic."""
        self._producer.flush(30)
        found = Account()
        stages = [one for one in load_catalogue().stages if one.name in self._running]
        letters = {name: self._letters.by_origin(name) for one in stages for name in STAGE_LETTERS.get(one.name, ())}
        for place, (number, unreadable) in self._written.items():
            reading = {name for one in stages if place[0] in one.inputs for name in STAGE_LETTERS.get(one.name, ())}
            known = {name: letters[name].get(place, []) for name in reading}
            found.dead_letters += sum(map(len, known.values()))
            for name, of_stage in known.items():
                count = min(len(of_stage), 1) if name in REPEATING else len(of_stage)
                if (
                    name in unreadable
                    and (name, place[0]) not in FOLLOWED
                    and count != 1
                    and (count or not self._is_deleted(place))
                ):
                    found.lost.append((number, f"unreadable for {name}, which wrote {len(of_stage)} dead letters"))
                for letter in of_stage:
                    key = f"{name}: {letter['code']}"
                    found.notes[key] = found.notes.get(key, 0) + 1
        for code, count in self._refused.items():
            found.notes[f"broker: {code}"] = count
        return found

    def _is_deleted(self, place: tuple[str, int, int]) -> bool:
        """Return whether the broker has deleted the record, whose timestamp may be that of 1970, maybe before a stage read it."""
        topic, partition, offset = place
        consumer = Consumer(consumer_config(self._brokers, "fuzz-starts"))
        try:
            return offset < watermarks(consumer, topic, partition, 30)[0]
        finally:
            consumer.close()

    def flush(self) -> None:
        """Return once the broker has every record."""
        self._producer.flush(30)

    def _record(self, dice: random.Random, topic: str) -> dict[str, Any]:
        record = copy.deepcopy(dice.choice(self._examples[topic]))
        own = {"workspace": self._workspace, "user_id": f"fz-{dice.randrange(USERS)}", "received_at": wall_clock_micros()}
        record |= {name: value for name, value in own.items() if name in record}
        for name in ("event_id", "message_id"):
            if isinstance(record.get(name), str):
                record[name] = f"fz-{dice.getrandbits(60):x}"
        if topic.endswith(".definitions"):
            record["key"] = f"fz_{dice.randrange(40)}"
        if "order" in record:
            record["order"] = record["previous_order"] = -1
        if topic == WATERMARKS:
            record |= {"edge": "fuzz", "low": wall_clock_micros(), "started_at": int(time.time() * 1000), "lease_ms": 0}
        return record

    def _key(self, dice: random.Random, topic: str, record: Mapping[str, Any]) -> bytes | None:
        if dice.random() < 0.04:
            return dice.choice((None, b"", b"\xff\xfe", b"no-slash", b"/", b"x" * 2_000, b"lab/\x00"))
        workspace = str(record.get("workspace") or self._workspace)
        name = record.get("key") or record.get("user_id") or record.get("anonymous_id") or record.get("account_id") or ""
        if topic == "accounts.answers":
            name = record["account_id"]
        return record_key(workspace[:200], str(name)[:600])

    def _make_hostile(self, dice: random.Random, codec: Codec, record: dict[str, Any]) -> None:
        field = dice.choice(json.loads(codec.schema)["fields"])
        if field["name"] == "workspace" and dice.random() < 0.8:
            return
        if field["name"] in _OWN:
            return
        record[field["name"]] = self._of_type(dice, field["type"], field["name"])

    def _of_type(self, dice: random.Random, kind: Any, name: str) -> Any:
        """Return a hostile value of an Avro type."""
        if isinstance(kind, list):
            return self._of_type(dice, dice.choice(kind), name)
        if not isinstance(kind, dict):
            return _PRIMITIVES[kind](dice) if kind in _PRIMITIVES else self._text(dice, name)
        makers: dict[str, Callable[[], Any]] = {
            "array": lambda: [self._of_type(dice, kind["items"], name) for _ in range(dice.choice((0, 1, 3, 2_000)))],
            "map": lambda: {
                self._text(dice, "")[:600]: self._of_type(dice, kind["values"], name) for _ in range(dice.choice((0, 1, 50)))
            },
            "enum": lambda: dice.choice(kind["symbols"]),
            "record": lambda: {field["name"]: self._of_type(dice, field["type"], field["name"]) for field in kind["fields"]},
        }
        return makers[kind["type"]]() if kind["type"] in makers else self._of_type(dice, kind["type"], name)

    def _text(self, dice: random.Random, name: str) -> str:
        if name in _JSON_FIELDS and dice.random() < 0.8:
            found = dice.choice(JSONS) if dice.random() < 0.5 else json.dumps(hostile.value(dice))
        else:
            found = hostile.text(dice)
        return found.encode(errors="replace").decode()

    def _broken(self, dice: random.Random, codec: Codec, value: bytes) -> bytes:
        match dice.randrange(6):
            case 0:
                return bytes([dice.randrange(1, 256)]) + value[1:]
            case 1:
                return b"\x00" + (2**31 - 1 - dice.randrange(5)).to_bytes(4, "big") + value[5:]
            case 2:
                return value[: dice.randrange(len(value))]
            case 3:
                return codec.header + dice.randbytes(dice.choice((0, 1, 40)))
            case 4:
                return value + b"\x00" * dice.choice((1, 100))
        return value[:5] + hostile.broken(dice, value[5:])

    def _unreadable(self, topic: str, value: bytes) -> frozenset[str]:
        """Return the stages (by their dead letters) that cannot decode the value."""
        try:
            self._codecs[topic].decode(value)
        except DecodeError:
            everywhere = {name for names in STAGE_LETTERS.values() for name in names}
            return frozenset(name for name in everywhere if not self._has_parts(name, topic, value))
        return frozenset()

    def _has_parts(self, name: str, topic: str, value: bytes) -> bool:
        try:
            return (reader := self._part_readers.get((name, topic))) is not None and reader(value) is not None
        except DecodeError:
            return False


_PRIMITIVES: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "long": lambda dice: dice.choice(LONGS),
    "int": lambda dice: dice.choice(INTS),
    "double": lambda dice: dice.choice((0.0, -0.0, 1e308, float("inf"), float("nan"), 5e-324)),
    "boolean": lambda dice: dice.random() < 0.5,
    "bytes": lambda dice: dice.randbytes(dice.choice((0, 1, 300))),
    "null": lambda _dice: None,
}


def load_catalogue_stages() -> frozenset[str]:
    """Return the stages that have dead letters of their own."""
    return frozenset(name.removesuffix(".dlq") for name in load_catalogue().topics if name.endswith(".dlq"))
