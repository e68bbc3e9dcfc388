"""Adapter: publishes definitions to their topics. Thread-safe."""

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import Producer

from starling_api.definitions.definition import Change
from starling_api.definitions.kinds.kinds import CAMPAIGNS, EVENT_TYPES, LISTS, POLICIES, SEGMENTS, TARGETS, TRAITS, VIEWS, WEBHOOKS
from starling_api.definitions.repository import to_json
from starling_common.headers import record_headers
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.values import record_key
from starling_common.wire import Codec, Registry

SERVICE: Final = "api"

_KINDS: Final = (SEGMENTS, TRAITS, WEBHOOKS, LISTS, CAMPAIGNS, TARGETS, POLICIES, EVENT_TYPES, VIEWS)
_TOPICS: Final = {kind.name: kind.topic for kind in _KINDS}

_GIVE_UP_MS: Final = 5000
"""Time-out of a publish. It is well below `ABANDONED_MICROS` (commands.py), at which another process publishes the claim."""


class Publisher:
    """Publishes definitions with acks=all."""

    def __init__(self, brokers: str, registry: Registry, awaits_backfill: Callable[[Change], bool]) -> None:
        """Connect at the first change. `awaits_backfill`: whether a change takes effect only after a backfill."""
        self._config = producer_config(brokers, **{"linger.ms": 0, "message.timeout.ms": _GIVE_UP_MS})
        self._registry = registry
        self._awaits_backfill = awaits_backfill
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._codecs: dict[str, Codec] = {}

    def publish(self, change: Change, traceparent: str | None) -> None:
        """Publish a change and wait for the acknowledgement. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        topic = _TOPICS[change.kind]
        record = {**change.record(to_json(change.document)), "awaits_backfill": self._awaits_backfill(change)}
        with self._lock:
            producer = self._opened()
            value = self._codec(topic).encode(record)
        headers = record_headers(change.correlation_id, SERVICE, traceparent)
        produce_and_wait(producer, topic, key=record_key(change.workspace, change.key), value=value, headers=headers)

    def _opened(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._config)
        return self._producer

    def _codec(self, topic: str) -> Codec:
        if topic not in self._codecs:
            self._codecs[topic] = self._registry.codec(topic, "DefinitionChanged")
        return self._codecs[topic]
