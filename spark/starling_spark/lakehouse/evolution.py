"""Pure core: the columns that a table has and those that it should have -> what to change, and what it has then.

Records only ever change compatibly, and so do tables: columns come (null in the rows that were there), stay when a record
loses them, and grow wider.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import types

_WIDER: Final = {("int", "bigint"), ("float", "double")}


class SchemaConflict(Exception):
    """A column cannot become what it should be; the table is left as it is."""


def changes(actual: types.StructType, wanted: types.StructType, at: str = "") -> list[str]:
    """Clauses of ALTER TABLE, in order; none when all is there. Raises: SchemaConflict."""
    there = {field.name: field.dataType for field in actual.fields}
    clauses: list[str] = []
    for field in wanted.fields:
        place = f"{at}`{field.name}`"
        if field.name not in there:
            clauses.append(f"ADD COLUMN {place} {field.dataType.simpleString()}")
        else:
            clauses.extend(_changed(there[field.name], field.dataType, place))
    return clauses


def _changed(actual: types.DataType, wanted: types.DataType, place: str) -> Iterator[str]:
    match actual, wanted:
        case types.StructType(), types.StructType():
            yield from changes(actual, wanted, f"{place}.")
        case types.ArrayType(), types.ArrayType():
            yield from _changed(actual.elementType, wanted.elementType, f"{place}.element")
        case types.MapType(), types.MapType():
            yield from _changed(actual.valueType, wanted.valueType, f"{place}.value")
        case _ if (pair := (actual.simpleString(), wanted.simpleString())) and pair[0] != pair[1]:
            if pair in _WIDER:
                yield f"ALTER COLUMN {place} TYPE {pair[1]}"
            elif pair[::-1] not in _WIDER:
                raise SchemaConflict(f"column {place} is {pair[0]} and cannot become {pair[1]}")


def merged(actual: types.StructType, wanted: types.StructType) -> types.StructType:
    """What the table has after `changes`: the columns that were there, then the new ones. Raises: SchemaConflict."""
    new = {field.name: field.dataType for field in wanted.fields}
    old = [types.StructField(one.name, _merged(one.dataType, new.pop(one.name, one.dataType))) for one in actual.fields]
    return types.StructType(old + [types.StructField(name, data_type) for name, data_type in new.items()])


def _merged(actual: types.DataType, wanted: types.DataType) -> types.DataType:
    match actual, wanted:
        case types.StructType(), types.StructType():
            return merged(actual, wanted)
        case types.ArrayType(), types.ArrayType():
            return types.ArrayType(_merged(actual.elementType, wanted.elementType))
        case types.MapType(), types.MapType():
            return types.MapType(actual.keyType, _merged(actual.valueType, wanted.valueType))
    return wanted if (actual.simpleString(), wanted.simpleString()) in _WIDER else actual
