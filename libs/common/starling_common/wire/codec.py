"""Adapter: the codec of one record type, in Confluent framing (byte 0, schema id in 4 bytes, Avro binary)."""

import io
import json
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, cast

import fastavro

from starling_common.schemas import schema_directory

Record: TypeAlias = Mapping[str, Any]
"""One record: values by field name. Times are integers in the unit of the field's logical type."""

WriterSchema: TypeAlias = Callable[[int], str]
"""Returns the schema JSON of a schema id. Raises: UnknownSchema."""

_HEADER = struct.Struct(">bI")


class DecodeError(ValueError):
    """The bytes are not exactly one record of the expected type; `code` is the stable code of the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownSchema(DecodeError):
    """The registry has no schema with the id of the record's header."""

    def __init__(self, schema_id: int) -> None:
        super().__init__(
            "unknown_schema",
            f"schema id {schema_id} is not in the registry: register the writer's schema, and replay the record after five minutes",
        )


def writer_id(data: bytes) -> int:
    """Return the schema id of the header. Raises: DecodeError if the bytes have no Confluent header."""
    if len(data) < _HEADER.size or data[0] != 0:
        raise DecodeError("bad_framing", "the value has no Confluent wire header (byte 0 and a 4-byte schema id)")
    return int(_HEADER.unpack_from(data)[1])


@cache
def schema_text(name: str) -> str:
    """Return the schema file of a record type, as registered. Raises: FileNotFoundError."""
    return (schema_directory() / f"{name}.avsc").read_text()


class Codec:
    """Encodes and decodes records: `decode(encode(x)) == x` for every valid x. Not thread-safe."""

    def __init__(self, name: str, schema_id: int, writer_schema: WriterSchema, schema: str | None = None) -> None:
        """Bind the codec to `schema`, by default `schemas/avro/<name>.avsc`, with its registered id.

        Records of other writers' schemas are resolved to it.
        """
        self.name = name
        self.schema_id = schema_id
        self.schema = schema_text(name) if schema is None else schema
        self._schema = _parsed(self.schema)
        self._writers: dict[int, Any] = {schema_id: self._schema}
        self._writer_schema = writer_schema
        self.header = _HEADER.pack(0, schema_id)

    def encode(self, record: Record) -> bytes:
        """Return the framed bytes. Raises: ValueError that names the field if the record does not match the schema."""
        out = io.BytesIO()
        out.write(self.header)
        try:
            fastavro.schemaless_writer(out, self._schema, record)
        except (TypeError, KeyError, AttributeError) as cause:
            raise ValueError(f"{self.name}: {cause}") from cause
        return out.getvalue()

    def decode(self, data: bytes) -> dict[str, Any]:
        """Return the record. Raises: DecodeError (including UnknownSchema), RegistryUnavailable, and no other exception."""
        schema_id = writer_id(data)
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = self._writers[schema_id] = _parsed(self._writer_schema(schema_id))
        source = io.BytesIO(data)
        source.seek(_HEADER.size)
        try:
            reader = None if writer is self._schema else self._schema
            record = fastavro.schemaless_reader(source, writer, reader)
        except Exception as cause:  # the library documents no complete set of errors
            raise DecodeError("broken_avro", f"the value is no {self.name}: {type(cause).__name__}: {cause}") from cause
        if source.read(1):
            raise DecodeError("broken_avro", f"bytes are left over after one {self.name}")
        return cast("dict[str, Any]", record)


def _parsed(text: str) -> Any:
    # Without logical types times stay integers: datetime objects cost more than the rest of a record.
    return fastavro.parse_schema(_plain(json.loads(text)))


def _plain(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items() if key != "logicalType"}
    return node
