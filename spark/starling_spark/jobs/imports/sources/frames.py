"""Adapter: what the rows of a database and of an Iceberg table share as a DataFrame."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F  # noqa: N812 - as in every guide of Spark

from starling_spark.jobs.imports.rows import UnusableFile

NUMBERS: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType, types.DecimalType)
TIMES: Final = (types.TimestampType, types.TimestampNTZType, types.DateType)


class TableRows(NamedTuple):
    """The rows of a run. `text_columns`: `number` or `time` by the column whose values are read as text."""

    frame: DataFrame
    text_columns: Mapping[str, str]


def check_type(
    fields: Mapping[str, types.DataType], column: str | None, kinds: Sequence[type[types.DataType]], field: str, wanted: str
) -> None:
    """Raise UnusableFile if a column has none of the types. `field`: of the import, with the column."""
    if column is not None and not isinstance(fields[column], tuple(kinds)):
        raise UnusableFile(f"the {field} {column!r} is {fields[column].simpleString()}, and not {wanted}: choose another column")


def check_cursor(fields: Mapping[str, types.DataType], column: str | None) -> None:
    """Raise UnusableFile if a cursor has no order that is kept as text."""
    check_type(fields, column, (*NUMBERS, *TIMES), "cursor_column", "a number, a date or a time")


def after(column: str, last: str, kind: types.DataType) -> Column:
    """Return whether a row has a greater cursor than the last one, or none."""
    found = F.col(quoted(column))
    # A row without a cursor is read in every run, to be rejected.
    return (found > F.lit(last).cast(kind)) | found.isNull()


def quoted(name: str) -> str:
    """Return the name of a column as an expression of Spark."""
    return f"`{name.replace('`', '``')}`"
