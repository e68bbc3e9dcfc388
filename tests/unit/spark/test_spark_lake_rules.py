"""The lake's rules without Spark: positions of a table, its growth, and the decoding of items."""

import json
from pathlib import Path

import pytest
from google.protobuf import json_format

from starling_common.wire import Item
from starling_spark.kafka.codec import Refusal
from starling_spark.lakehouse.iceberg import warehouse_uri
from starling_spark.lakehouse.positions import Span, after, from_text, is_in, partly_in, to_text
from starling_spark.lakehouse.schema.items import call_of, read_json, read_protobuf
from starling_spark.lakehouse.warehouse_lock import WarehouseInUse, locked_warehouse

SPANS = {("t", 0): Span(5, 9, 4), ("t", 1): Span(0, 2, 2)}


def test_a_position_states_the_written_records() -> None:
    assert not is_in({}, SPANS)
    assert not is_in({("t", 0): 9, ("t", 1): 1}, SPANS)
    assert is_in({("t", 0): 9, ("t", 1): 7}, SPANS)
    assert partly_in({("t", 0): 5, ("t", 1): 1}, SPANS) == {("t", 1): 1}
    assert partly_in({}, SPANS) == {}


def test_a_position_never_goes_back() -> None:
    moved = after({("t", 0): 100, ("u", 3): 1}, SPANS)
    assert moved == {("t", 0): 100, ("t", 1): 2, ("u", 3): 1}
    assert from_text(to_text(moved)) == moved


def test_an_item_is_decoded() -> None:
    found = read_json(
        '{"type": "group", "groupId": 7, "traits": {"a": {"b": 1.50}}, "timestamp": "2026-01-01T00:00:00.001Z", "x": null}'
    )
    assert not isinstance(found, Refusal)
    assert {name: value for name, value in found.items() if value is not None} == {
        "group_id": "7", "traits": '{"a":{"b": 1.50}}', "timestamp": 1_767_225_600_001_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "bad_item"),
        ("{", "bad_item"),
        ('{"event": 5}', "bad_item"),
        ('{"properties": []}', "bad_item"),
        ('{"context": {"a": }}', "bad_item"),
        ('{"sentAt": "soon"}', "bad_timestamp"),
        ('{"timestamp": "0001-01-01T00:00:00+23:59"}', "bad_timestamp"),
    ],
)
def test_an_empty_item_is_refused_with_the_reason(text: str, code: str) -> None:
    found = read_json(text)
    assert isinstance(found, Refusal)
    assert (found.code, bool(found.message)) == (code, True)


def test_an_item_is_equal_in_both_formats() -> None:
    item = {"type": "group", "groupId": "7", "traits": {"a": {"b": 1.5}}, "timestamp": "2026-01-01T00:00:00.001Z", "event": ""}
    packed = json_format.ParseDict(item, Item()).SerializeToString()
    found = call_of({"item": "", "item_protobuf": packed})
    assert not isinstance(found, Refusal)
    assert found == call_of({"item": json.dumps(item, separators=(",", ":")), "item_protobuf": None})


@pytest.mark.parametrize(
    ("packed", "code", "message"),
    [
        (b"\xff", "bad_protobuf", "no starling.ingest.v1.Item"),
        (b"\xa2\x06\x03new", "bad_protobuf", "no field of an Item"),
        (Item(sent_at={"seconds": 2**60}).SerializeToString(), "bad_timestamp", "sentAt"),
    ],
)
def test_an_empty_message_is_refused_with_the_reason(packed: bytes, code: str, message: str) -> None:
    found = read_protobuf(packed)
    assert isinstance(found, Refusal)
    assert (found.code, message in found.message) == (code, True)


def test_a_warehouse_is_a_directory_or_a_uri(tmp_path: Path) -> None:
    assert warehouse_uri("s3a://bucket/lake") == "s3a://bucket/lake"
    assert warehouse_uri(str(tmp_path / "a b")) == (tmp_path / "a b").as_uri()


def test_a_local_warehouse_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with locked_warehouse(tmp_path / "lake"), pytest.raises(WarehouseInUse), locked_warehouse(tmp_path / "lake"):
        pass
    with locked_warehouse(tmp_path / "lake"), locked_warehouse(None):
        assert json.dumps("free again")
