"""Records of Kafka -> rows of a table and of the quarantine: DataFrame in, DataFrame out. No session, no broker, no table."""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column, DataFrame, functions, types

from starling_spark.kafka.codec import Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import NOTHING, Reading, decoded
from starling_spark.lakehouse.positions import Span, TopicPartition
from starling_spark.lakehouse.schema.items import call_of
from starling_spark.lakehouse.schema.tables import ORIGIN, QUARANTINE_COLUMNS, LakeTable


def columns(table: LakeTable, wire: Wire) -> types.StructType:
    """Return the wanted columns of a table: those of the record, the computed ones, and the origin."""
    record = columns_of(wire.of(leading(table, wire)).reader_schema)
    return types.StructType([*record.fields, *table.extra.fields, *ORIGIN.fields])


def leading(table: LakeTable, wire: Wire) -> str:
    """Return the table's topic with the newest schema; a new version is registered for one topic after the other."""
    return max(table.topics, key=lambda topic: wire.of(topic).schema_id)


def read(records: DataFrame, table: LakeTable, wire: Wire, own: types.StructType) -> DataFrame:
    """Return the table's records with their fields in `record`, or the reason in `refused`. `own`: the columns of the table."""
    return decoded(records.where(functions.col("topic").isin(*table.topics)), reading(table, wire, own))


def reading(table: LakeTable, wire: Wire, own: types.StructType) -> Reading:
    """Return how the table's records become the columns `own`, without the columns of the origin."""
    apart = {*table.extra.fieldNames(), *ORIGIN.fieldNames()}
    fields = types.StructType([field for field in own.fields if field.name not in apart])
    plain = Reading(wire, leading(table, wire), fields)
    return plain if table.extra == NOTHING else replace(plain, extra=table.extra, more=call_of)


def rows(found: DataFrame, own: types.StructType) -> DataFrame:
    """Return the decoded records with the columns `own`."""
    origin = _origin()
    picked = [origin[name] if name in origin else functions.col(f"record.`{name}`").alias(name) for name in own.fieldNames()]
    return found.where("record IS NOT NULL").select(*picked)


def refused(found: DataFrame) -> DataFrame:
    """Return the refused records with `QUARANTINE_COLUMNS`."""
    made = _origin() | {
        "value": functions.col("value"),
        "headers": functions.col("headers"),
        **{name: functions.col(f"refused.{name}") for name in ("code", "message", "schema_id")},
    }
    return found.where("refused IS NOT NULL").select(*[made[name] for name in QUARANTINE_COLUMNS.fieldNames()])


def beyond(records: DataFrame, known: Mapping[TopicPartition, int]) -> DataFrame:
    """Return the records at or after these offsets, and all records of other partitions. In `sources.RECORDS` or more."""
    for (topic, partition), offset in known.items():
        here = (functions.col("topic") == topic) & (functions.col("partition") == partition)
        records = records.where(~here | (functions.col("offset") >= offset))
    return records


def spans(records: DataFrame) -> dict[TopicPartition, Span]:
    """Return the span of each partition in a batch; runs a Spark job."""
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
