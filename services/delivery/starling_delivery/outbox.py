"""Adapter: publishes outcomes, retries, dead letters and disabled targets."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.failures import poison
from starling_common.headers import Headers, record_headers
from starling_common.kafka.clients import RECORD_REFUSED, BrokerUnavailable
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter, dead_letter_headers, source_record
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import record_timestamp_ms, wall_clock_micros, wall_clock_ms
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Codec, Record, Registry
from starling_delivery.policy import Request, Step
from starling_delivery.settings import Settings
from starling_delivery.targets import Target, Targets

PRODUCED_BY = "delivery"

_FLUSH_SECONDS: Final = 60.0

_MAX_UNENCODED_BYTES: Final = 1024 * 1024
"""Limit of the value of a dead letter whose request cannot be encoded."""


@dataclass(slots=True)
class _Receipt:
    """Calls `stored` after the broker has acknowledged all records of a message."""

    left: int
    stored: Callable[[], None]

    def acknowledged(self) -> None:
        self.left -= 1
        if not self.left:
            self.stored()


@dataclass(frozen=True, slots=True)
class _Output:
    """An encoded record. `request`: the request whose dead letter replaces the record if the broker refuses it."""

    topic: str
    key: bytes
    value: bytes
    stamp_ms: int
    headers: Headers
    request: Request | None


class Outbox:
    """Publishes records asynchronously. `check` receives their acknowledgements."""

    def __init__(self, settings: Settings, producer: Producer, registry: Registry, targets: Targets, metrics: Metrics) -> None:
        """Raises: SchemaMissing, RegistryUnavailable."""
        self._settings = settings
        self._producer = producer
        self._targets = targets
        self._reported = registry.codec(settings.outcome_topic, "DeliveryReported")
        self._retry = registry.codec(settings.retry_topic, "DeliveryRequested")
        self._tiers = {
            seconds: (topic, registry.codec(topic, "DeliveryRequested")) for seconds, topic in settings.tier_topics.items()
        }
        self._dead = registry.codec(settings.dead_letter_topic, "DeadLetter")
        self._definition = registry.codec(settings.definitions_topic, "DefinitionChanged")
        self._attempts = metrics.counter("starling_delivery_attempts_total")
        self._refused = metrics.counter("starling_delivery_refused_total")
        self._flushing = threading.Lock()
        self._failures: list[str] = []
        self._unwritten: list[tuple[Request, KafkaError, _Receipt]] = []
        """The requests of records that the broker refuses, each with the error."""

    def record(self, request: Request, step: Step, stored: Callable[[], None]) -> None:
        """Publish the outcome of one step, with its retry, dead letter or disabled target."""
        self._send(self._outputs(request, step), stored)
        if step.outcome is not None and not step.postponed:
            self._attempts.labels(request["channel"], step.outcome).inc()

    def refuse(self, request: Request, why: Refused, stored: Callable[[], None]) -> None:
        """Publish the dead letter of a request that cannot be processed."""
        self._send([self._letter(self._undelivered(request), why)], stored)

    def bury(self, message: Message, why: Refused, stored: Callable[[], None]) -> None:
        """Publish a record that cannot be decoded to the dead letters, unchanged."""
        self._send([self._letter(source_record(message), why)], stored)

    def check(self) -> None:
        """Receive the acknowledgements that have arrived. Raises: BrokerUnavailable if a record was not stored."""
        self._producer.poll(0)
        unwritten, self._unwritten = self._unwritten, []
        for request, error, receipt in unwritten:
            self._produce(self._letter(self._undelivered(request), poison(KafkaException(error))), receipt)
        if self._failures:
            raise BrokerUnavailable(f"{len(self._failures)} records failed: {self._failures[:1]}")

    def flush(self) -> None:
        """Wait until the broker has acknowledged every record. Several threads may call it. Raises: BrokerUnavailable."""
        with self._flushing:
            left = self._producer.flush(_FLUSH_SECONDS)
            while self._unwritten and not left:
                self.check()
                left = self._producer.flush(_FLUSH_SECONDS)
            self.check()
        if left:
            raise BrokerUnavailable(f"{left} records unsent")

    def _outputs(self, request: Request, step: Step) -> list[_Output]:
        key = record_key(request["workspace"], request["user_id"])
        outputs = []
        if step.outcome is not None:
            report = _report(request, step, step.outcome)
            outputs.append(self._output(self._settings.outcome_topic, self._reported, key, report, request))
        if step.retry is not None:
            topic, codec = self._tiers[step.tier_seconds]
            outputs.append(self._output(topic, codec, key, dict(step.retry), request))
        if step.dead is not None:
            why = Refused("not_delivered", f"{request['address']}: {step.dead}")
            outputs.append(self._letter(self._undelivered(request), why))
        if step.disable:
            outputs += self._disabled(request, step.detail or "")
        return outputs

    def _disabled(self, request: Request, why: str) -> list[_Output]:
        target = self._targets.find(request["workspace"], request["target_key"])
        if target is None or target.disabled:
            return []
        record = _disabled(target, why, request["correlation_id"])
        output = self._output(
            self._settings.definitions_topic, self._definition, record_key(target.workspace, target.key), record, request
        )
        self._targets.apply(record)  # takes effect in this process now, in others when they read the topic
        return [output]

    def _undelivered(self, request: Request) -> SourceRecord:
        # The request may be in no topic, at its first attempt; a replay writes it to the topic of retries.
        key, headers = record_key(request["workspace"], request["user_id"]), record_headers(request["correlation_id"], PRODUCED_BY)
        try:
            value = self._retry.encode(request)
        except ValueError:  # a target or a trait has text that is no UTF-8
            value = json.dumps(dict(request)).encode()[:_MAX_UNENCODED_BYTES]
        return SourceRecord(self._settings.retry_topic, -1, -1, key, value, headers, request["received_at"], request)

    def _letter(self, source: SourceRecord, refused: Refused) -> _Output:
        letter, headers = dead_letter(PRODUCED_BY, source, refused, wall_clock_ms()), dead_letter_headers(PRODUCED_BY, source)
        value = self._dead.encode(letter)
        self._refused.labels(refused.code).inc()
        return _Output(self._settings.dead_letter_topic, source.key or b"", value, _stamp_ms(letter), headers, None)

    def _output(self, topic: str, codec: Codec, key: bytes, record: Record, request: Request) -> _Output:
        headers = record_headers(request["correlation_id"], PRODUCED_BY)
        return _Output(topic, key, codec.encode(record), _stamp_ms(record), headers, request)

    def _send(self, outputs: Sequence[_Output], stored: Callable[[], None]) -> None:
        receipt = _Receipt(len(outputs), stored)
        for output in outputs:
            self._produce(output, receipt)

    def _produce(self, output: _Output, receipt: _Receipt) -> None:
        delivered = partial(self._delivered, output.request, receipt)
        more: dict[str, Any] = {"timestamp": output.stamp_ms, "headers": output.headers, "on_delivery": delivered}
        try:
            try:
                self._producer.produce(output.topic, output.value, output.key, **more)
            except BufferError:  # the client's queue is full
                self._producer.flush(_FLUSH_SECONDS)
                self._producer.produce(output.topic, output.value, output.key, **more)
        except BufferError as cause:
            raise BrokerUnavailable(f"{output.topic}: the queue of the client is full") from cause
        except KafkaException as cause:
            if output.request is None or cause.args[0].code() not in RECORD_REFUSED:
                raise
            self._unwritten.append((output.request, cause.args[0], receipt))

    def _delivered(self, request: Request | None, receipt: _Receipt, error: KafkaError | None, message: Message) -> None:
        if error is None:
            receipt.acknowledged()
        elif request is not None and error.code() in RECORD_REFUSED:
            self._unwritten.append((request, error, receipt))
        else:
            self._failures.append(f"{message.topic()}: {error.str()}")


def _stamp_ms(record: Record) -> int:
    """Return the timestamp of a record: the arrival of the item that caused it; of a definition, the time of its change."""
    return record_timestamp_ms(record["received_at"] if "received_at" in record else record["recorded_at"], wall_clock_ms())


def _report(request: Request, step: Step, outcome: str) -> dict[str, Any]:
    return {
        "received_at": request["received_at"],
        "workspace": request["workspace"],
        "user_id": request["user_id"],
        "event_id": _report_id(request, step, outcome),
        "delivery_id": request["delivery_id"],
        "channel": request["channel"],
        "target_key": request["target_key"],
        "outcome": outcome,
        "attempt": request["attempt"],
        "status_code": step.status_code,
        "detail": step.detail,
        "segment_key": request["segment_key"],
        "event_time": wall_clock_ms(),
        "correlation_id": request["correlation_id"],
    }


def _report_id(request: Request, step: Step, outcome: str) -> str:
    # A postponement is no attempt: its report differs from that of the attempt which follows.
    return deterministic_id(request["delivery_id"], request["attempt"], "POSTPONED" if step.postponed else outcome)


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
