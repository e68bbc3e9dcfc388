"""Adapter: publishes added and removed list members to `lists.membership`. Thread-safe."""

import threading
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from starling_api.definitions.publisher import SERVICE
from starling_api.lists.lists import ListChange
from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topics import LIST_MEMBERSHIP
from starling_common.partitioning import partition_of
from starling_common.values import record_key
from starling_common.wire import Codec, Registry

_GIVE_UP_SECONDS: Final = 30.0


class ListFeed:
    """Publishes with acks=all. A record's partition is that of the user's profile; its key contains user and list."""

    def __init__(self, brokers: str, registry: Registry, partitions: int) -> None:
        """Connect at the first upload. `partitions`: number of partitions of the topics keyed by profile."""
        self._config = producer_config(brokers, **{"message.timeout.ms": int(_GIVE_UP_SECONDS * 1000)})
        self._registry = registry
        self._partitions = partitions
        self._lock = threading.Lock()
        self._opened: tuple[Producer, Codec] | None = None

    def publish(self, change: ListChange) -> None:
        """Publish all records and wait for the acknowledgements. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        headers = record_headers(change.correlation_id, SERVICE)
        with self._lock:
            producer, codec = self._open()
            for user in change.users:
                profile = record_key(change.workspace, user)
                producer.produce(
                    LIST_MEMBERSHIP,
                    codec.encode(_record(change, user)),
                    list_record_key(profile, change.key),
                    partition_of(profile, self._partitions),
                    on_delivery=delivered,
                    headers=headers,
                )
            unsent = producer.flush(_GIVE_UP_SECONDS)
        if unsent or failures:
            reason = failures[0].str() if failures else "no acknowledgement"
            raise BrokerUnavailable(f"{LIST_MEMBERSHIP}: {unsent + len(failures)} records were not acknowledged: {reason}")

    def _open(self) -> tuple[Producer, Codec]:
        if self._opened is None:
            codec = self._registry.codec(LIST_MEMBERSHIP, "ListMembershipChanged")
            self._opened = (Producer(self._config), codec)
        return self._opened


def list_record_key(profile_key: bytes, list_key: str) -> bytes:
    """Return the record key of a user and list. Compaction keeps the last record of each pair."""
    return b"%b/%b" % (profile_key, list_key.encode())


def _record(change: ListChange, user: str) -> dict[str, object]:
    return {
        "received_at": change.received_at_micros,
        "workspace": change.workspace,
        "user_id": user,
        "list_key": change.key,
        "on_list": change.on_list,
        "correlation_id": change.correlation_id,
    }
