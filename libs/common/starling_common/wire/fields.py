"""Pure core, hot path: read fields of an Avro record in one pass over its bytes (Avro 1.12, "Binary Encoding").

mypyc compiles the module if a C compiler is available. The caller ensures that the writer's schema is that of the shapes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TEXT: Final = 0
_LONG: Final = 1
_OPTIONAL: Final = 2
_ARRAY: Final = 3
_RECORD: Final = 4
_BOOLEAN: Final = 5
_DOUBLE: Final = 6
_BYTES: Final = 7
_ENUM: Final = 8
_MAP: Final = 9

_KINDS: Final = {
    "string": _TEXT, "long": _LONG, "int": _LONG, "boolean": _BOOLEAN, "double": _DOUBLE, "bytes": _BYTES, "array": _ARRAY,
    "record": _RECORD, "enum": _ENUM, "map": _MAP,
}  # fmt: skip
_double = struct.Struct("<d").unpack_from


class Shape:
    """One Avro type. `inner`: the type of an array's items, a map's values, a record's fields, or an optional's value.

    `names`: the names of a record's fields, or of an enum's symbols.
    """

    __slots__ = ("inner", "kind", "names")

    def __init__(self, kind: int, inner: list[Shape], names: list[str]) -> None:
        self.kind = kind
        self.inner = inner
        self.names = names


def shape_of(avro: Any) -> Shape:
    """Return the shape of a type in a schema's JSON; a logical type has the shape of its base type.

    Raises: ValueError for an unsupported type: `float`, `fixed`, a reference, or a union other than null and one type.
    """
    if isinstance(avro, list):
        if len(avro) == 2 and avro[0] == "null":
            return Shape(_OPTIONAL, [shape_of(avro[1])], [])
        raise ValueError(f"no reader for the union {avro!r}")
    if isinstance(avro, str):
        avro = {"type": avro}
    kind = avro["type"]
    if not isinstance(kind, str):
        return shape_of(kind)
    if kind not in _KINDS:
        raise ValueError(f"no reader for {kind!r}")
    if kind == "record":
        fields = avro["fields"]
        return Shape(_RECORD, [shape_of(field["type"]) for field in fields], [field["name"] for field in fields])
    items = {"array": "items", "map": "values"}.get(kind)
    return Shape(_KINDS[kind], [shape_of(avro[items])] if items else [], list(avro.get("symbols", ())))


class Fields:
    """Reads some fields of a record, in the requested order."""

    def __init__(self, schema: Mapping[str, Any], wanted: Sequence[str]) -> None:
        """Prepare the reader of a record's schema (JSON). Raises: ValueError if it lacks a field or has an unsupported type."""
        place = {name: i for i, name in enumerate(wanted)}
        names = [str(field["name"]) for field in schema["fields"]]
        missing = sorted(place.keys() - set(names))
        if missing:
            raise ValueError(f"{schema['name']} has no field {', '.join(missing)}")
        self._count = len(place)
        self._shapes = [shape_of(field["type"]) for field in schema["fields"]]
        self._places = [place.get(name, -1) for name in names]

    def take(self, data: bytes, at: int) -> tuple[Any, ...]:
        """Return the fields of the record that begins at `at` and ends with the bytes.

        Skipped text is not validated. Raises: IndexError, ValueError, struct.error if the bytes are not one whole record.
        """
        found: list[Any] = [None] * self._count
        for i, shape in enumerate(self._shapes):
            place = self._places[i]
            if place < 0:
                at = _after(shape, data, at)
            else:
                found[place], at = _value(shape, data, at)
        if at != len(data):
            raise ValueError("not one whole record")
        return tuple(found)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, still zigzag encoded, and the offset of its end."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    number, shift = byte - 128, 7
    while True:
        byte = data[at]
        at += 1
        if byte < 128:
            return number + (byte << shift), at
        number += (byte - 128) << shift
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")


def _length(data: bytes, at: int) -> tuple[int, int]:
    number, at = _number(data, at)
    if number & 1:
        raise ValueError("a negative length")
    return number >> 1, at


def _after(shape: Shape, data: bytes, at: int) -> int:
    """Return the offset of the end of the value that begins at `at`."""
    kind = shape.kind
    if kind in (_TEXT, _BYTES):
        size, at = _length(data, at)
        return at + size
    if kind in (_LONG, _ENUM):
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _OPTIONAL:
        return _after(shape.inner[0], data, at + 1) if _is_there(data, at) else at + 1
    if kind == _RECORD:
        for inner in shape.inner:
            at = _after(inner, data, at)
        return at
    if kind in (_ARRAY, _MAP):
        return _after_items(shape, data, at)
    return at + (8 if kind == _DOUBLE else 1)


def _after_items(shape: Shape, data: bytes, at: int) -> int:
    inner, end, keyed = shape.inner[0], len(data), shape.kind == _MAP
    while True:
        left, at = _block(data, at)
        if not left:
            return at
        for _ in range(left):
            if keyed:
                size, at = _length(data, at)
                at += size
            at = _after(inner, data, at)
            if at > end:
                raise IndexError("an array that ends early")


def _value(shape: Shape, data: bytes, at: int) -> tuple[Any, int]:  # noqa: PLR0911 - one return per type
    """Return the value that begins at `at`, and the offset of its end."""
    kind = shape.kind
    if kind == _TEXT:
        size, at = _length(data, at)
        return data[at : at + size].decode(), at + size
    if kind == _LONG:
        number, at = _number(data, at)
        return -(number >> 1) - 1 if number & 1 else number >> 1, at
    if kind == _OPTIONAL:
        return _value(shape.inner[0], data, at + 1) if _is_there(data, at) else (None, at + 1)
    if kind == _BOOLEAN:
        return data[at] != 0, at + 1
    if kind == _DOUBLE:
        return _double(data, at)[0], at + 8
    if kind == _BYTES:
        size, at = _length(data, at)
        return data[at : at + size], at + size
    if kind == _ENUM:
        size, at = _length(data, at)
        return shape.names[size], at
    if kind == _RECORD:
        record: dict[str, Any] = {}
        for i, inner in enumerate(shape.inner):
            record[shape.names[i]], at = _value(inner, data, at)
        return record, at
    return _items(shape, data, at) if kind == _ARRAY else _entries(shape, data, at)


def _items(shape: Shape, data: bytes, at: int) -> tuple[list[Any], int]:
    inner = shape.inner[0]
    found: list[Any] = []
    while True:
        left, at = _block(data, at)
        if not left:
            return found, at
        for _ in range(left):
            value, at = _value(inner, data, at)
            found.append(value)


def _entries(shape: Shape, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    inner = shape.inner[0]
    found: dict[str, Any] = {}
    while True:
        left, at = _block(data, at)
        if not left:
            return found, at
        for _ in range(left):
            size, at = _length(data, at)
            key = data[at : at + size].decode()
            found[key], at = _value(inner, data, at + size)


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in a block, and the offset of the first. A negative count precedes the block's size in bytes."""
    number, at = _number(data, at)
    if number & 1:
        _, at = _number(data, at)
        return (number + 1) >> 1, at
    return number >> 1, at


def _is_there(data: bytes, at: int) -> bool:
    branch = data[at]
    if branch not in (0, 2):
        raise ValueError("no such branch")
    return branch == 2
