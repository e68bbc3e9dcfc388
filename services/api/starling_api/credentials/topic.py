"""Adapter: the topic of one kind of credential: followed in the background, and written. Thread-safe."""

import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Producer

from starling_api.definitions.definition import Author
from starling_api.definitions.publisher import SERVICE
from starling_common.headers import record_headers
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.records.credentials import Credentials, fold_credentials
from starling_common.wire import Codec, Registry

_GIVE_UP_MS: Final = 5000
_REFRESH_SECONDS: Final = 5.0
_SCHEMA: Final = "CredentialChanged"


class CredentialTopic:
    """Follows the topic from `start` on. The last known credentials stay in use while the broker is unreachable."""

    def __init__(self, brokers: str, registry: Registry, topic: str) -> None:
        self._topic = topic
        self._registry = registry
        self._config = producer_config(brokers, **{"linger.ms": 0, "message.timeout.ms": _GIVE_UP_MS})
        self._lock = threading.Lock()
        self._opened: tuple[Producer, Codec] | None = None
        self.followed = FollowedTopic[Credentials]((brokers, topic), self._codec, Credentials, fold_credentials)

    def refresh(self) -> Credentials:
        """Return the credentials with every record written before this call. Raises: BrokerUnavailable."""
        return self.followed.refresh(_REFRESH_SECONDS)

    def publish(self, key: bytes, record: Mapping[str, Any] | None, author: Author) -> None:
        """Write one record, or a tombstone. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        with self._lock:
            if self._opened is None:
                self._opened = (Producer(self._config), self._codec())
            producer, codec = self._opened
            value = None if record is None else codec.encode(record)
        headers = record_headers(author.correlation_id, SERVICE, author.traceparent)
        produce_and_wait(producer, self._topic, key=key, value=value, headers=headers)

    def _codec(self) -> Codec:
        return self._registry.codec(self._topic, _SCHEMA)
