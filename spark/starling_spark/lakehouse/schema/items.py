"""Pure core: a received ingest item -> typed columns.

Objects with arbitrary keys (properties, traits, context) stay JSON text, as in the event records; every field that the
tracking API defines is a column. A field of a wrong type refuses the row.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import types

from starling_common.time.instants import parse_instant
from starling_common.wire import DecodeError, item_json
from starling_spark.kafka.codec import NO_ID, Refusal
from starling_spark.kafka.columns import checked_micros

_TEXTS: Final = ("event", "name", "category", "group_id", "previous_id")
_INSTANTS: Final = ("timestamp", "original_timestamp", "sent_at")
_OBJECTS: Final = ("properties", "traits", "context", "integrations")

CALL: Final = types.StructType(
    [
        types.StructField(
            "call",
            types.StructType(
                [types.StructField(name, types.StringType()) for name in _TEXTS]
                + [types.StructField(name, types.TimestampType()) for name in _INSTANTS]
                + [types.StructField(name, types.StringType()) for name in _OBJECTS]
            ),
        )
    ]
)
"""The call as sent, with typed columns. Instants are not corrected for the sender's clock."""


class _Call(msgspec.Struct, rename="camel"):
    event: str | None = None
    name: str | None = None
    category: str | None = None
    group_id: str | int | None = None
    previous_id: str | int | None = None
    timestamp: str | None = None
    original_timestamp: str | None = None
    sent_at: str | None = None
    properties: dict[str, msgspec.Raw] | None = None
    traits: dict[str, msgspec.Raw] | None = None
    context: dict[str, msgspec.Raw] | None = None
    integrations: dict[str, msgspec.Raw] | None = None


_decode: Final = msgspec.json.Decoder(_Call).decode


def read_json(text: str) -> Mapping[str, Any] | Refusal:
    """Return the columns of an item in JSON; instants in epoch microseconds."""
    try:
        call = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return Refusal("bad_item", f"the item: {error}", NO_ID)
    try:
        instants = {name: _micros(getattr(call, name)) for name in _INSTANTS}
    except (ValueError, OverflowError) as error:
        return Refusal("bad_timestamp", str(error), NO_ID)
    texts = {name: _text(getattr(call, name)) for name in _TEXTS}
    return texts | instants | {name: _object(getattr(call, name)) for name in _OBJECTS}


def read_protobuf(data: bytes) -> Mapping[str, Any] | Refusal:
    """Return the columns of an item in Protocol Buffers: those of the equivalent JSON."""
    try:
        text = item_json(data)
    except DecodeError as error:
        return Refusal(error.code, str(error), NO_ID)
    return read_json(text)


def call_of(record: Mapping[str, Any]) -> tuple[Any, ...] | Refusal:
    """Return the values of `CALL` for an `IngestReceived` record with an item of either format."""
    packed = record["item_protobuf"]
    call = read_json(record["item"]) if packed is None else read_protobuf(packed)
    return call if isinstance(call, Refusal) else (call,)


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _micros(text: str | None) -> int | None:
    return None if text is None else checked_micros(parse_instant(text) * 1000)


def _object(value: dict[str, msgspec.Raw] | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
