"""Adapter: the records of a step: the report, the retry, and the dead letter, encoded."""

import json
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException

from starling_common.failures import poison
from starling_common.headers import Headers, record_headers
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter, dead_letter_headers
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import record_timestamp_ms, wall_clock_ms
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Codec, Record, RecordWriter, Registry
from starling_delivery.policy import Request, Step
from starling_policy import address_digest

PRODUCED_BY: Final = "delivery"

_MAX_UNENCODED_BYTES: Final = 1024 * 1024
"""Limit of the value of a dead letter whose request cannot be encoded."""


class Topics(Protocol):
    """The names of the topics. `tier_topics`: delay in seconds -> topic."""

    @property
    def outcome_topic(self) -> str:
        """The topic of the reports."""

    @property
    def retry_topic(self) -> str:
        """The topic to which a dead letter is replayed."""

    @property
    def tier_topics(self) -> dict[float, str]:
        """The tiers of the retries."""

    @property
    def dead_letter_topic(self) -> str:
        """The topic of the dead letters."""


@dataclass(frozen=True, slots=True)
class Output:
    """An encoded record. `request`: the request whose dead letter replaces the record if the broker refuses it."""

    topic: str
    key: bytes
    value: bytes
    stamp_ms: int
    headers: Headers
    request: Request | None


class Records:
    """Encodes the records of steps. One thread at a time."""

    def __init__(self, topics: Topics, registry: Registry, metrics: Metrics) -> None:
        """Raises: SchemaMissing, RegistryUnavailable."""
        self._topics = topics
        self._reported = RecordWriter(registry.codec(topics.outcome_topic, "DeliveryReported"))
        self._retry = registry.codec(topics.retry_topic, "DeliveryRequested")
        self._tiers = {
            seconds: (topic, registry.codec(topic, "DeliveryRequested")) for seconds, topic in topics.tier_topics.items()
        }
        self._dead = registry.codec(topics.dead_letter_topic, "DeadLetter")
        self._refused = metrics.counter("starling_delivery_refused_total")

    def of_step(self, request: Request, step: Step, traceparent: str | None = None) -> list[Output]:
        """Return the records of a step. `traceparent`: the trace context of the request; None begins a trace.

        Raises: ValueError for text that is no UTF-8.
        """
        key = record_key(request["workspace"], request["user_id"])
        outputs = []
        # The outcomes of a test are events of no one, and count nowhere.
        if step.outcome is not None and not request.get("is_test"):
            report = _report(request, step, step.outcome)
            outputs.append(output_of(self._topics.outcome_topic, self._reported(report), key, report, request, traceparent))
        if step.retry is not None:
            topic, codec = self._tiers[step.tier_seconds]
            outputs.append(output(topic, codec, key, dict(step.retry), request, traceparent))
        if step.dead is not None:
            outputs.append(self.letter_of(request, Refused("not_delivered", f"{request['address']}: {step.dead}")))
        return outputs

    def letter_of(self, request: Request, refused: Refused) -> Output:
        """Return the dead letter of a request."""
        return self.letter(self._undelivered(request), refused)

    def letter_instead(self, request: Request, error: KafkaException) -> Output:
        """Return the dead letter of a request of which the broker refuses a record."""
        return self.letter_of(request, poison(error))

    def letter(self, source: SourceRecord, refused: Refused) -> Output:
        """Return the dead letter of a record."""
        letter, headers = dead_letter(PRODUCED_BY, source, refused, wall_clock_ms()), dead_letter_headers(PRODUCED_BY, source)
        value = self._dead.encode(letter)
        self._refused.labels(refused.code).inc()
        return Output(self._topics.dead_letter_topic, source.key or b"", value, _stamp_ms(letter), headers, None)

    def _undelivered(self, request: Request) -> SourceRecord:
        # The request may be in no topic, at its first attempt; a replay writes it to the topic of retries.
        key, headers = record_key(request["workspace"], request["user_id"]), record_headers(request["correlation_id"], PRODUCED_BY)
        try:
            value = self._retry.encode(request)
        except ValueError:  # a target or a trait has text that is no UTF-8
            value = json.dumps(dict(request)).encode()[:_MAX_UNENCODED_BYTES]
        return SourceRecord(self._topics.retry_topic, -1, -1, key, value, headers, request["received_at"], request)


def output(topic: str, codec: Codec, key: bytes, record: Record, request: Request, traceparent: str | None = None) -> Output:
    """Return an encoded record of a request."""
    return output_of(topic, codec.encode(record), key, record, request, traceparent)


def output_of(topic: str, value: bytes, key: bytes, record: Record, request: Request, traceparent: str | None) -> Output:
    """Return a record of a request. `value`: the encoded `record`."""
    headers = record_headers(request["correlation_id"], PRODUCED_BY, traceparent)
    return Output(topic, key, value, _stamp_ms(record), headers, request)


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
        "campaign": request.get("campaign"),
        "soft_bounce": address_digest(request["address"]) if step.soft_bounce else None,
    }


def _report_id(request: Request, step: Step, outcome: str) -> str:
    # A postponement is no attempt: its report differs from that of the attempt which follows.
    return deterministic_id(request["delivery_id"], request["attempt"], "POSTPONED" if step.postponed else outcome)
