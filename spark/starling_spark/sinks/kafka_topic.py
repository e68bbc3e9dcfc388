"""Adapter: the sink of a Kafka topic: JSON with `id` and `sequence`.

The reader takes, for each `id`, the record with the highest `sequence`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.kafka.clients import RECORD_REFUSED, producer_config
from starling_common.values import deterministic_id
from starling_spark.sinks.port import (
    MOST_REASON,
    VERSION,
    RejectedRow,
    Run,
    Shape,
    SinkRefused,
    SinkUnavailable,
    Written,
    check_rejected,
)

_CHECK_SECONDS: Final = 15.0
_ACKNOWLEDGE_SECONDS: Final = 120.0
_ROWS: Final = 5_000
_OF_SOME_RECORD: Final = RECORD_REFUSED | {KafkaError._INVALID_DIFFERENT_RECORD}  # noqa: SLF001 - the library's public constant
_RIGHTS: Final = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of the platform's own broker."""

    brokers: str
    topic: str

    def check(self, _shape: Shape) -> None:
        """Check that the topic exists."""
        try:
            # All topics are listed, because a request for one topic may create it.
            topics = _producer(self.brokers).list_topics(timeout=_CHECK_SECONDS).topics
        except KafkaException as error:
            raise SinkUnavailable(f"{self.brokers}: {error.args[0].str()}: start the broker, or correct its address") from error
        if self.topic not in topics:
            raise SinkRefused(
                f"{self.topic}: there is no such topic, or no right to describe it: create it, compacted, or grant it"
            )

    def write(self, shape: Shape, run: Run, batches: Iterable[pa.RecordBatch], most_rejected: int) -> Written:
        """Write a record for each row, and wait for the acknowledgements."""
        accepted, rejected = 0, list[RejectedRow]()
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                rows = batch.slice(start, _ROWS).to_pylist()
                # The error of one record may be that of another one in its batch, so each is sent once more alone.
                alone = [found for row, _ in self._refused(shape, run, rows) for found in self._refused(shape, run, [row])]
                rejected += [_rejected(shape, row, reason) for row, reason in alone]
                accepted += len(rows) - len(alone)
                check_rejected(rejected, most_rejected)
        return Written(accepted, tuple(rejected))

    def complete(self, _shape: Shape, _run: Run, _written: Sequence[Written]) -> None:
        """Do nothing: each record is visible once it is acknowledged."""

    def _refused(self, shape: Shape, run: Run, rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
        """Send the rows, and return those that the broker refuses, with the reasons."""
        sending = _Sending(_producer(self.brokers), self.topic)
        for row in rows:
            key = [row[name] for name in shape.key]
            value = {"id": deterministic_id(run.export, *key), "sequence": row[VERSION], **row}
            sending.send(row, msgspec.json.encode(key), msgspec.json.encode(value))
        if sending.producer.flush(_ACKNOWLEDGE_SECONDS):
            raise SinkUnavailable(f"{self.brokers}: the broker did not acknowledge all records: wait until it answers")
        for failure in sending.failures:
            if failure.code() in _RIGHTS:
                raise SinkRefused(f"{self.topic}: {failure.str()}: grant the principal of the job the right to write")
            raise SinkUnavailable(f"{self.brokers}: {failure.str()}: wait until the broker answers")
        return sending.refused


class _Sending:
    """Sends rows. `refused`: rows that the broker refuses, with the reasons; `failures`: errors that concern no single row."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self.refused: list[tuple[dict[str, Any], str]] = []
        self.failures: list[KafkaError] = []
        self._topic = topic

    def send(self, row: dict[str, Any], key: bytes, value: bytes) -> None:
        """Send one row without waiting for the acknowledgement."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._add(row, error)

        while True:
            try:
                self.producer.produce(self._topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                self.producer.poll(0.1)
            except KafkaException as error:  # larger than the client accepts
                self._add(row, error.args[0])
                break
        self.producer.poll(0)

    def _add(self, row: dict[str, Any], error: KafkaError) -> None:
        if error.code() in _OF_SOME_RECORD:
            self.refused.append((row, error.str()))
        else:
            self.failures.append(error)


def _rejected(shape: Shape, row: dict[str, Any], reason: str) -> RejectedRow:
    cure = "raise max.message.bytes of the topic, or export fewer columns, and export again from the start"
    return RejectedRow(shape.key_text(list(row.values())), row[VERSION], "record_refused", reason[:MOST_REASON], cure)


@cache
def _producer(brokers: str) -> Producer:
    # The next task reuses the worker and its connection.
    return Producer(producer_config(brokers))
