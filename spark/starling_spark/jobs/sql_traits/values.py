"""Pure core: the values of a statement -> JSON, and the changes from one result to the next: DataFrame in, DataFrame out."""

from typing import Final

from pyspark.sql import Column, DataFrame, functions, types

from starling_rules.sql.tables import RESULT

USER, VALUE = RESULT
_LAYOUT: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
_NUMBERS: Final = (types.FloatType, types.DoubleType, types.DecimalType)
_PLAIN: Final = (types.BooleanType, types.ByteType, types.ShortType, types.IntegerType, types.LongType, types.StringType)


class ResultRefused(Exception):
    """The columns of a result are of other types; the text names the cure."""


def json_values(result: DataFrame, timezone: str) -> DataFrame:
    """Return the users with a value. A value that is null, or no finite number, is none.

    Shape: in: `user_id`, `value`; out: the same as text, `value` in JSON. `timezone`: that of the session. Raises: ResultRefused.
    """
    kinds = {field.name.lower(): field.dataType for field in result.schema.fields}
    if sorted(kinds) != sorted(RESULT):
        raise ResultRefused(f"the columns of the result are {', '.join(kinds)}: name them user_id and value")
    if not isinstance(kinds[USER], types.StringType):
        raise ResultRefused(f"user_id is of the type {kinds[USER].simpleString()}: select the column user_id of a table")
    value = _json(_shown(kinds[VALUE], timezone))
    return result.select(USER, value.alias(VALUE)).where(f"{USER} IS NOT NULL AND {USER} <> '' AND {VALUE} IS NOT NULL")


def changed(before: DataFrame | None, after: DataFrame) -> DataFrame:
    """Return the users whose value differs, with the new value; null for a user without one now.

    Shape: in and out `user_id`, `value`; `before` None: no result yet.
    """
    if before is None:
        return after.select(USER, VALUE)
    old = before.select(USER, functions.col(VALUE).alias("old"))
    joined = after.select(USER, VALUE).join(old, USER, "full")
    return joined.where(~functions.col(VALUE).eqNullSafe(functions.col("old"))).select(USER, VALUE)


def _shown(kind: types.DataType, timezone: str) -> Column:
    value = functions.col(VALUE)
    if isinstance(kind, _NUMBERS):
        number = value.cast("double")
        # NaN is greater than any number in Spark.
        return functions.when(functions.abs(number) < functions.lit(float("inf")), number)
    if isinstance(kind, types.DateType):
        return value.cast("string")
    if isinstance(kind, types.TimestampType):
        return functions.date_format(functions.to_utc_timestamp(value, timezone), _LAYOUT)
    if isinstance(kind, _PLAIN):
        return value
    cure = "return a number, a text, a boolean, a date or a timestamp"
    raise ResultRefused(f"value is of the type {kind.simpleString()}: {cure}")


def _json(value: Column) -> Column:
    # Spark writes JSON of structs alone: {"v":…}. The field of a null is left out.
    whole = functions.to_json(functions.struct(value.alias("v")))
    return functions.when(value.isNotNull(), whole.substr(functions.lit(6), functions.length(whole) - 6))
