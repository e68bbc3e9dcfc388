"""The Protocol Buffers form of an item and the JSON that means the same."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Value
from grpc_tools import protoc

from starling_common.wire import (
    Batch,
    DecodeError,
    Item,
    batch_of_one,
    batch_write_key,
    item_json,
    item_write_key,
    open_batch,
    read_item,
)
from starling_common.wire.ingest_envelope_pb2 import BatchEnvelope, ItemEnvelope

ROOT = Path(__file__).parents[3]
EVERYTHING = {
    "type": "track", "messageId": "m", "userId": "u", "anonymousId": "a", "event": "e", "name": "n", "category": "c",
    "groupId": "g", "previousId": "p",
    "writeKey": "k", "timestamp": "2026-01-01T00:00:00Z", "originalTimestamp": "2026-01-01T00:00:00.000001Z",
    "sentAt": "2026-01-01T00:00:00.500Z", "context": {"c": 1}, "integrations": {"i": True}, "properties": {"p": [None, {"x": 2.5}]},
    "traits": {"t": "é"},
}  # fmt: skip


def test_the_generated_classes_are_those_of_the_proto_file(tmp_path: Path) -> None:
    library = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{ROOT / 'schemas/proto'}", f"-I{library}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main([*arguments, *(str(ROOT / f"schemas/proto/{name}.proto") for name in ("ingest", "ingest_envelope"))]) == 0
    for name in ("ingest_pb2.py", "ingest_pb2.pyi", "ingest_envelope_pb2.py", "ingest_envelope_pb2.pyi"):
        assert (ROOT / "libs/common/starling_common/wire" / name).read_text() == (tmp_path / name).read_text(), "run `make proto`"


def test_no_field_begins_like_a_json_object() -> None:
    for message in (Item, Batch):
        assert 15 not in message.DESCRIPTOR.fields_by_number


def test_every_field_has_its_name_in_json() -> None:
    item = json_format.ParseDict(EVERYTHING, Item())
    assert {field.name for field, _ in item.ListFields()} == set(Item.DESCRIPTOR.fields_by_name)
    assert json.loads(item_json(item.SerializeToString())) == EVERYTHING == json_format.MessageToDict(item)


@pytest.mark.parametrize(
    ("number", "text"),
    [(5.0, "5"), (-0.0, "0"), (2.5, "2.5"), (2.0**53, "9007199254740992"), (1e17, "1e17"), (-3.0, "-3")],
)
def test_a_whole_number_has_no_fraction(number: float, text: str) -> None:
    item = Item()
    item.properties["n"] = number
    assert item_json(item.SerializeToString()) == f'{{"properties":{{"n":{text}}}}}'


def test_the_text_does_not_hang_on_the_order_in_which_members_were_set() -> None:
    one, other = Item(), Item()
    names = [f"name-{number}" for number in range(50)]
    one.traits.update(dict.fromkeys(names, 1))
    other.traits.update(dict.fromkeys(reversed(names), 1))
    assert item_json(one.SerializeToString()) == item_json(other.SerializeToString())


def nothing_set() -> Item:
    item = Item(user_id="ada")
    item.properties.fields["a"].struct_value.fields["b"].CopyFrom(Value())
    return item


def with_number(number: float) -> Item:
    item = Item(user_id="ada")
    item.properties["list"] = [1, number]
    return item


def far_away() -> Item:
    item = Item(user_id="ada")
    item.original_timestamp.seconds = 2**60
    return item


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        (b"\xff", "bad_protobuf", "starling.ingest.v1.Item"),
        (b"\x1a\x02\xff\xfe", "bad_protobuf", "UTF-8"),
        (b"\xa2\x06\x03new", "bad_protobuf", "no field of an Item"),
        (b"", "bad_protobuf", "no field of an Item"),
        (nothing_set().SerializeToString(), "bad_protobuf", "properties.a.b: the Value holds nothing"),
        (with_number(math.nan).SerializeToString(), "bad_protobuf", "properties.list.1: nan"),
        (with_number(-math.inf).SerializeToString(), "bad_protobuf", "properties.list.1: -inf"),
        (far_away().SerializeToString(), "bad_timestamp", "originalTimestamp"),
    ],
)
def test_values_without_a_json_form_state_the_reason(data: bytes, code: str, place: str) -> None:
    with pytest.raises(DecodeError) as raised:
        item_json(data)
    assert raised.value.code == code
    assert place in str(raised.value)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_a_batch_of_one(size: int) -> None:
    item = Item(event="x" * size) if size else Item()
    assert list(Batch.FromString(batch_of_one(item.SerializeToString())).batch) == [item]


def test_objects_may_nest_as_deep_as_the_normalizer_reads() -> None:
    value: dict[str, Any] = {}
    for _ in range(30):
        value = {"a": value}
    item = json_format.ParseDict({"properties": value}, Item())
    assert read_item(item.SerializeToString()) == item


def test_the_envelopes_have_the_numbers_of_the_messages_they_are_views_of() -> None:
    for view, whole in ((ItemEnvelope, Item), (BatchEnvelope, Batch)):
        for name, field in view.DESCRIPTOR.fields_by_name.items():
            assert field.number == whole.DESCRIPTOR.fields_by_name[name].number


def test_the_write_key_is_found_beside_items_that_are_no_messages() -> None:
    assert batch_write_key(b"\x0a\x03abc" + Batch(write_key="key").SerializeToString()) == "key"
    assert item_write_key(b"\x42\x03abc" + Item(write_key="key").SerializeToString()) == "key"
    assert batch_write_key(b"") is None
    assert item_write_key(b"") is None


@pytest.mark.parametrize("read", [batch_write_key, item_write_key, open_batch])
def test_bytes_without_a_message_are_refused(read: Callable[[bytes], object]) -> None:
    with pytest.raises(DecodeError) as raised:
        read(b"\x0a\x05abc")
    assert raised.value.code == "bad_protobuf"


@pytest.mark.parametrize("name", ["context", "integrations"])
def test_a_batch_has_objects_for_its_items(name: str) -> None:
    tag = {"context": b"\x1a", "integrations": b"\x22"}[name]
    with pytest.raises(DecodeError) as raised:
        open_batch(tag + b"\x03abc")
    assert raised.value.code == "bad_protobuf"


def test_what_a_batch_holds_for_all_its_items_merges_under_each_items_own() -> None:
    batch = Batch(batch=[Item(event="e", context={"ip": "1", "app": {"version": "2"}}), Item(event="e")])
    first, second = Batch(context={"ip": "2", "app": {"name": "x"}}), Batch(context={"os": "y"}, integrations={"All": True})
    opened = open_batch(batch.SerializeToString() + first.SerializeToString() + second.SerializeToString())
    own, bare = [json.loads(item_json(opened.shared + item)) for item in opened.items]
    assert own == {"event": "e", "context": {"ip": "1", "app": {"version": "2"}, "os": "y"}, "integrations": {"All": True}}
    assert bare["context"] == {"ip": "2", "app": {"name": "x"}, "os": "y"}
