"""Adapter: publishes outcomes, retries, dead letters and disabled targets."""

import json
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.failures import poison
from starling_common.headers import Headers, record_headers
from starling_common.kafka.clients import RECORD_REFUSED, BrokerUnavailable
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter, dead_letter_headers, source_record
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Codec, Record, Registry
from starling_delivery.policy import Request, Step
from starling_delivery.settings import Settings
from starling_delivery.targets import Target, Targets

PRODUCED_BY = "delivery"

_MAX_UNENCODED_BYTES: Final = 1024 * 1024
"""Limit of the value of a dead letter whose request cannot be encoded."""


class Outbox:
    """Publishes records asynchronously; `flush` waits for their acknowledgement."""

    def __init__(self, settings: Settings, producer: Producer, registry: Registry, targets: Targets, metrics: Metrics) -> None:
        """Raises: SchemaMissing, RegistryUnavailable."""
        self._settings = settings
        self._producer = producer
        self._targets = targets
        self._reported = registry.codec(settings.outcome_topic, "DeliveryReported")
        self._retry = registry.codec(settings.retry_topic, "DeliveryRequested")
        self._dead = registry.codec(settings.dead_letter_topic, "DeadLetter")
        self._definition = registry.codec(settings.definitions_topic, "DefinitionChanged")
        self._attempts = metrics.counter("starling_delivery_attempts_total")
        self._refused = metrics.counter("starling_delivery_refused_total")
        self._failures: list[str] = []
        self._unwritten: list[tuple[Request, KafkaError]] = []
        """The requests of records that the broker refuses, each with the error."""

    def record(self, request: Request, step: Step) -> None:
        """Publish the outcome of one step, with its retry, dead letter or disabled target."""
        self._attempts.labels(request["channel"], step.outcome).inc()
        key = record_key(request["workspace"], request["user_id"])
        self._write(self._settings.outcome_topic, self._reported, key, _report(request, step), request)
        if step.retry is not None:
            self._write(self._settings.retry_topic, self._retry, key, dict(step.retry), request)
        if step.dead is not None:
            self._bury(self._undelivered(request), Refused("not_delivered", f"{request['address']}: {step.dead}"))
        if step.disable:
            self._disable(request, step.detail or "")

    def refuse(self, request: Request, why: Refused) -> None:
        """Publish the dead letter of a request that cannot be processed."""
        self._bury(self._undelivered(request), why)

    def bury(self, message: Message, why: Refused) -> None:
        """Publish a record that cannot be decoded to the dead letters, unchanged."""
        self._bury(source_record(message), why)

    def flush(self) -> None:
        """Wait until the broker has acknowledged every record. Raises: BrokerUnavailable; the caller must then not commit."""
        left = self._producer.flush(60)
        unwritten, self._unwritten = self._unwritten, []
        for request, error in unwritten:
            self.refuse(request, poison(KafkaException(error)))
        left += self._producer.flush(60) if unwritten else 0
        failures, self._failures = self._failures, []
        if left or failures:
            raise BrokerUnavailable(f"{left} records unsent, {len(failures)} failed: {failures[:1]}")

    def _disable(self, request: Request, why: str) -> None:
        target = self._targets.find(request["workspace"], request["target_key"])
        if target is None or target.disabled:
            return
        record = _disabled(target, why, request["correlation_id"])
        self._targets.apply(record)  # takes effect in this process now, in others when they read the topic
        key = record_key(target.workspace, target.key)
        self._write(self._settings.definitions_topic, self._definition, key, record, request)

    def _undelivered(self, request: Request) -> SourceRecord:
        # The request may be in no topic, at its first attempt; a replay writes it to the topic of retries.
        key, headers = record_key(request["workspace"], request["user_id"]), record_headers(request["correlation_id"], PRODUCED_BY)
        try:
            value = self._retry.encode(request)
        except ValueError:  # a target or a trait has text that is no UTF-8
            value = json.dumps(dict(request)).encode()[:_MAX_UNENCODED_BYTES]
        return SourceRecord(self._settings.retry_topic, -1, -1, key, value, headers, request["received_at"], request)

    def _bury(self, source: SourceRecord, refused: Refused) -> None:
        letter, headers = dead_letter(PRODUCED_BY, source, refused, wall_clock_ms()), dead_letter_headers(PRODUCED_BY, source)
        self._produce(self._settings.dead_letter_topic, self._dead, source.key or b"", letter, headers)
        self._refused.labels(refused.code).inc()

    def _write(self, topic: str, codec: Codec, key: bytes, record: Record, request: Request) -> None:
        self._produce(topic, codec, key, record, record_headers(request["correlation_id"], PRODUCED_BY), request)

    def _produce(
        self, topic: str, codec: Codec, key: bytes, record: Record, headers: Headers, request: Request | None = None
    ) -> None:
        # The timestamp is the arrival of the item that caused the record; of a definition, the time of its change.
        stamp = int(record.get("received_at") or record["recorded_at"]) // 1000
        value = codec.encode(record)
        delivered = partial(self._delivered, request)
        try:
            try:
                self._producer.produce(topic, value, key, timestamp=stamp, headers=headers, on_delivery=delivered)
            except BufferError:  # the client's queue is full
                self._producer.flush(60)
                self._producer.produce(topic, value, key, timestamp=stamp, headers=headers, on_delivery=delivered)
        except BufferError as cause:
            raise BrokerUnavailable(f"{topic}: the queue of the client is full") from cause
        except KafkaException as cause:
            if request is None or cause.args[0].code() not in RECORD_REFUSED:
                raise
            self._unwritten.append((request, cause.args[0]))
        self._producer.poll(0)

    def _delivered(self, request: Request | None, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        if request is not None and error.code() in RECORD_REFUSED:
            self._unwritten.append((request, error))
        else:
            self._failures.append(f"{message.topic()}: {error.str()}")


def _report(request: Request, step: Step) -> dict[str, Any]:
    return {
        "received_at": request["received_at"],
        "workspace": request["workspace"],
        "user_id": request["user_id"],
        "event_id": deterministic_id(request["delivery_id"], request["attempt"], step.outcome),
        "delivery_id": request["delivery_id"],
        "channel": request["channel"],
        "target_key": request["target_key"],
        "outcome": step.outcome,
        "attempt": request["attempt"],
        "status_code": step.status_code,
        "detail": step.detail,
        "segment_key": request["segment_key"],
        "event_time": wall_clock_ms(),
        "correlation_id": request["correlation_id"],
    }


def _disabled(target: Target, why: str, correlation_id: str) -> dict[str, Any]:
    document = dict(target.document) | {"disabled": True, "disabled_because": why}
    return {
        "recorded_at": wall_clock_micros(),
        "event_id": deterministic_id("disabled", target.workspace, target.key, target.version),
        "workspace": target.workspace,
        "kind": "webhook",
        "key": target.key,
        "version": target.version,
        "action": "DISABLED",
        "document": json.dumps(document),
        "actor": PRODUCED_BY,
        "correlation_id": correlation_id,
    }
