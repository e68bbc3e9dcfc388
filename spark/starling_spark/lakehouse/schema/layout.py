"""Pure core: Iceberg's metadata of a table -> the Arrow schema of its files, and the partition of a row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
_HOUR_MICROS: Final = 3_600_000_000


class UnknownLayout(Exception):
    """The table has a column type or a partitioning that this job cannot write."""


class PartitionBy(NamedTuple):
    """A partition field `name`: Iceberg's `transform` of `column`."""

    name: str
    column: str
    transform: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table's files. `schema`: its columns in order, each with its Iceberg field id."""

    location: str
    schema: pa.Schema
    partitioning: tuple[PartitionBy, ...]

    def partition_columns(self, rows: pa.Table) -> list[pa.Array]:
        """Return the column of each partition field: hours from 1970, or the value itself."""
        return [_transformed(rows.column(by.column), by.transform) for by in self.partitioning]


def layout_of(location: str, schema: str, spec: str) -> Layout:
    """Return the layout of a table from its location and the JSON of its schema and partition spec. Raises: UnknownLayout."""
    fields: Sequence[Mapping[str, Any]] = json.loads(schema)["fields"]
    names = {field["id"]: field["name"] for field in fields}
    partitioning = [PartitionBy(one["name"], names[one["source-id"]], one["transform"]) for one in json.loads(spec)["fields"]]
    for by in partitioning:
        if by.transform not in {"hour", "identity"}:
            raise UnknownLayout(f"{location} is partitioned by {by.transform}({by.column}); this job supports hour and identity")
    return Layout(location, pa.schema([_field(field["name"], field["id"], field["type"]) for field in fields]), tuple(partitioning))


def _field(name: str, number: int, kind: Any) -> pa.Field:
    return pa.field(name, _type(kind), metadata={"PARQUET:field_id": str(number)})


def _type(kind: Any) -> pa.DataType:
    match kind:
        case {"type": "struct", "fields": fields}:
            return pa.struct([_field(field["name"], field["id"], field["type"]) for field in fields])
        case {"type": "list", "element-id": number, "element": element}:
            return pa.list_(_field("element", number, element))
        case {"type": "map", "key-id": key_id, "key": key, "value-id": value_id, "value": value}:
            return pa.map_(_field("key", key_id, key).with_nullable(False), _field("value", value_id, value))
        case str() if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
    raise UnknownLayout(f"no column for Iceberg's type {kind!r}")


def _transformed(column: pa.ChunkedArray, transform: str) -> pa.Array:
    whole = column.combine_chunks()
    if transform == "identity":
        return whole
    micros = whole.cast(pa.int64())
    hours = pc.divide(micros, _HOUR_MICROS)
    # Arrow rounds towards zero; instants before 1970 need the floor.
    is_below = pc.less(micros, pc.multiply(hours, _HOUR_MICROS))
    return pc.subtract(hours, is_below.cast(pa.int64())).cast(pa.int32())
