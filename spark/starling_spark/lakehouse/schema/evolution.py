"""Pure core: the actual and the wanted columns of a table -> the changes, and the columns after them.

Record schemas change compatibly, and so do tables: a new column is null in old rows, a column that the record loses stays, and
a numeric column may become wider.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import types

_WIDER: Final = {("int", "bigint"), ("float", "double")}


class SchemaConflict(Exception):
    """The type of a column cannot change to the wanted one; the table is unchanged."""


def changes(actual: types.StructType, wanted: types.StructType, at: str = "") -> list[str]:
    """Return clauses of ALTER TABLE, in order; empty when the table has all columns. Raises: SchemaConflict."""
    existing = {field.name: field.dataType for field in actual.fields}
    clauses: list[str] = []
    for field in wanted.fields:
        path = f"{at}`{field.name}`"
        if field.name not in existing:
            clauses.append(f"ADD COLUMN {path} {field.dataType.simpleString()}")
        else:
            clauses.extend(_changed(existing[field.name], field.dataType, path))
    return clauses


def _changed(actual: types.DataType, wanted: types.DataType, path: str) -> Iterator[str]:
    match actual, wanted:
        case types.StructType(), types.StructType():
            yield from changes(actual, wanted, f"{path}.")
        case types.ArrayType(), types.ArrayType():
            yield from _changed(actual.elementType, wanted.elementType, f"{path}.element")
        case types.MapType(), types.MapType():
            yield from _changed(actual.valueType, wanted.valueType, f"{path}.value")
        case _ if (pair := (actual.simpleString(), wanted.simpleString())) and pair[0] != pair[1]:
            if pair in _WIDER:
                yield f"ALTER COLUMN {path} TYPE {pair[1]}"
            elif pair[::-1] not in _WIDER:
                raise SchemaConflict(f"column {path} is {pair[0]} and cannot become {pair[1]}")


def merged(actual: types.StructType, wanted: types.StructType) -> types.StructType:
    """Return the columns after `changes`: the actual ones, then the new ones. Raises: SchemaConflict."""
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
