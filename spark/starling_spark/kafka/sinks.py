"""Adapter: rows to Kafka, from the Python workers of Spark, acknowledged before the micro-batch is committed.

Spark's own Kafka sink cannot set a record's timestamp, and every record's timestamp must be its `received_at`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import DataFrame, types

from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config

OUTPUT = types.StructType(
    [
        types.StructField("topic", types.StringType()),
        types.StructField("partition", types.IntegerType()),
        types.StructField("key", types.BinaryType()),
        types.StructField("value", types.BinaryType()),
        types.StructField("timestamp_ms", types.LongType()),
        types.StructField("correlation_id", types.StringType()),
        types.StructField("refused", types.StringType()),
    ]
)
"""A record to write; for `partition` -1 the key determines the partition. `refused`: the code of a dead letter, else null."""

_COUNTS = types.StructType(
    [
        types.StructField("topic", types.StringType()),
        types.StructField("refused", types.StringType()),
        types.StructField("records", types.LongType()),
    ]
)
_ACKNOWLEDGE_SECONDS = 120.0


class Published(NamedTuple):
    """The number of records by topic, and the number of dead letters among them by code."""

    records: Counter[str]
    refused: Counter[str]


def publish(rows: DataFrame, brokers: str, produced_by: str) -> Published:
    """Write records and return their number, after the broker has acknowledged all of them.

    Raises: the error of a failed task, such as `BrokerUnavailable`; some of the records may be written then.
    """
    published = Published(Counter(), Counter())
    for row in rows.mapInArrow(_writer(brokers, produced_by), _COUNTS).collect():
        published.records[row["topic"]] += row["records"]
        if row["refused"] is not None:
            published.refused[row["refused"]] += row["records"]
    return published


def _writer(brokers: str, produced_by: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[tuple[str, str | None]] = Counter()
        failures: list[str] = []
        producer = _producer(brokers)
        for batch in batches:
            counts.update(_produce(producer, batch, produced_by, failures))
        if producer.flush(_ACKNOWLEDGE_SECONDS) or failures:
            raise BrokerUnavailable(f"the broker did not acknowledge all records: {failures[0] if failures else 'timed out'}")
        topics, codes = [topic for topic, _ in counts], [code for _, code in counts]
        columns = {"topic": topics, "refused": codes, "records": list(counts.values())}
        yield pa.RecordBatch.from_pydict(columns, _counts_in_arrow())

    return write


def _produce(producer: Producer, batch: pa.RecordBatch, produced_by: str, failures: list[str]) -> Counter[tuple[str, str | None]]:
    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    columns = [batch.column(field.name).to_pylist() for field in OUTPUT.fields]
    for topic, partition, key, value, timestamp_ms, correlation_id, _ in zip(*columns, strict=True):
        headers = record_headers(correlation_id, produced_by)
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp_ms, headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    return Counter(zip(columns[0], columns[-1], strict=True))


@cache
def _producer(brokers: str) -> Producer:
    # The next micro-batch reuses the worker and its connection.
    return Producer(producer_config(brokers))


def _counts_in_arrow() -> pa.Schema:
    return pa.schema([("topic", pa.string()), ("refused", pa.string()), ("records", pa.int64())])
