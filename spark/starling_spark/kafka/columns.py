"""Pure core: an Avro schema -> the types of Spark columns; a decoded record -> the values of these columns."""

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
"""0001-01-01 and 9999-12-31 in microseconds: Spark and Iceberg's hour transform cannot represent other instants."""


def columns_of(schema: str) -> types.StructType:
    """Return the columns of a record, in the schema's order. All are nullable, because a schema may add and remove fields.

    Raises: ValueError for an Avro type without a column type.
    """
    return _struct(json.loads(schema))


def row_of(schema: str, names: Sequence[str] | None = None) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function from a decoded record to the values of columns: those of the schema, or `names`.

    A missing field is None. Instants are epoch microseconds.
    The function raises ValueError for an instant outside the years 1 to 9999.
    """
    own = {field["name"]: _converter(field["type"]) for field in json.loads(schema)["fields"]}
    wanted = list(names or own)
    fields = [(name, own.get(name)) for name in wanted]

    def row(record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([record.get(name) if convert is None else convert(record[name]) for name, convert in fields])

    return row if len(wanted) < 2 or set(wanted) - own.keys() else _picked(wanted, own)


def _picked(names: Sequence[str], own: Mapping[str, Convert | None]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    # Nearly every record has all fields; `itemgetter` then takes half the time of one lookup a field.
    pick = itemgetter(*names)
    changed = [(index, convert) for index, name in enumerate(names) if (convert := own[name]) is not None]

    def row(record: Mapping[str, Any]) -> tuple[Any, ...]:
        values = list(pick(record))
        for index, convert in changed:
            values[index] = convert(values[index])
        return tuple(values)

    return row


def unit_micros(schema: str, name: str) -> int:
    """Return the microseconds of the unit of an instant. Raises: LookupError if the field is none."""
    [field] = [field for field in json.loads(schema)["fields"] if field["name"] == name]
    return _MICROS[field["type"]["logicalType"]]


def is_instant(micros: int) -> bool:
    """Return whether the epoch microseconds are within the years 1 to 9999."""
    return _FIRST <= micros <= _LAST


def checked_micros(value: int) -> int:
    """Return the epoch microseconds unchanged. Raises: ValueError for an instant outside the years 1 to 9999."""
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
