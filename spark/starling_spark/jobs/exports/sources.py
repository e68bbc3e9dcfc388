"""Tables of the lake -> rows of an export, with their key and version: DataFrame in, DataFrame out."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, functions, types

from starling_spark.history.memberships import PAIR
from starling_spark.jobs.exports.definition import ExportDefinition
from starling_spark.lakehouse.positions import Position
from starling_spark.lakehouse.schema.tables import TABLES
from starling_spark.sinks.port import VERSION

_COMPUTED: Final = "computed."
_PLAIN: Final = (types.StringType, types.LongType, types.IntegerType, types.DoubleType, types.BooleanType, types.TimestampType)
_WIDER: Final[Mapping[type[types.DataType], str]] = MappingProxyType(
    {types.FloatType: "double", types.ShortType: "int", types.ByteType: "int"}
)


class Source(NamedTuple):
    """The rows that an export can have. `table`: of the lake; `rows`: of its new records, the newest one for each key."""

    table: str
    key: tuple[str, ...]
    rows: Callable[[DataFrame], DataFrame]


class BadSource(Exception):
    """An export whose rows cannot be determined. The text names the field, the reason and the cure."""


def source_of(name: str) -> Source:
    """Return a source by its name. Raises: BadSource."""
    found = _RESULTS.get(name)
    if found is not None:
        return found
    if name not in {table.name for table in TABLES}:
        known = ", ".join([*_RESULTS, *(table.name for table in TABLES)])
        raise BadSource(f"source: {name!r} is unknown: write one of {known}")
    return Source(name, ("origin_topic", "origin_partition", "origin_offset"), _records)


def within(records: DataFrame, start: Position, end: Position) -> DataFrame:
    """Return the records from one position of the table up to another."""
    spans = {place: (start.get(place, 0), last) for place, last in end.items() if start.get(place, 0) < last}
    offset = functions.col("origin_offset")
    here = [
        (functions.col("origin_topic") == topic)
        & (functions.col("origin_partition") == partition)
        & offset.between(first, last - 1)
        for (topic, partition), (first, last) in sorted(spans.items())
    ]
    return records.where(reduce(or_, here, functions.lit(False)))


def exported(records: DataFrame, source: Source, definition: ExportDefinition) -> DataFrame:
    """Return the rows of an export, whose columns have plain types: lists and objects are JSON, and bytes base64.

    Raises: BadSource for an unknown column.
    """
    if definition.workspace is not None:
        records = records.where(functions.col("workspace") == definition.workspace)
    rows = source.rows(records)
    fixed = (*source.key, VERSION)
    if definition.columns is not None:
        unknown = sorted(set(definition.columns) - set(rows.columns))
        if unknown:
            raise BadSource(f"columns: there is no column {unknown[0]!r}: choose from {', '.join(rows.columns)}")
        others = [name for name in rows.columns if name in definition.columns and name not in fixed]
    else:
        others = [name for name in rows.columns if name not in fixed]
    chosen = (*source.key, *others, VERSION)
    return rows.select(*[_plain(rows.schema[name]).alias(name) for name in chosen])


def _records(records: DataFrame) -> DataFrame:
    # A record never changes, and its offset is as good a version as any.
    return records.withColumn(VERSION, functions.col("origin_offset"))


def _memberships(records: DataFrame) -> DataFrame:
    names = ("status", "segment_version", "effective_at")
    newest = _newest(records.select(*PAIR, *names, functions.col("sequence").alias(VERSION)), PAIR, names)
    is_member = functions.col("status") == "ENTERED"
    return newest.select(
        *PAIR,
        is_member.alias("is_member"),
        functions.when(is_member, functions.col("effective_at")).alias("entered_at"),
        functions.col("effective_at").alias("changed_at"),
        "segment_version",
        VERSION,
    )


def _profiles(records: DataFrame) -> DataFrame:
    key, names = ("workspace", "user_id"), ("anonymous_ids", "group_id", "traits", "event_time")
    newest = _newest(records.select(*key, *names, _order().alias(VERSION)), key, names)
    return newest.withColumnRenamed("event_time", "updated_at")


def _computed_traits(records: DataFrame) -> DataFrame:
    key, names = ("workspace", "user_id", "trait_key"), ("value", "event_time")
    changes = records.select(
        "workspace", "user_id", functions.explode("changed").alias("name"), "traits", "event_time", _order().alias(VERSION)
    ).where(functions.col("name").startswith(_COMPUTED))
    values = changes.select(
        "workspace",
        "user_id",
        functions.substring("name", len(_COMPUTED) + 1, 1_000).alias("trait_key"),
        functions.expr("get_json_object(traits, concat('$.', name))").alias("value"),
        "event_time",
        VERSION,
    )
    return _newest(values, key, names).withColumnRenamed("event_time", "updated_at")


def _order() -> Column:
    """Return the place of a change among those of its user. Records of older releases have no order but that of arrival."""
    order, received = (functions.unix_micros(name) for name in ("order", "received_at"))
    return functions.when(order > 0, order).otherwise(received)


def _newest(rows: DataFrame, key: tuple[str, ...], names: tuple[str, ...]) -> DataFrame:
    newest = rows.groupBy(*key).agg(functions.max_by(functions.struct(*names, VERSION), VERSION).alias("newest"))
    return newest.select(*key, "newest.*")


def _plain(field: types.StructField) -> Column:
    column, kind = functions.col(f"`{field.name}`"), field.dataType
    if isinstance(kind, _PLAIN):
        return column
    if isinstance(kind, types.StructType | types.ArrayType | types.MapType):
        return functions.to_json(column)
    if isinstance(kind, types.BinaryType):
        return functions.base64(column)
    return column.cast(_WIDER.get(type(kind), "string"))


_RESULTS: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "memberships": Source("membership_changes", PAIR, _memberships),
        "profiles": Source("profile_changes", ("workspace", "user_id"), _profiles),
        "computed_traits": Source("profile_changes", ("workspace", "user_id", "trait_key"), _computed_traits),
    }
)
