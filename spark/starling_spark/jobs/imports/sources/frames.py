"""Adapter: what the rows of a database and of an Iceberg table share as a DataFrame."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F  # noqa: N812 - as in every guide of Spark

from starling_spark.jobs.imports.rows import UnusableFile

NUMBERS: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType, types.DecimalType)
_NOT_HASHED: Final = re.compile("map<|variant")
"""The types that Spark cannot hash."""
_ID: Final = "starling_row_id"
TIMES: Final = (types.TimestampType, types.TimestampNTZType, types.DateType)


class TableRows(NamedTuple):
    """The rows of a run.

    `text_columns`: `number` or `time` by the column whose values are read as text; `added`: a column that is none of the source.
    """

    frame: DataFrame
    text_columns: Mapping[str, str]
    added: str | None = None


def in_order_of_ids(rows: TableRows, column: str, id_of: Callable[[Any, str | None], bytes], tasks: int, prefix: int) -> TableRows:
    """Return the rows in partitions by the first bytes of their ids, in their order.

    `column`, `id_of`: the id of a row is that of the value of the column and its kind of `text_columns`; `prefix`: the bytes.
    Rows with the same id have the same order in each run, so that the same one is the first.
    """
    names, added = {name.lower() for name in rows.frame.columns}, _ID  # a session may ignore case
    while added in names:
        added += "_"
    kind = rows.text_columns.get(column)

    def with_id(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = pa.array([id_of(value, kind) for value in batch.column(column).to_pylist()], pa.binary())
            yield batch.append_column(added, ids)

    schema = types.StructType([*rows.frame.schema.fields, types.StructField(added, types.BinaryType())])
    found = rows.frame.mapInArrow(with_id, schema).repartition(tasks, F.substring(added, 1, prefix))
    hashed = [F.col(quoted(one.name)) for one in rows.frame.schema.fields if not _NOT_HASHED.search(one.dataType.simpleString())]
    return TableRows(found.sortWithinPartitions(F.col(added), F.xxhash64(*hashed)), rows.text_columns, added)


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
