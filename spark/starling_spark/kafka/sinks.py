"""Adapter: rows to Kafka, from the Python workers of Spark, acknowledged before the micro-batch is committed.

Spark's own Kafka sink cannot set a record's timestamp, and every record's timestamp must be its `received_at`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

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
    ]
)
"""A record to write; for `partition` -1 the key determines the partition."""

_COUNTS = types.StructType([types.StructField("topic", types.StringType()), types.StructField("records", types.LongType())])
_ACKNOWLEDGE_SECONDS = 120.0


def publish(rows: DataFrame, brokers: str, produced_by: str) -> Counter[str]:
    """Write records and return their number by topic, after the broker has acknowledged all of them.

    Raises: the error of a failed task, such as `BrokerUnavailable`; some of the records may be written then.
    """
    counts: Counter[str] = Counter()
    for row in rows.mapInArrow(_writer(brokers, produced_by), _COUNTS).collect():
        counts[row["topic"]] += row["records"]
    return counts


def _writer(brokers: str, produced_by: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: Counter[str] = Counter()
        failures: list[str] = []
        producer = _producer(brokers)
        for batch in batches:
            counts.update(_produce(producer, batch, produced_by, failures))
        if producer.flush(_ACKNOWLEDGE_SECONDS) or failures:
            raise BrokerUnavailable(f"the broker did not acknowledge all records: {failures[0] if failures else 'timed out'}")
        yield pa.RecordBatch.from_pydict({"topic": list(counts), "records": list(counts.values())}, _counts_in_arrow())

    return write


def _produce(producer: Producer, batch: pa.RecordBatch, produced_by: str, failures: list[str]) -> Counter[str]:
    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    columns = [batch.column(field.name).to_pylist() for field in OUTPUT.fields]
    for topic, partition, key, value, timestamp_ms, correlation_id in zip(*columns, strict=True):
        headers = record_headers(correlation_id, produced_by)
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp_ms, headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    return Counter(columns[0])


@cache
def _producer(brokers: str) -> Producer:
    # The next micro-batch reuses the worker and its connection.
    return Producer(producer_config(brokers))


def _counts_in_arrow() -> pa.Schema:
    return pa.schema([("topic", pa.string()), ("records", pa.int64())])
