"""Adapter: ingest items in Protocol Buffers (`schemas/proto/ingest.proto`), and their conversion to JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from google.protobuf.message import DecodeError as _NoMessage
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from starling_common.wire.basics import base128_bytes
from starling_common.wire.codec import DecodeError
from starling_common.wire.ingest_envelope_pb2 import BatchEnvelope, ItemEnvelope
from starling_common.wire.ingest_pb2 import Item

PROTOBUF: Final = "application/x-protobuf"
"""The `Content-Type`; parameters may follow it."""

Json: TypeAlias = dict[str, Any]

_BATCH_FIELD_1: Final = b"\x0a"
_ITEM_CONTEXT: Final = b"\x42"
_ITEM_INTEGRATIONS: Final = b"\x4a"
_MAX_WHOLE: Final = 2**53

_TEXTS: Final = {
    "type": "type", "message_id": "messageId", "user_id": "userId", "anonymous_id": "anonymousId", "event": "event", "name": "name",
    "category": "category", "group_id": "groupId", "previous_id": "previousId", "write_key": "writeKey",
}  # fmt: skip
_INSTANTS: Final = {"timestamp": "timestamp", "original_timestamp": "originalTimestamp", "sent_at": "sentAt"}
_OBJECTS: Final = {name: name for name in ("context", "integrations", "properties", "traits")}


def read_item(data: bytes) -> Item:
    """Parse an `Item`. Raises: DecodeError if the bytes are no `Item`, or are nested deeper than 33 objects."""
    try:
        return Item.FromString(data)
    except _NoMessage as error:
        raise _broken("Item", error) from error


class OpenBatch(msgspec.Struct, frozen=True):
    """A `Batch` whose items are unparsed bytes.

    `shared` is the batch's context and integrations, encoded as an `Item`. Prepended to an item's bytes it merges them under the
    item's own at the first level, because a later map entry replaces an earlier one of the same name.
    """

    items: Sequence[bytes]
    shared: bytes
    sent_at: str | None


def open_batch(data: bytes) -> OpenBatch:
    """Parse a `Batch` without its items, in time and memory proportional to its bytes.

    Raises: DecodeError if the bytes are no `Batch`, or its context or integrations are no objects.
    """
    batch = _read_batch_envelope(data)
    shared = _field(_ITEM_CONTEXT, batch.context) + _field(_ITEM_INTEGRATIONS, batch.integrations)
    try:
        Item.FromString(shared)
    except _NoMessage as error:
        raise _broken("Batch", error) from error
    return OpenBatch(batch.batch, shared, instant_text(batch.sent_at, "sentAt") if batch.HasField("sent_at") else None)


def item_write_key(data: bytes) -> str | None:
    """Return the `write_key` of an `Item` without parsing other fields. Raises: DecodeError if the bytes are no message."""
    try:
        return ItemEnvelope.FromString(data).write_key or None
    except _NoMessage as error:
        raise _broken("Item", error) from error


def batch_write_key(data: bytes) -> str | None:
    """Return the `write_key` of a `Batch` without parsing nested messages. Raises: DecodeError if the bytes are no message."""
    return _read_batch_envelope(data).write_key or None


def batch_of_one(item: bytes) -> bytes:
    """Return a `Batch` of a single item, whose bytes may be invalid."""
    return _BATCH_FIELD_1 + base128_bytes(len(item)) + item


def item_json(data: bytes) -> str:
    """Return the item in its canonical JSON mapping, with sorted keys and integers without a fraction.

    The keys are sorted because map entries have no order in Protocol Buffers: the same bytes always give the same text.
    Raises: DecodeError if the bytes are no `Item`, contain none of its fields, or contain a value that JSON cannot represent.
    """
    item = read_item(data)
    members = _members(item)
    if not members:
        raise DecodeError("bad_protobuf", "no field of an Item is present: send a starling.ingest.v1.Item")
    return msgspec.json.encode(members).decode()


def instant_text(instant: Timestamp, place: str) -> str:
    """Return a time in RFC 3339. Raises: DecodeError outside the years 1 to 9999."""
    try:
        return instant.ToJsonString()
    except ValueError as error:
        raise DecodeError("bad_timestamp", f"{place}: is no time between the years 1 and 9999: send the event's time") from error


def _members(item: Item) -> Json:
    found: Json = {}
    for field, _ in item.ListFields():
        name = field.name
        if name in _TEXTS:
            found[_TEXTS[name]] = getattr(item, name)
        elif name in _INSTANTS:
            found[_INSTANTS[name]] = instant_text(getattr(item, name), _INSTANTS[name])
        else:
            found[_OBJECTS[name]] = _object(getattr(item, name), name)
    return found


def _object(struct: Struct, place: str) -> Json:
    fields = struct.fields
    return {name: _value(fields[name], f"{place}.{name}") for name in sorted(fields)}


def _array(values: ListValue, place: str) -> list[Any]:
    return [_value(value, f"{place}.{index}") for index, value in enumerate(values.values)]


def _number(number: float, place: str) -> int | float:
    if not math.isfinite(number):
        raise DecodeError("bad_protobuf", f"{place}: {number} is no JSON number: send null or omit it")
    return int(number) if number.is_integer() and abs(number) <= _MAX_WHOLE else number


_READ: Final[Mapping[str, Callable[[Value, str], Any]]] = {
    "null_value": lambda _value, _place: None,
    "number_value": lambda value, place: _number(value.number_value, place),
    "string_value": lambda value, _place: value.string_value,
    "bool_value": lambda value, _place: value.bool_value,
    "struct_value": lambda value, place: _object(value.struct_value, place),
    "list_value": lambda value, place: _array(value.list_value, place),
}


def _value(value: Value, place: str) -> Any:
    kind = value.WhichOneof("kind")
    if kind is None:
        raise DecodeError("bad_protobuf", f"{place}: the Value holds nothing: set its null_value, or omit it")
    return _READ[kind](value, place)


def _read_batch_envelope(data: bytes) -> BatchEnvelope:
    try:
        return BatchEnvelope.FromString(data)
    except _NoMessage as error:
        raise _broken("Batch", error) from error


def _field(tag: bytes, occurrences: Sequence[bytes]) -> bytes:
    if not occurrences:
        return b""
    merged = b"".join(occurrences)
    return tag + base128_bytes(len(merged)) + merged


def _broken(what: str, error: Exception) -> DecodeError:
    problem = str(error).rpartition("': ")[2]
    return DecodeError("bad_protobuf", f"the bytes are no starling.ingest.v1.{what}: {problem or error}")
