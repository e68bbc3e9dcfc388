"""Adapter: publishes reports, dead letters and disabled targets. Thread-safe."""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_audience.changes import NO_IDENTIFIER, SUPERSEDED, Change
from starling_audience.definitions import AudienceTarget
from starling_audience.stores.records import (
    DELIVERED,
    FAILED,
    STAGE,
    SUPPRESSED,
    disabled_of,
    report_of,
    retry_of,
)
from starling_common.headers import Headers, record_headers
from starling_common.kafka.clients import BrokerUnavailable, producer_config
from starling_common.kafka.topics import AUDIENCE_RETRY, DELIVERY, DELIVERY_DEAD_LETTERS, DELIVERY_DEFINITIONS
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter, dead_letter_headers, source_record
from starling_common.time.instants import record_timestamp_ms, wall_clock_micros, wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Codec

_FLUSH_SECONDS: Final = 60.0
REJECTED: Final = "rejected"
"""The code of a dead letter whose change the other side did not take."""


class Outcomes(NamedTuple):
    """What became of the changes of a batch, and of the records that could not be read."""

    taken: Sequence[Change] = ()
    rejected: Sequence[tuple[Change, str]] = ()
    no_identifier: Sequence[Change] = ()
    superseded: Sequence[Change] = ()
    unreadable: Sequence[tuple[Message, Refused]] = ()


class _Output(NamedTuple):
    """An encoded record."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers
    stamp_ms: int


class Outbox:
    """Publishes records; each call returns after the broker has them."""

    def __init__(self, brokers: str, codec: Callable[[str], Codec]) -> None:
        """Connect at the first record. `codec`: the codec of a topic; it may raise SchemaMissing and RegistryUnavailable."""
        self._config = producer_config(brokers)
        self._codec = codec
        self._producer: Producer | None = None
        self._lock = Lock()
        """Codecs are not thread-safe."""

    def store(self, target: AudienceTarget, outcomes: Outcomes) -> None:
        """Publish the reports and the dead letters of a batch.

        Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing; the batch is repeated then, with the same ids.
        """
        with self._lock:
            outputs = [*self._reports(target, outcomes), *self._letters(target, outcomes)]
        self._publish(outputs)

    def disable(self, target: AudienceTarget, why: str) -> None:
        """Publish that a target is disabled. Raises: as `store`."""
        record = disabled_of(target, why, wall_clock_micros())
        headers = record_headers(record["correlation_id"], STAGE)
        with self._lock:
            value = self._codec(DELIVERY_DEFINITIONS).encode(record)
        self._publish([_Output(DELIVERY_DEFINITIONS, record_key(*target.place), value, headers, wall_clock_ms())])

    def _reports(self, target: AudienceTarget, outcomes: Outcomes) -> Iterable[_Output]:
        found: list[tuple[Change, str, str | None]] = []
        for change in outcomes.taken:
            if change.is_reported:
                outcome = DELIVERED if change.reason is None else SUPPRESSED
                found.append((change, outcome, change.reason))
        found += [(change, FAILED, why) for change, why in outcomes.rejected]
        # A removal of a user who was never added is no outcome.
        found += [
            (change, SUPPRESSED, NO_IDENTIFIER) for change in outcomes.no_identifier if change.is_member or change.is_reported
        ]
        found += [(change, SUPPRESSED, SUPERSEDED) for change in outcomes.superseded]
        codec, now_ms = self._codec(DELIVERY), wall_clock_ms()
        for change, outcome, detail in found:
            record = report_of(target, change, outcome, detail, now_ms)
            key, headers = record_key(target.workspace, change.user_id), record_headers(record["correlation_id"], STAGE)
            yield _Output(DELIVERY, key, codec.encode(record), headers, record_timestamp_ms(change.received_at, now_ms))

    def _letters(self, target: AudienceTarget, outcomes: Outcomes) -> Iterable[_Output]:
        for change, why in outcomes.rejected:
            yield self._letter(self._undelivered(target, change, why), Refused(REJECTED, f"{target.key}, {change.segment}: {why}"))
        for message, refused in outcomes.unreadable:
            yield self._letter(source_record(message), refused)

    def _undelivered(self, target: AudienceTarget, change: Change, why: str) -> SourceRecord:
        request = retry_of(target, change, why, wall_clock_ms())
        key, headers = record_key(target.workspace, change.user_id), record_headers(request["correlation_id"], STAGE)
        value = self._codec(AUDIENCE_RETRY).encode(request)
        # The request is in no topic; a replay writes it to the topic of retries.
        return SourceRecord(AUDIENCE_RETRY, -1, -1, key, value, headers, change.received_at, request)

    def _letter(self, source: SourceRecord, refused: Refused) -> _Output:
        now_ms = wall_clock_ms()
        value = self._codec(DELIVERY_DEAD_LETTERS).encode(dead_letter(STAGE, source, refused, now_ms))
        stamp_ms = record_timestamp_ms(source.received_at, now_ms)
        return _Output(DELIVERY_DEAD_LETTERS, source.key or b"", value, dead_letter_headers(STAGE, source), stamp_ms)

    def _publish(self, outputs: Sequence[_Output]) -> None:
        if not outputs:
            return
        producer = self._opened()
        failures: list[str] = []
        left = len(outputs)

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failures.append(f"{message.topic()}: {error.str()}")

        try:
            for one in outputs:
                more: dict[str, Any] = {"headers": one.headers, "timestamp": one.stamp_ms, "on_delivery": delivered}
                try:
                    producer.produce(one.topic, one.value, one.key, **more)
                except BufferError:  # the queue of the client is full
                    producer.flush(_FLUSH_SECONDS)
                    producer.produce(one.topic, one.value, one.key, **more)
        except (BufferError, KafkaException) as cause:
            raise BrokerUnavailable(f"the outcomes of a batch could not be written: {cause}") from cause
        producer.flush(_FLUSH_SECONDS)
        if left or failures:
            raise BrokerUnavailable(failures[0] if failures else f"{left} outcomes of a batch were not acknowledged in time")

    def _opened(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._config)
            return self._producer
