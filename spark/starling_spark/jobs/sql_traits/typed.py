"""Pure core: the declared properties of an event as typed columns: the JSON text of its properties in, columns out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, functions, types

from starling_rules.sql.event_types import Property

_EXACT: Final = 2.0**53
"""Beyond it a double is no exact integer."""


def typed(properties: Column, declared: Sequence[Property]) -> list[Column]:
    """Return a column for each property, with its name. A value of another type is null.

    Numbers and booleans are also read from texts, and every value but null is a string.
    """
    if not declared:
        return []
    # One parse for all of them: Spark evaluates equal expressions once.
    texts = types.StructType([types.StructField(one.name, types.StringType()) for one in declared])
    parsed = functions.from_json(properties, texts)
    return [_READERS[one.type](parsed.getField(one.name)).alias(one.name) for one in declared]


def _integer(text: Column) -> Column:
    number = text.try_cast("double")
    is_whole = (number == functions.floor(number)) & (functions.abs(number) <= functions.lit(_EXACT))
    return functions.coalesce(text.try_cast("bigint"), functions.when(is_whole, number.try_cast("bigint")))


def _number(text: Column) -> Column:
    number = text.try_cast("double")
    # NaN is greater than any number in Spark.
    return functions.when(functions.abs(number) < functions.lit(float("inf")), number)


def _boolean(text: Column) -> Column:
    return functions.when(text.isin("true", "false"), text == "true")


def _timestamp(text: Column) -> Column:
    # Spark would read the number 12345 as a year.
    return functions.when(text.like("____-__-__%"), text.try_cast("timestamp"))


def _strings(text: Column) -> Column:
    return functions.when(text.startswith("["), functions.from_json(text, types.ArrayType(types.StringType())))


_READERS: Final[Mapping[str, Callable[[Column], Column]]] = {
    "string": lambda text: text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "string[]": _strings,
}
"""Type of a property -> its column, from the JSON of the value; of a JSON string, from its text."""
