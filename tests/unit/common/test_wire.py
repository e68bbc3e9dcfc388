"""The codec: framing, writer schemas, and the errors of broken bytes."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.wire import Codec, DecodeError, UnknownSchema
from starling_common.wire.codec import schema_text

STATE: dict[str, Any] = {"version": 3, "state": b"\x00\x01"}


def no_others(schema_id: int) -> str:
    raise UnknownSchema(schema_id)


def codec() -> Codec:
    return Codec("StateChanged", 7, no_others)


@given(st.integers(-(2**63), 2**63 - 1), st.none() | st.binary(max_size=50))
def test_what_was_encoded_is_decoded(version: int, state: bytes | None) -> None:
    record = {"version": version, "state": state}
    assert codec().decode(codec().encode(record)) == record


def test_the_header_is_a_zero_byte_and_the_schema_id() -> None:
    assert codec().encode(STATE)[:5] == b"\x00" + struct.pack(">I", 7)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", "bad_framing", id="nothing"),
        pytest.param(b"\x01\x00\x00\x00\x07\x06\x00", "bad_framing", id="another magic byte"),
        pytest.param(b'{"version": 3}', "bad_framing", id="JSON"),
        pytest.param(b"\x00\x00\x00\x00\x08\x06\x00", "unknown_schema", id="an id the registry does not know"),
        pytest.param(codec().encode(STATE)[:-1], "broken_avro", id="cut off"),
        pytest.param(codec().encode(STATE) + b"!", "broken_avro", id="bytes left over"),
    ],
)
def test_broken_bytes_have_an_error_code(data: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        codec().decode(data)
    assert caught.value.code == code


def test_a_record_of_an_older_schema_is_read_by_the_schema_it_was_written_with() -> None:
    schema = json.loads(schema_text("StateChanged"))
    older = {**schema, "fields": [field for field in schema["fields"] if field["name"] == "version"]}
    written = b"\x00" + struct.pack(">I", 5) + b"\x06"  # id 5, version 3 as a zigzag number
    reader = Codec("StateChanged", 7, lambda schema_id: json.dumps(older) if schema_id == 5 else no_others(schema_id))
    assert reader.decode(written) == {"version": 3, "state": None}


def test_a_record_that_does_not_fit_names_the_field() -> None:
    with pytest.raises(ValueError, match="version"):
        codec().encode({"state": b""})
