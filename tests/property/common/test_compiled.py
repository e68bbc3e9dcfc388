"""The compiled readers and writers agree with the general codec, on valid and on broken bytes."""

import importlib.util
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.wire import (
    Codec,
    DecodeError,
    FieldReader,
    Record,
    RecordReader,
    RecordWriter,
    UnknownSchema,
    fields,
    record_parts,
)  # fmt: skip

TEXT = st.text(max_size=12) | st.sampled_from(["", "x" * 63, "x" * 64, "é" * 4096, "x" * 8191, "x" * 8192, "{}"])
LONG = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-300, 9000)
    | st.sampled_from([2**27 - 1, 2**27, -(2**27), 1_760_000_000_123, 1_760_000_000_123_456])
)
OPTIONAL = st.none() | TEXT
PRODUCT = st.fixed_dictionaries(
    {"product_id": TEXT, "category": OPTIONAL, "price": st.none() | st.floats(allow_nan=False), "brand": OPTIONAL, "name": OPTIONAL}
)
BEHAVIOUR = st.fixed_dictionaries(
    {
        "received_at": LONG,
        "workspace": TEXT,
        "user_id": TEXT,
        "anonymous_ids": st.lists(TEXT, max_size=3),
        "event_id": TEXT,
        "message_id": TEXT,
        "kind": TEXT,
        "name": TEXT,
        "event_time": LONG,
        "raw_timestamp": OPTIONAL,
        "raw_sent_at": OPTIONAL,
        "properties": TEXT,
        "context": TEXT,
        "traits": TEXT,
        "products": st.lists(PRODUCT, max_size=3),
        "correlation_id": TEXT,
    }
)
MEMBERSHIP = st.fixed_dictionaries(
    {
        "event_id": TEXT,
        "workspace": TEXT,
        "user_id": TEXT,
        "anonymous_ids": st.lists(TEXT, max_size=3),
        "segment_key": TEXT,
        "segment_name": TEXT,
        "segment_version": st.integers(-(2**31), 2**31 - 1),
        "status": st.sampled_from(["ENTERED", "EXITED"]),
        "sequence": LONG,
        "effective_at": LONG,
        "decided_at": LONG,
        "cause": st.fixed_dictionaries({"kind": TEXT, "message_id": OPTIONAL, "event_name": OPTIONAL}),
        "correlation_id": TEXT,
        "traits": TEXT,
        "memberships": st.lists(TEXT, max_size=3),
        "received_at": LONG,
    }
)


def _unregistered(schema_id: int) -> str:
    raise UnknownSchema(schema_id)


BEHAVIOUR_CODEC = Codec("BehaviourEvent", 7, _unregistered)
MEMBERSHIP_CODEC = Codec("SegmentMembershipChanged", 8, _unregistered)
FIELDS = ("received_at", "event_time", "name", "anonymous_ids", "raw_sent_at", "properties", "correlation_id")
READER = FieldReader(BEHAVIOUR_CODEC, FIELDS)


@given(BEHAVIOUR)
def test_a_reader_takes_what_the_codec_decodes(record: Record) -> None:
    assert READER(BEHAVIOUR_CODEC.encode(record)) == tuple(record[field] for field in FIELDS)


LISTED_CODEC = Codec("ListMembershipChanged", 1, lambda _id: "")
LISTED_FIELDS = ("on_list", "user_id", "received_at")
LISTED = st.fixed_dictionaries(
    {
        "received_at": LONG,
        "workspace": TEXT,
        "user_id": TEXT,
        "list_key": TEXT,
        "on_list": st.booleans(),
        "correlation_id": TEXT,
    }
)


@given(LISTED)
def test_a_reader_takes_booleans(record: Record) -> None:
    taken = FieldReader(LISTED_CODEC, LISTED_FIELDS)(LISTED_CODEC.encode(record))
    assert taken == tuple(record[field] for field in LISTED_FIELDS)
    assert type(taken[0]) is bool


@given(BEHAVIOUR, st.integers(0, 600), st.binary(max_size=3))
def test_a_reader_refuses_what_is_not_one_whole_record(record: Record, cut: int, tail: bytes) -> None:
    whole = BEHAVIOUR_CODEC.encode(record)
    broken = whole[:cut] + tail
    assert _outcome(READER, broken) == _outcome(_by_codec, broken)


def _by_codec(data: bytes) -> tuple[Any, ...]:
    record = BEHAVIOUR_CODEC.decode(data)
    return tuple(record[field] for field in FIELDS)


