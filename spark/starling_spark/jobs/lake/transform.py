"""Records of Kafka -> rows of a table and of the quarantine: DataFrame in, DataFrame out. No session, no broker, no table."""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column, DataFrame, functions, types

from starling_spark.kafka.codec import Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import NOTHING, Reading, decoded
from starling_spark.lakehouse.items import call_of
from starling_spark.lakehouse.positions import Place, Span
from starling_spark.lakehouse.tables import ORIGIN, QUARANTINE_COLUMNS, LakeTable


def columns(table: LakeTable, wire: Wire) -> types.StructType:
    """The columns that a table should have: the record's, what is made of it, and where it was."""
    record = columns_of(wire.of(leading(table, wire)).reader_schema)
    return types.StructType([*record.fields, *table.extra.fields, *ORIGIN.fields])


def leading(table: LakeTable, wire: Wire) -> str:
    """Of the table's topics the one whose schema is the newest: a new version is registered for one after the other."""
    return max(table.topics, key=lambda topic: wire.of(topic).schema_id)


def read(records: DataFrame, table: LakeTable, wire: Wire, there: types.StructType) -> DataFrame:
    """The table's records, read or refused.

    Shape: in `sources.RECORDS`, out as `decoding.decoded`; `there`: the columns that the table has.
    """
    return decoded(records.where(functions.col("topic").isin(*table.topics)), reading(table, wire, there))


def reading(table: LakeTable, wire: Wire, there: types.StructType) -> Reading:
    """How the table's records are read into the columns `there`, but for those that say where they were."""
    apart = {*table.extra.fieldNames(), *ORIGIN.fieldNames()}
    fields = types.StructType([field for field in there.fields if field.name not in apart])
    plain = Reading(wire, leading(table, wire), fields)
    return plain if table.extra == NOTHING else replace(plain, extra=table.extra, more=call_of)


def rows(found: DataFrame, there: types.StructType) -> DataFrame:
    """What could be read, with the columns `there`."""
    origin = _origin()
    picked = [origin[name] if name in origin else functions.col(f"record.`{name}`").alias(name) for name in there.fieldNames()]
    return found.where("record IS NOT NULL").select(*picked)


def refused(found: DataFrame) -> DataFrame:
    """What could not, with `QUARANTINE_COLUMNS`."""
    made = _origin() | {
        "value": functions.col("value"),
        "headers": functions.col("headers"),
        **{name: functions.col(f"refused.{name}") for name in ("code", "message", "schema_id")},
    }
    return found.where("refused IS NOT NULL").select(*[made[name] for name in QUARANTINE_COLUMNS.fieldNames()])


def beyond(records: DataFrame, known: Mapping[Place, int]) -> DataFrame:
    """The records at or after these offsets; those of other partitions all. In `sources.RECORDS` or more."""
    for (topic, partition), offset in known.items():
        here = (functions.col("topic") == topic) & (functions.col("partition") == partition)
        records = records.where(~here | (functions.col("offset") >= offset))
    return records


def spans(records: DataFrame) -> dict[Place, Span]:
    """What a batch holds; reads it."""
    counted = records.groupBy("topic", "partition").agg(
        functions.min("offset").alias("first"), (functions.max("offset") + 1).alias("end"), functions.count("*").alias("records")
    )
    return {(row["topic"], row["partition"]): Span(row["first"], row["end"], row["records"]) for row in counted.collect()}


def _origin() -> dict[str, Column]:
    return {
        "origin_topic": functions.col("topic").alias("origin_topic"),
        "origin_partition": functions.col("partition").alias("origin_partition"),
        "origin_offset": functions.col("offset").alias("origin_offset"),
        "origin_timestamp": functions.timestamp_millis("timestamp_ms").alias("origin_timestamp"),
        "origin_key": functions.col("key").alias("origin_key"),
    }
