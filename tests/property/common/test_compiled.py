"""The compiled readers and writers say what the general codec says, on good bytes and on broken ones."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.wire import Codec, DecodeError, FieldReader, Record, UnknownSchema, record_parts

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
    # One block of two texts, written with the negative count that announces the block's size in bytes.
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
