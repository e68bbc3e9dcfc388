"""Adapter: publishes the records of the audit log. Thread-safe."""

import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from starling_api.definitions.publisher import SERVICE
from starling_common.headers import record_headers
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.topics import AUDIT
from starling_common.values import record_key
from starling_common.wire import Codec, Registry

SCHEMA: Final = "AuditRecorded"
_GIVE_UP_MS: Final = 5000


class AuditTopic:
    """Publishes with acks=all. It connects at the first record."""

    def __init__(self, brokers: str, registry: Registry) -> None:
        self._config = producer_config(brokers, **{"linger.ms": 0, "message.timeout.ms": _GIVE_UP_MS})
        self._registry = registry
        self._lock = threading.Lock()
        self._opened: tuple[Producer, Codec] | None = None

    def publish(self, record: Mapping[str, Any]) -> None:
        """Publish one record and wait for the acknowledgement. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        with self._lock:
            if self._opened is None:
                self._opened = (Producer(self._config), self._registry.codec(AUDIT, SCHEMA))
            producer, codec = self._opened
            value = codec.encode(record)
        key = record_key(record["workspace"], f"{record['resource']}/{record['key']}")
        headers = record_headers(record["correlation_id"], SERVICE)
        produce_and_wait(producer, AUDIT, key=key, value=value, headers=headers)
