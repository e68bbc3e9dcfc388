"""Values of several writers, of none, and of broken ones, in one batch."""

import json
import struct
from typing import Any

import pytest

from starling_common.wire import UnknownSchema, schema_text
from starling_spark.kafka import codec
from starling_spark.kafka.codec import NO_ID, BatchReader, Refusal, TopicSchema, Wire

OWN, NEWER, UNKNOWN = 7, 8, 4_000_000_000
PRODUCT = {"workspace": "w", "product_id": "p", "category": "c", "price": 1.5, "brand": None, "name": "n", "listed_at": 5}


def newer_schema() -> str:
    document = json.loads(schema_text("ProductListed"))
    document["fields"].insert(0, {"name": "colour", "type": ["null", "string"], "default": None})
    return json.dumps(document)


class FakeRegistry:
    """A registry that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        known = {OWN: schema_text("ProductListed"), NEWER: newer_schema()}
        if schema_id not in known:
            raise UnknownSchema(schema_id)
        return known[schema_id]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    registry = FakeRegistry()
    monkeypatch.setattr(codec, "_registry", lambda _url: registry)
    codec._codec.cache_clear()
    return registry


def wire(schema_id: int, schema: str | None = None) -> Wire:
    return Wire("http://registry", (TopicSchema("products", "ProductListed", schema_id, schema),))


def value(schema_id: int, record: dict[str, Any], schema: str | None = None) -> bytes:
    return wire(schema_id, schema).codec("products").encode(record)


def test_two_writers_interleaved_are_each_read_by_their_own_schema(registry: FakeRegistry) -> None:
    old, new = value(OWN, PRODUCT), value(NEWER, {**PRODUCT, "colour": "red"}, newer_schema())
    reader = BatchReader(wire(OWN))
    assert [reader.read("products", one) for one in (old, new, old, new)] == [PRODUCT] * 4
    by_newest = BatchReader(wire(NEWER, newer_schema()))
    found = [by_newest.read("products", one) for one in (new, old)]
    assert found == [{**PRODUCT, "colour": "red"}, {**PRODUCT, "colour": None}]


def test_an_unreadable_value_states_the_reason_and_others_are_read(registry: FakeRegistry) -> None:
    good = value(OWN, PRODUCT)
    unknown = struct.pack(">bI", 0, UNKNOWN) + good[5:]
    reader = BatchReader(wire(OWN))
    found = [reader.read("products", one) for one in (unknown, good[:-1], good + b"x", b"no header", None, b"", good)]
    refusals = [(one.code, one.schema_id) for one in found if isinstance(one, Refusal)]
    assert refusals == [
        ("unknown_schema", UNKNOWN), ("broken_avro", OWN), ("broken_avro", OWN),
        ("bad_framing", NO_ID), ("bad_framing", NO_ID), ("bad_framing", NO_ID),
    ]  # fmt: skip
    assert found[-1] == PRODUCT


def test_an_unknown_id_is_requested_once_in_each_batch(registry: FakeRegistry) -> None:
    unknown = struct.pack(">bI", 0, UNKNOWN) + value(OWN, PRODUCT)[5:]
    for _ in range(2):
        reader = BatchReader(wire(OWN))
        assert [type(reader.read("products", unknown)) for _ in range(3)] == [Refusal] * 3
    assert registry.asked == [UNKNOWN, UNKNOWN]
