"""Adapter: readers and writers of one record type, generated from its schema, for hot paths.

They cost a fraction of the general codec, because they read only the fields needed and encode shared fields once. A reader passes
invalid bytes to the codec, which raises the error.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from starling_common.wire.basics import long_bytes, optional_text_bytes, text_bytes, texts_bytes
from starling_common.wire.codec import Codec, DecodeError, Record, schema_text
from starling_common.wire.fields import Fields

_HEADER_BYTES: Final = 5
_DOUBLE: Final = struct.Struct("<d")
_INTS: Final = 1 << 31


class FieldReader:
    """Reads some fields of a framed record as a tuple, in the requested order.

    The result equals the same fields of `codec.decode(data)`. Skipped text is not validated as UTF-8. The codec decodes records of
    another writer's schema.
    """

    def __init__(self, codec: Codec, fields: Sequence[str]) -> None:
        """Generate the reader. Raises: ValueError if the schema lacks a field, or has a type that only the codec can read."""
        self._codec = codec
        self._fields = tuple(fields)
        self._header = codec.header
        self._take = Fields(json.loads(codec.schema), self._fields).take

    def __call__(self, data: bytes) -> tuple[Any, ...]:
        """Return the fields. Raises: the errors of `Codec.decode`."""
        if data[:_HEADER_BYTES] == self._header:
            try:
                return self._take(data, _HEADER_BYTES)
            except (IndexError, ValueError, struct.error):
                # The bytes are not one whole record: the codec raises the error with its usual code and message.
                self._codec.decode(data)
                raise DecodeError("broken_avro", f"the value is no {self._codec.name}") from None
        record = self._codec.decode(data)
        return tuple(record[field] for field in self._fields)


class RecordReader:
    """Reads whole records as dictionaries, as `codec.decode`."""

    def __init__(self, codec: Codec) -> None:
        """Generate the reader. Raises: ValueError if the schema has a type that only the codec can read."""
        self._names = field_names(codec)
        self._read = FieldReader(codec, self._names)

    def __call__(self, data: bytes) -> dict[str, Any]:
        """Return the record. Raises: the errors of `Codec.decode`."""
        return dict(zip(self._names, self._read(data), strict=True))


class RecordWriter:
    """Writes whole records, as `codec.encode`: a record that the generated code cannot write is left to the codec."""

    def __init__(self, codec: Codec) -> None:
        """Generate the writer. Raises: ValueError if the schema has a type that only the codec can write."""
        self._codec = codec
        scope = _scope()
        scope["header"] = codec.header
        pieces = [piece for field in json.loads(codec.schema)["fields"] for piece in _of_field(field, "v", scope)]
        self._write = _compiled(codec.name, "v", f"join((header, {', '.join(pieces)}))", scope)

    def __call__(self, record: Record) -> bytes:
        """Return the framed bytes. Raises: the errors of `Codec.encode`."""
        try:
            return self._write(record)
        except (TypeError, KeyError, AttributeError, ValueError, IndexError, OverflowError, struct.error):
            # A field is missing, which may have a default, or a value does not match the schema.
            return self._codec.encode(record)


def field_names(codec: Codec) -> tuple[str, ...]:
    """Return the names of a record's fields, in the schema's order."""
    return tuple(field["name"] for field in json.loads(codec.schema)["fields"])


def record_parts(codec: Codec, *runs: Sequence[str]) -> tuple[Callable[..., bytes], ...]:
    """Return one function per run of fields, which encodes their values, so that fields shared by several records are encoded once.

    The runs cover all fields in the schema's order; the value of a nested record is a mapping. `codec.header` and all parts,
    joined, equal `codec.encode` of the same record, byte for byte.
    Raises: ValueError if the runs do not cover the fields, or if only the codec can write a type.
    """
    types = {field["name"]: field["type"] for field in json.loads(schema_text(codec.name))["fields"]}
    if [field for run in runs for field in run] != list(types):
        raise ValueError(f"the runs must be all fields of {codec.name} in their order: {', '.join(types)}")
    return tuple(_compile_part(codec.name, [types[field] for field in run]) for run in runs)


def _plain(avro: Any) -> Any:
    """Return a type without its logical type."""
    if isinstance(avro, dict) and isinstance(avro["type"], str) and avro["type"] not in {"array", "record", "enum", "map"}:
        return avro["type"]
    return avro


def _compile_part(name: str, types: Sequence[Any]) -> Callable[..., bytes]:
    scope = _scope()
    values = [f"v{index}" for index in range(len(types))]
    pieces = [piece for avro, value in zip(types, values, strict=True) for piece in _give(avro, value, scope)]
    body = pieces[0] if len(pieces) == 1 else f"join(({', '.join(pieces)}))"
    return _compiled(name, ", ".join(values), body, scope)


def _scope() -> dict[str, Any]:
    return {
        "long": long_bytes, "text": text_bytes, "optional": optional_text_bytes, "texts": texts_bytes, "join": b"".join,
        "optional_double": _optional_double_bytes, "optional_int": _optional_int_bytes, "array": _array_bytes,
    }  # fmt: skip


def _compiled(name: str, arguments: str, body: str, scope: dict[str, Any]) -> Callable[..., bytes]:
    # The generated source depends only on the platform's own schema files.
    exec(compile(f"def write({arguments}): return {body}", f"<writer of {name}>", "exec"), scope)  # noqa: S102
    return cast("Callable[..., bytes]", scope.pop("write"))


def _of_field(field: Mapping[str, Any], value: str, scope: dict[str, Any]) -> Iterator[str]:
    return _give(field["type"], f"{value}[{field['name']!r}]", scope)


def _optional_double_bytes(number: float | None) -> bytes:
    return b"\x00" if number is None else b"\x02" + _DOUBLE.pack(number)


def _optional_int_bytes(number: int | None) -> bytes:
    if number is None:
        return b"\x00"
    if type(number) is not int or not -_INTS <= number < _INTS:
        raise TypeError("no int")
    return b"\x02" + long_bytes(number)


def _array_bytes(items: Sequence[Any], write: Callable[[Any], bytes]) -> bytes:
    return b"".join((long_bytes(len(items)), *map(write, items), b"\0")) if items else b"\0"


def _give(avro: Any, value: str, scope: dict[str, Any]) -> Iterator[str]:
    match _plain(avro):
        case "string":
            yield f"text({value})"
        case "long" | "int":
            yield f"long({value})"
        case {"type": "enum", "symbols": symbols}:
            name = f"enum{len(scope)}"
            scope[name] = {symbol: long_bytes(index) for index, symbol in enumerate(symbols)}
            yield f"{name}[{value}]"
        case {"type": "array", "items": "string"}:
            yield f"texts({value})"
        case {"type": "record", "fields": fields}:
            for field in fields:
                yield from _of_field(field, value, scope)
        case {"type": "array", "items": {"type": "record", "name": item, "fields": fields}}:
            pieces = [piece for field in fields for piece in _of_field(field, "v", scope)]
            name = f"item{len(scope)}"
            scope[name] = _compiled(item, "v", f"join(({', '.join(pieces)},))", scope)
            yield f"array({value}, {name})"
        case ["null", "string"]:
            yield f"optional({value})"
        case ["null", "int"]:
            yield f"optional_int({value})"
        case ["null", "double"]:
            yield f"optional_double({value})"
        case other:
            raise ValueError(f"no writer for {other!r}")