def _outcome(read: Callable[[bytes], tuple[Any, ...]], data: bytes) -> tuple[Any, ...] | str:
    try:
        return read(data)
    except DecodeError as refused:
        return refused.code


def test_a_reader_leaves_blocks_with_a_size_and_other_writers_to_their_meaning() -> None:
    texts = ("workspace", "user_id", "event_id", "message_id", "kind", "name", "properties", "context", "traits", "correlation_id")
    whole = BEHAVIOUR_CODEC.encode({**dict.fromkeys(texts, ""), "received_at": 0, "event_time": 0, "anonymous_ids": ["a", "b"]})
    # One block of two texts, written with the negative count that precedes the block's size in bytes.
    sized = whole.replace(b"\x04\x02a\x02b\x00", b"\x03\x08\x02a\x02b\x00", 1)
    assert sized != whole
    assert READER(sized)[3] == ["a", "b"]
    with pytest.raises(UnknownSchema):
        READER(b"\x00\x00\x00\x00\x09" + whole[5:])
    with pytest.raises(DecodeError, match="no Confluent wire header"):
        READER(b"{}")


def test_a_reader_cannot_be_built_for_a_field_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="has no field colour"):
        FieldReader(BEHAVIOUR_CODEC, ("colour",))


RUNS = (
    ("event_id",),
    ("workspace", "user_id", "anonymous_ids", "segment_key", "segment_name", "segment_version", "status", "sequence"),
    ("effective_at", "decided_at"),
    ("cause", "correlation_id", "traits", "memberships", "received_at"),
)


@given(MEMBERSHIP)
def test_the_parts_of_a_record_are_its_bytes(record: Record) -> None:
    parts = record_parts(MEMBERSHIP_CODEC, *RUNS)
    written = [write(*[record[field] for field in run]) for write, run in zip(parts, RUNS, strict=True)]
    assert MEMBERSHIP_CODEC.header + b"".join(written) == MEMBERSHIP_CODEC.encode(record)


def test_parts_cover_the_whole_record_in_order() -> None:
    with pytest.raises(ValueError, match="must be all fields of SegmentMembershipChanged in their order"):
        record_parts(MEMBERSHIP_CODEC, *RUNS[:-1])


BEHAVIOUR_WRITER = RecordWriter(BEHAVIOUR_CODEC)
BEHAVIOUR_READER = RecordReader(BEHAVIOUR_CODEC)
JUNK = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=3) | st.text(alphabet="a\ud800", max_size=2)
    | st.lists(st.none() | st.text(max_size=2) | PRODUCT, max_size=2) | st.dictionaries(st.text(max_size=2), st.text(max_size=2))
)  # fmt: skip


@given(BEHAVIOUR)
def test_a_written_record_has_the_bytes_of_the_codec_and_is_read_again(record: Record) -> None:
    data = BEHAVIOUR_WRITER(record)
    assert data == BEHAVIOUR_CODEC.encode(record)
    assert BEHAVIOUR_READER(data) == BEHAVIOUR_CODEC.decode(data)


@given(BEHAVIOUR, st.sampled_from([str(field["name"]) for field in json.loads(BEHAVIOUR_CODEC.schema)["fields"]]), JUNK)
def test_a_writer_refuses_what_the_codec_refuses(record: Record, name: str, junk: object) -> None:
    assert _written(BEHAVIOUR_WRITER, {**record, name: junk}) == _written(BEHAVIOUR_CODEC.encode, {**record, name: junk})
    without = {field: value for field, value in record.items() if field != name}
    assert _written(BEHAVIOUR_WRITER, without) == _written(BEHAVIOUR_CODEC.encode, without)


REPORT_CODEC = Codec("DeliveryReported", 3, _unregistered)
REPORT_WRITER = RecordWriter(REPORT_CODEC)
REPORT = st.fixed_dictionaries(
    {
        **dict.fromkeys(("workspace", "user_id", "event_id", "delivery_id", "channel", "target_key", "outcome"), TEXT),
        **dict.fromkeys(("detail", "segment_key", "campaign", "soft_bounce"), OPTIONAL),
        **dict.fromkeys(("received_at", "event_time"), LONG),
        "correlation_id": TEXT,
        "attempt": st.integers(1, 1000),
        "status_code": st.none() | st.integers(-(2**31), 2**31 - 1) | st.sampled_from([204, 429, 2**31, -(2**31) - 1, True, 2.0]),
    }
)


