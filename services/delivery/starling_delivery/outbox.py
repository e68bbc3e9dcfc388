"""Adapter: publishes outcomes, retries, dead letters and disabled targets."""

import json
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from starling_common.headers import Headers, record_headers
from starling_common.kafka.clients import BrokerUnavailable
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
        self._failures: list[str] = []

    def record(self, request: Request, step: Step) -> None:
        """Publish the outcome of one step, with its retry, dead letter or disabled target."""
        self._attempts.labels(request["channel"], step.outcome).inc()
        key = record_key(request["workspace"], request["user_id"])
        self._write(self._settings.outcome_topic, self._reported, key, _report(request, step), request["correlation_id"])
        if step.retry is not None:
            self._write(self._settings.retry_topic, self._retry, key, dict(step.retry), request["correlation_id"])
        if step.dead is not None:
            self._bury(self._undelivered(request, key), Refused("not_delivered", f"{request['address']}: {step.dead}"))
        if step.disable:
            self._disable(request, step.detail or "")

    def bury(self, message: Message, code: str, why: str) -> None:
        """Publish a record that cannot be decoded to the dead letters, unchanged."""
        self._bury(source_record(message), Refused(code, why))

    def flush(self) -> None:
        """Wait until the broker has acknowledged every record. Raises: BrokerUnavailable; the caller must then not commit."""
        left = self._producer.flush(60)
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
        self._write(self._settings.definitions_topic, self._definition, key, record, request["correlation_id"])

    def _undelivered(self, request: Request, key: bytes) -> SourceRecord:
        # The request may be in no topic, at its first attempt; a replay writes it to the topic of retries.
        value, headers = self._retry.encode(request), record_headers(request["correlation_id"], PRODUCED_BY)
        return SourceRecord(self._settings.retry_topic, -1, -1, key, value, headers, request["received_at"], request)

    def _bury(self, source: SourceRecord, refused: Refused) -> None:
        letter, headers = dead_letter(PRODUCED_BY, source, refused, wall_clock_ms()), dead_letter_headers(PRODUCED_BY, source)
        self._produce(self._settings.dead_letter_topic, self._dead, source.key or b"", letter, headers)

    def _write(self, topic: str, codec: Codec, key: bytes, record: Record, correlation_id: str) -> None:
        self._produce(topic, codec, key, record, record_headers(correlation_id, PRODUCED_BY))

    def _produce(self, topic: str, codec: Codec, key: bytes, record: Record, headers: Headers) -> None:
        # The timestamp is the arrival of the item that caused the record; of a definition, the time of its change.
        stamp = int(record.get("received_at") or record["recorded_at"]) // 1000
        value = codec.encode(record)
        self._producer.produce(topic, value, key, timestamp=stamp, headers=headers, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
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
