"""Adapter: Kafka topics and a heartbeat as streaming DataFrames of one shape, `RECORDS`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, functions, types

from starling_common.kafka.security import jvm_security, kafka_security

RECORDS = types.StructType(
    [
        types.StructField("topic", types.StringType()),
        types.StructField("partition", types.IntegerType()),
        types.StructField("offset", types.LongType()),
        types.StructField("timestamp_ms", types.LongType()),
        types.StructField("key", types.BinaryType()),
        types.StructField("value", types.BinaryType()),
        types.StructField(
            "headers",
            types.ArrayType(
                types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
            ),
        ),
    ]
)
"""A record of Kafka. A heartbeat has only a partition and a time."""


VISITS: Final = "(visits)"
"""The topic of a record that makes a query of the job `profiles` visit users; its `timestamp_ms` is the number of visits."""

SEEDS: Final = "(seeds)"
"""The topic of a record whose `value` has histories of users for that query."""


_FETCH_WAIT_MS: Final = 5
"""How long the broker waits with an answer until it has new records. Spark reads only offsets that exist.

After the last records of a partition the client requests further ones. Spark then asks for the partition's offsets by the same
connection, whose requests the broker answers in order. With the client's default of 500 ms that takes as long for each partition.
"""


class Raw(NamedTuple):
    """A row of `RECORDS`, its fields in that order."""

    topic: str | None
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Mapping[str, Any]] | None = None


def kafka_records(
    spark: SparkSession, brokers: str, topics: Sequence[str], max_records: int | None = None, *, headers: bool = True
) -> DataFrame:
    """Return the committed `RECORDS` of these topics as a stream, from the earliest offset. A gap in the offsets fails the query.

    `max_records`: approximate upper bound of one micro-batch; None: unbounded. `headers`: whether rows have headers, which
    take a third of the time of reading a record.
    """
    limit = {} if max_records is None else {"maxOffsetsPerTrigger": str(max_records)}
    stream = (
        spark.readStream.format("kafka")
        .options(**_connection(brokers))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(headers).lower())
        .options(**limit)
        .load()
    )
    # One task a core instead of one a partition: the start of a task takes most of its time in a small batch.
    return stream.coalesce(spark.sparkContext.defaultParallelism).select(*_columns(headers=headers))


def kafka_past(spark: SparkSession, brokers: str, topics: Sequence[str], starts: str = "earliest") -> DataFrame:
    """Return the committed `RECORDS` that these topics contain now.

    `starts`: `earliest`, or the first offset of every partition as JSON: `{"topic": {"0": 17}}`, -2 for the earliest.
    """
    found = (
        spark.read.format("kafka")
        .options(**_connection(brokers))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", starts)
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )
    return found.select(*_columns())


def kafka_spans(
    spark: SparkSession,
    brokers: str,
    spans: Mapping[tuple[str, int], tuple[int, int]],
    *,
    headers: bool = True,
    tasks: int | None = None,
) -> DataFrame:
    """Return the committed `RECORDS` of each (topic, partition) from the first offset to before the second.

    `headers`: as in `kafka_records`; `tasks`: about how many read them, at least one a partition.
    """
    numbers: dict[str, list[int]] = {}
    for topic, number in spans:
        numbers.setdefault(topic, []).append(number)
    firsts, ends = (
        {topic: {str(number): spans[topic, number][side] for number in own} for topic, own in numbers.items()} for side in (0, 1)
    )
    found = (
        spark.read.format("kafka")
        .options(**_connection(brokers))
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps(numbers))
        .option("startingOffsets", json.dumps(firsts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", str(headers).lower())
        .options(**({} if tasks is None else {"minPartitions": str(tasks)}))
        .load()
    )
    return found.select(*_columns(headers=headers))


def _connection(brokers: str) -> dict[str, str]:
    security = {f"kafka.{name}": value for name, value in jvm_security(kafka_security()).items()}
    return {"kafka.bootstrap.servers": brokers, "kafka.fetch.max.wait.ms": str(_FETCH_WAIT_MS), **security}


def _columns(*, headers: bool = True) -> list[str | Column]:
    time = functions.unix_millis("timestamp").alias("timestamp_ms")
    return ["topic", "partition", "offset", time, "key", "value", *(["headers"] if headers else [])]


def visits(spark: SparkSession, uri: str, partitions: int) -> DataFrame:
    """Return `RECORDS` of each file of a directory, a file a micro-batch.

    A line `visit N` is a record of `VISITS` for each partition, a line `seeds PARTITION BASE64` one of `SEEDS`.
    """
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(uri)
    words = functions.split("value", " ")
    every = functions.sequence(functions.lit(0), functions.lit(partitions - 1))
    is_seeds = words[0] == "seeds"
    found = lines.select(
        functions.when(is_seeds, SEEDS).otherwise(VISITS).alias("topic"),
        functions.explode(functions.when(is_seeds, functions.array(words[1].cast("int"))).otherwise(every)).alias("partition"),
        functions.when(is_seeds, functions.lit(0)).otherwise(words[1]).cast("long").alias("timestamp_ms"),
        functions.when(is_seeds, functions.unbase64(functions.element_at(words, -1))).alias("value"),
    )
    return _filled(found)


def heartbeats(spark: SparkSession, partitions: int) -> DataFrame:
    """Return `RECORDS` with the wall clock: one a second for each partition, and none for the downtime of the job."""
    seconds = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    fresh = seconds.where(functions.col("timestamp") > functions.current_timestamp() - functions.expr("INTERVAL 5 SECONDS"))
    every = fresh.select(
        functions.explode(functions.sequence(functions.lit(0), functions.lit(partitions - 1))).alias("partition"),
        functions.unix_millis("timestamp").alias("timestamp_ms"),
    )
    return _filled(every)


def _filled(records: DataFrame) -> DataFrame:
    """Return these columns of `RECORDS` with the others as null."""
    return records.select(
        *[
            functions.col(field.name)
            if field.name in records.columns
            else functions.lit(None).cast(field.dataType).alias(field.name)
            for field in RECORDS.fields
        ]
    )
