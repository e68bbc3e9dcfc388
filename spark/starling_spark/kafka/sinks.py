"""Adapter: rows to Kafka, from the Python workers of Spark, acknowledged before the micro-batch is committed.

Spark's own Kafka sink cannot set a record's timestamp, and every record's timestamp must be its `received_at`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql import DataFrame, types

from starling_common.failures import POISON
from starling_common.headers import record_headers
from starling_common.kafka.clients import RECORD_REFUSED, BrokerUnavailable, producer_config
from starling_common.outcome import Refused
from starling_common.records.dead_letters import FOLD_ORIGIN, SourceRecord, dead_letter
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_spark.kafka.codec import Wire

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
_POLLED_EVERY: Final = 256
"""Records between two polls. The client calls Python for errors only; `refused` waits for all acknowledgements."""
_OF_SOME_RECORD = RECORD_REFUSED | {KafkaError._INVALID_DIFFERENT_RECORD}  # noqa: SLF001 - the library's public constant
Unpack = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From batches of packed records to batches of `OUTPUT`."""


class Letters(NamedTuple):
    """The stage, topic and schemas of the dead letters for records that the broker refuses."""

    stage: str
    topic: str
    wire: Wire


class Published(NamedTuple):
    """The number of records by topic, and the number of dead letters among them by code."""

    records: Counter[str]
    refused: Counter[str]


def publish(rows: DataFrame, brokers: str, produced_by: str, letters: Letters, unpack: Unpack | None = None) -> Published:
    """Write records and return their number, after the broker has acknowledged all of them.

    `unpack`: from batches of the rows to batches of `OUTPUT`, in the worker that writes the records; None if the rows have these
    columns. A record that the broker refuses, such as one that is too large, becomes a dead letter without its value.
    Raises: the error of a failed task, such as `BrokerUnavailable`; some of the records may be written then.
    """
    write = writer(brokers, produced_by, letters)

    def write_unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write(batches if unpack is None else unpack(batches))

    published = Published(Counter(), Counter())
    for row in rows.mapInArrow(write_unpacked, _COUNTS).collect():
        published.records[row["topic"]] += row["records"]
        if row["refused"] is not None:
            published.refused[row["refused"]] += row["records"]
    return published


class _Record(NamedTuple):
    """A row of `OUTPUT`."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    timestamp_ms: int
    correlation_id: str
    refused: str | None


def writer(brokers: str, produced_by: str, letters: Letters) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that writes the records of a partition, and yields the counts."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        producer = _Writer(_producer(brokers), produced_by)
        for batch in batches:
            for row in zip(*(batch.column(field.name).to_pylist() for field in OUTPUT.fields), strict=True):
                producer.send(_Record(*row))
        # The error of one record may be that of another one in its batch, so each is sent once more alone.
        for record in producer.unsent():
            producer.send(record)
            for refused, error in producer.refused():
                log(__name__).error("output_refused", topic=refused.topic, key=str(refused.key)[:200], error=error)
                producer.send(_letter(refused, error, letters))
                if producer.refused():
                    raise BrokerUnavailable(f"the broker refuses a dead letter: {error}")
        counts = +producer.counts  # without those of which every record was refused
        columns = {
            "topic": [topic for topic, _ in counts],
            "refused": [code for _, code in counts],
            "records": list(counts.values()),
        }
        yield pa.RecordBatch.from_pydict(columns, _counts_in_arrow())

    return write


def _letter(record: _Record, error: str, letters: Letters) -> _Record:
    key = record.key or b""
    source = SourceRecord(FOLD_ORIGIN, record.partition, -1, key, b"", (), record.timestamp_ms * 1000)
    message = f"the broker refuses a record of {len(record.value)} bytes for {record.topic}: {error}: shorten its cause"
    value = letters.wire.codec(letters.topic).encode(dead_letter(letters.stage, source, Refused(POISON, message), wall_clock_ms()))
    return _Record(letters.topic, -1, key, value, record.timestamp_ms, record.correlation_id, POISON)


class _Writer:
    """Sends records and counts those that the broker has acknowledged."""

    def __init__(self, producer: Producer, produced_by: str) -> None:
        """`producer`: reports only errors."""
        self._producer = producer
        self._produced_by = produced_by
        self._refused: list[tuple[_Record, str]] = []
        self._failures: list[str] = []
        self._unpolled = 0
        self.counts: Counter[tuple[str, str | None]] = Counter()
        """The records without an error, by topic and code; acknowledged after `refused`."""

    def send(self, record: _Record) -> None:
        """Send one record without waiting for the acknowledgement."""
        more: dict[str, Any] = {
            "timestamp": record.timestamp_ms,
            "headers": record_headers(record.correlation_id, self._produced_by),
            "on_delivery": partial(self._failed, record),
        }
        self.counts[record.topic, record.refused] += 1
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, record.partition, **more)
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as cause:  # larger than the client accepts
                if cause.args[0].code() not in _OF_SOME_RECORD:
                    raise
                self._refuse(record, cause.args[0])
                break
        self._unpolled += 1
        if self._unpolled >= _POLLED_EVERY:
            self._unpolled = 0
            self._producer.poll(0)

    def _failed(self, record: _Record, error: KafkaError, _message: Message) -> None:
        if error.code() in _OF_SOME_RECORD:
            self._refuse(record, error)
        else:
            self._failures.append(error.str())

    def _refuse(self, record: _Record, error: KafkaError) -> None:
        self.counts[record.topic, record.refused] -= 1
        self._refused.append((record, error.str()))

    def refused(self) -> list[tuple[_Record, str]]:
        """Wait for the acknowledgements. Return and forget the refused records. Raises: BrokerUnavailable."""
        if self._producer.flush(_ACKNOWLEDGE_SECONDS) or self._failures:
            cause = self._failures[0] if self._failures else "timed out"
            raise BrokerUnavailable(f"the broker did not acknowledge all records: {cause}")
        found, self._refused = self._refused, []
        return found

    def unsent(self) -> list[_Record]:
        """As `refused`, without the errors."""
        return [record for record, _ in self.refused()]


@cache
def _producer(brokers: str) -> Producer:
    # The next micro-batch reuses the worker and its connection. Calling Python for each acknowledgement took two thirds of the time
    # of `produce`.
    return Producer(producer_config(brokers, **{"delivery.report.only.error": True}))


def _counts_in_arrow() -> pa.Schema:
    return pa.schema([("topic", pa.string()), ("refused", pa.string()), ("records", pa.int64())])
