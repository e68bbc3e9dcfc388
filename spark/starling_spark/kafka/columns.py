"""Pure core: an Avro schema -> the types of Spark's columns, and the values of a record -> what those columns hold."""

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from pyspark.sql import types

Convert = Callable[[Any], Any]

_PRIMITIVES: Final[Mapping[str, types.DataType]] = {
    "string": types.StringType(),
    "enum": types.StringType(),
    "long": types.LongType(),
    "int": types.IntegerType(),
    "double": types.DoubleType(),
    "float": types.FloatType(),
    "boolean": types.BooleanType(),
    "bytes": types.BinaryType(),
    "fixed": types.BinaryType(),
}
_MICROS: Final[Mapping[str, int]] = {"timestamp-micros": 1, "timestamp-millis": 1000}
_FIRST: Final = -62_135_596_800_000_000
_LAST: Final = 253_402_300_799_999_999
"""0001-01-01 and 9999-12-31 in microseconds: beyond, neither Spark nor Iceberg's hours can say what is meant."""


def columns_of(schema: str) -> types.StructType:
    """The columns of a record, in the schema's order; every one may be null, so that a schema may grow and shrink.

    Raises: ValueError for a type that no topic of ours carries.
    """
    return _struct(json.loads(schema))


def row_of(schema: str, names: Sequence[str] | None = None) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function from a decoded record to the values of columns, those of the schema or `names`; None where it has no such field.

    Instants become epoch microseconds.

    The function raises ValueError for an instant that is no date between the years 1 and 9999.
    """
    own = {field["name"]: _converter(field["type"]) for field in json.loads(schema)["fields"]}
    wanted = list(names or own)
    fields = [(name, own.get(name)) for name in wanted]

    def row(record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([record.get(name) if convert is None else convert(record[name]) for name, convert in fields])

    return row if len(wanted) < 2 or set(wanted) - own.keys() else _picked(wanted, own)


def _picked(names: Sequence[str], own: Mapping[str, Convert | None]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    # Where the record has all of them, which is nearly always: half the time of going through them one by one.
    pick = itemgetter(*names)
    changed = [(place, convert) for place, name in enumerate(names) if (convert := own[name]) is not None]

    def row(record: Mapping[str, Any]) -> tuple[Any, ...]:
        values = list(pick(record))
        for place, convert in changed:
            values[place] = convert(values[place])
        return tuple(values)

    return row


def checked_micros(value: int) -> int:
    """The same epoch microseconds. Raises: ValueError for what is no date between the years 1 and 9999."""
    if not _FIRST <= value <= _LAST:
        raise ValueError(f"{value} microseconds from 1970 is no instant between the years 1 and 9999")
    return value


def _struct(record: Mapping[str, Any]) -> types.StructType:
    return types.StructType([types.StructField(field["name"], _type(field["type"])) for field in record["fields"]])


def _type(avro: Any) -> types.DataType:  # noqa: PLR0911 - one answer a type
    match avro:
        case {"logicalType": logical} if logical in _MICROS:
            return types.TimestampType()
        case {"type": "record"}:
            return _struct(avro)
        case {"type": "array", "items": items}:
            return types.ArrayType(_type(items))
        case {"type": "map", "values": values}:
            return types.MapType(types.StringType(), _type(values))
        case {"type": inner}:
            return _type(inner)
        case list() if (inner := _optional(avro)) is not None:
            return _type(inner)
        case str() if avro in _PRIMITIVES:
            return _PRIMITIVES[avro]
    raise ValueError(f"no column for the Avro type {avro!r}")


def _optional(union: Sequence[Any]) -> Any:
    inner = [one for one in union if one != "null"]
    return inner[0] if len(inner) == 1 else None


def _converter(avro: Any) -> Convert | None:  # noqa: PLR0911 - one answer a type
    match avro:
        case {"logicalType": logical} if logical in _MICROS:
            return _instant(_MICROS[logical])
        case {"type": "record", "fields": fields}:
            return _record_converter({field["name"]: _converter(field["type"]) for field in fields})
        case {"type": "array", "items": items}:
            return _each(_converter(items), lambda values, each: [each(value) for value in values])
        case {"type": "map", "values": values}:
            return _each(_converter(values), lambda found, each: {key: each(value) for key, value in found.items()})
        case {"type": inner} if not isinstance(inner, str):
            return _converter(inner)
        case list() if (inner := _optional(avro)) is not None:
            return _converter(inner)
    return None


def _instant(micros: int) -> Convert:
    def convert(value: int | None) -> int | None:
        return None if value is None else checked_micros(value * micros)

    return convert


def _each(each: Convert | None, of: Callable[[Any, Convert], Any]) -> Convert | None:
    return None if each is None else (lambda values: None if values is None else of(values, each))


def _record_converter(fields: Mapping[str, Convert | None]) -> Convert | None:
    changed = {name: convert for name, convert in fields.items() if convert is not None}
    if not changed:
        return None
    return lambda record: record and {**record, **{name: convert(record[name]) for name, convert in changed.items()}}
