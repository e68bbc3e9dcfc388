"""Adapter: the headers of the few records that are refused, read by a worker once more, so that all others need not bring them.

Bringing them for every record takes 4 CPU microseconds each, as much as decoding it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from starling_common.headers import headers_of
from starling_common.kafka import BrokerUnavailable, consumer_config

_AHEAD: Final = 10_000
"""Records whose headers are read together: bad ones rarely come alone."""
_PATIENCE_SECONDS: Final = 60.0


class HeadersAgain:
    """Headers by place. Not for use by several threads at once."""

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._read: dict[tuple[str, int], Mapping[int, Sequence[Mapping[str, Any]]]] = {}

    def of(self, topic: str, partition: int, offset: int) -> Sequence[Mapping[str, Any]]:
        """As `sources.RECORDS` has them; none for a record that the broker has thrown away. Raises: BrokerUnavailable."""
        found = self._read.get((topic, partition), {})
        if offset not in found:
            found = self._read[topic, partition] = self._headers(topic, partition, range(offset, offset + _AHEAD))
        return found.get(offset, ())

    def _headers(self, topic: str, partition: int, span: range) -> dict[int, Sequence[Mapping[str, Any]]]:
        found: dict[int, Sequence[Mapping[str, Any]]] = {}
        consumer = Consumer(consumer_config(self._brokers, "starling-headers-again", **{"enable.partition.eof": True}))
        try:
            consumer.assign([TopicPartition(topic, partition, span.start)])
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < deadline:
                for message in consumer.consume(_AHEAD, 0.2):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
                            return found
                        continue  # what passes is tried again by the client; what does not, runs into the deadline
                    if (offset := message.offset() or 0) not in span:
                        return found
                    found[offset] = [{"key": key, "value": value} for key, value in headers_of(message)]
                if len(found) == len(span):
                    return found
        finally:
            consumer.close()
        raise BrokerUnavailable(f"{topic} {partition}: records from offset {span.start} on could not be read again")
