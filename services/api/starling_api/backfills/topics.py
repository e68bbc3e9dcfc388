"""Adapter: the size of the event history, and the requests to backfill runs. Thread-safe."""

import threading
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer

from starling_api.definitions.publisher import SERVICE
from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, consumer_config, produce_and_wait, producer_config
from starling_common.kafka.topic_range import spans
from starling_common.kafka.topics import BACKFILLS, BEHAVIOUR
from starling_common.values import deterministic_id
from starling_common.wire import Record, Registry
from starling_rules.ledger import report_key

_TIMEOUT_SECONDS: Final = 10.0
_FRESH_SECONDS: Final = 10.0


class BackfillTopics:
    """Connects at the first call."""

    def __init__(self, brokers: str, registry: Registry) -> None:
        self._brokers = brokers
        self._registry = registry
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._largest: tuple[float, int] | None = None

    def largest_partition(self) -> int:
        """Return the number of records in the largest partition of `events.behaviour`, by offsets. Raises: BrokerUnavailable."""
        with self._lock:
            if self._largest is None or time.monotonic() - self._largest[0] > _FRESH_SECONDS:
                self._largest = (time.monotonic(), self._read_largest())
            return self._largest[1]

    def publish(self, record: Record) -> None:
        """Publish one `BackfillReported`. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        with self._lock:
            if self._producer is None:
                self._producer = Producer(producer_config(self._brokers, **{"linger.ms": 0}))
            producer = self._producer
        value = self._registry.codec(BACKFILLS, "BackfillReported").encode(record)
        headers = record_headers(deterministic_id("backfill", record["run"]), SERVICE)
        produce_and_wait(producer, BACKFILLS, key=report_key(record), value=value, headers=headers)

    def _read_largest(self) -> int:
        consumer = Consumer(consumer_config(self._brokers, "starling-api-backfill"))
        try:
            found = spans(consumer, BEHAVIOUR, _TIMEOUT_SECONDS)
        except KafkaException as cause:
            raise BrokerUnavailable(f"{BEHAVIOUR}: {cause}") from cause
        finally:
            consumer.close()
        return max((high - low for low, high in found.values()), default=0)