@given(REPORT)
def test_a_report_with_or_without_a_status_has_the_bytes_of_the_codec_or_is_refused_as_there(record: Record) -> None:
    assert _written(REPORT_WRITER, record) == _written(REPORT_CODEC.encode, record)


def _written(write: Callable[[Record], bytes], record: Record) -> tuple[str, object]:
    try:
        return "written", write(record)
    except Exception as cause:  # noqa: BLE001 - whatever the codec raises
        return type(cause).__name__, str(cause)


def test_a_writer_cannot_be_built_for_a_type_that_only_the_codec_writes() -> None:
    with pytest.raises(ValueError, match="no writer for"):
        RecordWriter(EVERYTHING_CODEC)


def _plain_fields() -> ModuleType:
    """The module as plain Python, whatever is compiled beside it."""
    path = Path(fields.__file__ or "").with_name("fields.py")
    spec = importlib.util.spec_from_file_location("plain_fields", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = _plain_fields()
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "number", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "maybe", "type": ["null", {"type": "array", "items": "double"}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "raw", "type": "bytes"},
        {"name": "texts", "type": {"type": "map", "values": ["null", "string"]}},
        {
            "name": "parts",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Part",
                    "fields": [
                        {"name": "is", "type": "boolean"},
                        {"name": "amount", "type": "double"},
                        {"name": "of", "type": "int"},
                    ],
                },
            },
        },
    ],
}
EVERYTHING_CODEC = Codec("Everything", 5, _unregistered, json.dumps(EVERYTHING))
AMOUNT = st.floats(allow_nan=False)
ANY = st.fixed_dictionaries(
    {
        "text": TEXT,
        "number": LONG,
        "maybe": st.none() | st.lists(AMOUNT, max_size=3),
        "kind": st.sampled_from("ABC"),
        "raw": st.binary(max_size=70),
        "texts": st.dictionaries(st.text(max_size=3), OPTIONAL, max_size=3),
        "parts": st.lists(st.fixed_dictionaries({"is": st.booleans(), "amount": AMOUNT, "of": st.integers(-300, 300)}), max_size=3),
    }
)


@given(ANY, st.permutations([str(field["name"]) for field in EVERYTHING["fields"]]), st.integers(0, 7))
def test_every_type_is_taken_and_stepped_over_compiled_or_not(record: Record, names: list[str], count: int) -> None:
    data, wanted = EVERYTHING_CODEC.encode(record), names[:count]
    expected = tuple(EVERYTHING_CODEC.decode(data)[name] for name in wanted)
    assert FieldReader(EVERYTHING_CODEC, wanted)(data) == expected
    assert PLAIN.Fields(EVERYTHING, wanted).take(data, 5) == expected


@given(ANY, st.integers(0, 200), st.binary(max_size=12))
def test_what_is_broken_is_refused_by_the_compiled_walk_and_the_plain_one(record: Record, cut: int, tail: bytes) -> None:
    broken = EVERYTHING_CODEC.encode(record)[:cut] + tail
    names = [str(field["name"]) for field in EVERYTHING["fields"]]
    assert _walked(fields, broken, names) == _walked(PLAIN, broken, names)
    assert _walked(fields, broken, ()) == _walked(PLAIN, broken, ())


def _walked(module: ModuleType, data: bytes, names: Sequence[str]) -> tuple[Any, ...] | str:
    try:
        return tuple(map(repr, module.Fields(EVERYTHING, names).take(data, 5)))
    except (IndexError, ValueError, struct.error):
        return "refused"


@pytest.mark.parametrize("avro", ["float", ["string", "long"], {"type": "fixed", "name": "F", "size": 2}])
def test_schemas_that_need_the_general_codec_are_reported(avro: Any) -> None:
    with pytest.raises(ValueError, match="no reader for"):
        fields.shape_of(avro)


def test_a_number_without_end_and_an_array_without_items_are_refused_at_once() -> None:
    numbers = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
    amounts = {"type": "record", "name": "A", "fields": [{"name": "a", "type": {"type": "array", "items": "double"}}]}
    for module in (fields, PLAIN):
        with pytest.raises(ValueError, match="more than ten bytes"):
            module.Fields(numbers, ("n",)).take(b"\xff" * 100_000 + b"\x01", 0)
        with pytest.raises(IndexError):
            module.Fields(amounts, ()).take(b"\xfe\xff\xff\xff\xff\xff\xff\x7f\x00", 0)
