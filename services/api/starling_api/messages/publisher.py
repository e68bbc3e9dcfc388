"""Adapter: publishes explicit consent and suppressed addresses. Thread-safe."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from starling_api.definitions.definition import Author
from starling_api.definitions.publisher import SERVICE
from starling_api.messages.bodies import RequestedConsent, RequestedSuppressions
from starling_campaigns.channels import SMS
from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topics import CONSENT, SUPPRESSIONS, request_topic
from starling_common.partitioning import partition_of
from starling_common.records.suppressions import BY_PERSON, suppression_key
from starling_common.values import record_key
from starling_common.wire import Codec, Registry
from starling_policy import address_digest
from starling_policy.person import UPLOADED

_GIVE_UP_SECONDS: Final = 30.0
_TEST_MS: Final = 3_600_000
"""How long a test message waits for a channel that does not run."""
_API: Final = "api"
_SCHEMAS: Final = {CONSENT: "ConsentChanged", SUPPRESSIONS: "AddressSuppressed"}
Addressed = tuple[bytes, Mapping[str, Any]]
"""The key and the value of a record."""


class MessageTopics:
    """Publishes with acks=all. The answer to an unsubscription is sent after that."""

    def __init__(self, brokers: str, registry: Registry, partitions: int, now_micros: Callable[[], int]) -> None:
        """Connect at the first record. `partitions`: number of partitions of the topics keyed by profile."""
        self._config = producer_config(brokers, **{"linger.ms": 1, "message.timeout.ms": int(_GIVE_UP_SECONDS * 1000)})
        self._registry = registry
        self._partitions = partitions
        self._now_micros = now_micros
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._codecs: dict[str, Codec] = {}

    def consent(self, author: Author, user_id: str, change: RequestedConsent) -> int:
        """Publish a change of consent; return its instant, epoch ms.

        Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing.
        """
        now, profile = self._now_micros(), record_key(author.workspace, user_id)
        record = {**_common(author, now), "user_id": user_id, "source": _API, **change._asdict()}
        key = b"%b/%b/%b" % (profile, change.channel.encode(), (change.purpose or "").encode())
        self._publish(CONSENT, [(key, record)], author, partition_of(profile, self._partitions))
        return now // 1000

    def suppressions(self, author: Author, channel: str, wanted: RequestedSuppressions) -> None:
        """Publish the suppression of addresses, or its end. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        now, kind = self._now_micros(), UPLOADED if wanted.suppressed else None
        digests = dict.fromkeys(address_digest(address) for address in wanted.addresses)
        # The end of a suppression is also that of STOP, for installations that no provider informs of START.
        sides = (False, True) if kind is None and channel == SMS else (False,)
        records = [
            (
                suppression_key(author.workspace, channel, digest, by_person=by_person),
                {**_common(author, now), "channel": channel, "digest": digest, "kind": kind, BY_PERSON: by_person},
            )
            for digest in digests
            for by_person in sides
        ]
        self._publish(SUPPRESSIONS, records, author, 0)

    def test_messages(self, author: Author, channel: str, requests: Sequence[Mapping[str, Any]]) -> None:
        """Publish the requests of test messages for a channel. Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""
        now = self._now_micros()
        common = {
            **_common(author, now),
            "channel": channel,
            "payload": "",
            "attempt": 1,
            "first_attempt_at": now // 1000,
            "not_before": now // 1000,
            "last_error": None,
            "segment_key": None,
            "batch_limit": None,
            "sequence": 0,
            "device": None,
            "expires_at": now // 1000 + _TEST_MS,
            "is_test": True,
        }
        for request in requests:
            key = record_key(author.workspace, request["user_id"])
            record = {**common, **request, "context": json.dumps(request["context"], ensure_ascii=False)}
            self._publish(request_topic(channel), [(key, record)], author, partition_of(key, self._partitions))

    def _publish(self, topic: str, records: Iterable[Addressed], author: Author, partition: int) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        headers = record_headers(author.correlation_id, SERVICE, author.traceparent)
        with self._lock:
            producer, codec = self._opened(topic)
            for key, value in records:
                producer.produce(topic, codec.encode(value), key, partition, on_delivery=delivered, headers=headers)
            unsent = producer.flush(_GIVE_UP_SECONDS)
        if unsent or failures:
            reason = failures[0].str() if failures else "no acknowledgement"
            raise BrokerUnavailable(f"{topic}: {unsent + len(failures)} records were not acknowledged: {reason}")

    def _opened(self, topic: str) -> tuple[Producer, Codec]:
        if self._producer is None:
            self._producer = Producer(self._config)
        if topic not in self._codecs:
            self._codecs[topic] = self._registry.codec(topic, _SCHEMAS.get(topic, "DeliveryRequested"))
        return self._producer, self._codecs[topic]


def _common(author: Author, now_micros: int) -> dict[str, Any]:
    return {
        "received_at": now_micros,
        "workspace": author.workspace,
        "changed_at": now_micros // 1000,
        "correlation_id": author.correlation_id,
    }
