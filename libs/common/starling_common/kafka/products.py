"""Adapter: publishes products to `catalog.products`; the normalizer joins them into events."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topics import PRODUCTS
from starling_common.time.instants import wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Registry

_NOTHING: Final = {"category": None, "price": None, "brand": None, "name": None}
_FLUSH_TIMEOUT_SECONDS: Final = 60.0


class ProductFeed:
    """Publishes with acks=all. The last record of a product id counts, so a repetition has no effect."""

    def __init__(self, brokers: str, registry_url: str, produced_by: str) -> None:
        """Raises: SchemaMissing, RegistryUnavailable."""
        self._codec = Registry(registry_url).codec(PRODUCTS, "ProductListed")
        self._producer = Producer(producer_config(brokers))
        self._produced_by = produced_by
        self._failures: list[KafkaError] = []

    def publish(self, workspace: str, product_id: str, fields: Mapping[str, Any] | None, correlation_id: str | None = None) -> None:
        """Publish a product without waiting. `fields`: `category`, `price`, `brand`, `name`; None: it is no longer listed."""
        key, value = record_key(workspace, product_id), None
        if fields is not None:
            listed = {"workspace": workspace, "product_id": product_id, "listed_at": wall_clock_ms()}
            value = self._codec.encode({**_NOTHING, **fields, **listed})
        headers = record_headers(correlation_id or key.decode(), self._produced_by)
        while True:
            try:
                self._producer.produce(PRODUCTS, value, key, headers=headers, on_delivery=self._delivered)
            except BufferError:  # The local queue is full: poll until the broker acknowledges some.
                self._producer.poll(0.5)
            else:
                self._producer.poll(0)
                return

    def wait(self) -> None:
        """Wait until the broker has acknowledged every product. Raises: BrokerUnavailable."""
        left = self._producer.flush(_FLUSH_TIMEOUT_SECONDS)
        failures, self._failures = self._failures, []
        if left or failures:
            raise BrokerUnavailable(f"{PRODUCTS}: {failures[0].str() if failures else 'the broker did not acknowledge in time'}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failures.append(error)
