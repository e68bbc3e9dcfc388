"""Adapter: who was put on a list or taken off it, to `lists.membership`. Safe for use by several threads."""

import threading
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from starling_api.definitions.publisher import SERVICE
from starling_api.lists.lists import Told
from starling_common.headers import record_headers
from starling_common.kafka import BrokerUnavailable, producer_config
from starling_common.partitioning import partition_of
from starling_common.topics import LIST_MEMBERSHIP
from starling_common.values import record_key
from starling_common.wire import Codec, Registry

_GIVE_UP_SECONDS: Final = 30.0


class ListFeed:
    """Writes with acks=all. A record lies in its user's partition, and its key is the user's and the list's."""

    def __init__(self, brokers: str, registry: Registry, partitions: int) -> None:
        """Opens nothing; the first upload does. `partitions`: of every topic keyed by profile."""
        self._config = producer_config(brokers, **{"message.timeout.ms": int(_GIVE_UP_SECONDS * 1000)})
        self._registry = registry
        self._partitions = partitions
        self._lock = threading.Lock()
        self._opened: tuple[Producer, Codec] | None = None

    def tell(self, told: Told) -> None:
        """Returns once the broker has all of it. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        headers = record_headers(told.correlation_id, SERVICE)
        with self._lock:
            producer, codec = self._open()
            for user in told.users:
                profile = record_key(told.workspace, user)
                producer.produce(
                    LIST_MEMBERSHIP,
                    codec.encode(_record(told, user)),
                    list_record_key(profile, told.key),
                    partition_of(profile, self._partitions),
                    on_delivery=delivered,
                    headers=headers,
                )
            left = producer.flush(_GIVE_UP_SECONDS)
        if left or failures:
            reason = failures[0].str() if failures else "no acknowledgement"
            raise BrokerUnavailable(f"{LIST_MEMBERSHIP}: {left + len(failures)} records did not get there: {reason}")

    def _open(self) -> tuple[Producer, Codec]:
        if self._opened is None:
            codec = self._registry.codec(LIST_MEMBERSHIP, "ListMembershipChanged")
            self._opened = (Producer(self._config), codec)
        return self._opened


def list_record_key(profile_key: bytes, list_key: str) -> bytes:
    """One key for each user and list, so that compaction keeps the last word on each."""
    return b"%b/%b" % (profile_key, list_key.encode())


def _record(told: Told, user: str) -> dict[str, object]:
    return {
        "received_at": told.received_at_micros,
        "workspace": told.workspace,
        "user_id": user,
        "list_key": told.key,
        "on_list": told.on_list,
        "correlation_id": told.correlation_id,
    }
