"""Adapter: reads and writes `stream.clock`, which advances stream time; one record for each partition."""

import uuid

from confluent_kafka import KafkaError, Producer

from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import CLOCK, load_catalogue
from starling_common.time.instants import LATEST_MS, parse_instant, wall_clock_micros
from starling_common.values import EpochMs
from starling_common.wire import Codec, Registry
from starling_local.errors import NotPossible

_TIMEOUT_SECONDS = 30.0


def parse_point(text: str) -> EpochMs:
    """Return an instant in ISO 8601 or epoch milliseconds. Raises NotPossible for any other text."""
    try:
        if not text.lstrip("-").isdigit():
            return parse_instant(text)
        if 0 <= int(text) <= LATEST_MS:
            return EpochMs(int(text))
    except ValueError as error:
        raise NotPossible(str(error)) from error
    raise NotPossible(f"{text} is outside the years 1970 to 9999, as epoch milliseconds")


class StreamClock:
    """Reads and advances stream time. Methods raise BrokerUnavailable, SchemaMissing, RegistryUnavailable."""

    def __init__(self, brokers: str, registry_url: str) -> None:
        """Store the addresses; no connection is opened."""
        self._brokers = brokers
        self._registry_url = registry_url

    def reached(self) -> EpochMs | None:
        """Return the latest instant that all partitions have reached; None if a partition has no record."""
        latest: dict[int, int] = {}
        codec = self._codec()
        for message in read_topic(self._brokers, CLOCK):
            number, instant = message.partition() or 0, codec.decode(message.value() or b"")["instant"]
            latest[number] = max(latest.get(number, 0), instant)
        return EpochMs(min(latest.values())) if len(latest) == _partitions() else None

    def advance(self, instant: EpochMs) -> None:
        """Publish one record to each partition; return once the broker has acknowledged all of them."""
        codec, producer = self._codec(), Producer(producer_config(self._brokers))
        correlation = str(uuid.uuid4())
        received_at = wall_clock_micros()
        value = codec.encode({"received_at": received_at, "instant": instant, "correlation_id": correlation})
        failures: list[KafkaError] = []
        for number in range(_partitions()):
            producer.produce(
                CLOCK,
                value,
                partition=number,
                timestamp=received_at // 1000,
                headers=record_headers(correlation, "starling-local"),
                on_delivery=lambda error, _message: failures.append(error) if error else None,
            )
        if producer.flush(_TIMEOUT_SECONDS) or failures:
            raise BrokerUnavailable(f"{CLOCK}: {failures[0].str() if failures else 'the broker did not acknowledge'}; run it again")

    def _codec(self) -> Codec:
        return Registry(self._registry_url).codec(CLOCK, "ClockAdvanced")


def _partitions() -> int:
    return load_catalogue().topics[CLOCK].partitions
