"""Adapter: publishes outcomes, retries, dead letters and disabled targets."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from starling_common.cassandra.read_models import WEBHOOK
from starling_common.kafka.clients import RECORD_REFUSED, BrokerUnavailable
from starling_common.outcome import Refused
from starling_common.records.dead_letters import source_record
from starling_common.records.definitions import Disabled, disabled_record
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_delivery.item import Item
from starling_delivery.policy import Request, Step
from starling_delivery.progress import Origin
from starling_delivery.records import PRODUCED_BY, Output, Records, output
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets

_FLUSH_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Receipt:
    """Calls `stored` after the broker has acknowledged all records of a message."""

    left: int
    stored: Callable[[], None]

    def acknowledged(self) -> None:
        self.left -= 1
        if not self.left:
            self.stored()


class Outbox:
    """Publishes records asynchronously. `check` receives their acknowledgements."""

    def __init__(self, settings: Settings, producer: Producer, registry: Registry, targets: Targets, metrics: Metrics) -> None:
        """Raises: SchemaMissing, RegistryUnavailable."""
        self._settings = settings
        self._producer = producer
        self._targets = targets
        self._records = Records(settings, registry, metrics)
        self._definition = registry.codec(settings.definitions_topic, "DefinitionChanged")
        self._attempts = metrics.counter("starling_delivery_attempts_total")
        self._flushing = threading.Lock()
        self._failures: list[str] = []
        self._unwritten: list[tuple[Request, KafkaError, _Receipt]] = []
        """The requests of records that the broker refuses, each with the error."""

    def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
        """Publish the outcome of one step, with its retry, dead letter or disabled target."""
        request = item.request
        outputs = self._records.of_step(request, step, item.traceparent)
        if step.disable:
            outputs += self._disabled(request, step.detail or "")
        self._send(outputs, stored)
        if step.outcome is not None and not step.postponed:
            self._attempts.labels(request["channel"], step.outcome).inc()

    def refuse(self, item: Item, why: Refused, stored: Callable[[], None]) -> None:
        """Publish the dead letter of a request that cannot be processed."""
        self._send([self._records.letter_of(item.request, why)], stored)

    def bury(self, message: Message, why: Refused, origin: Origin) -> None:
        """Publish a record that cannot be decoded to the dead letters, unchanged, and complete it."""
        self._send(
            [self._records.letter(source_record(message), why)], partial(origin.positions.finish, origin.place, origin.offset)
        )

    def check(self) -> None:
        """Receive the acknowledgements that have arrived. Raises: BrokerUnavailable if a record was not stored."""
        self._producer.poll(0)
        unwritten, self._unwritten = self._unwritten, []
        for request, error, receipt in unwritten:
            self._produce(self._records.letter_instead(request, KafkaException(error)), receipt)
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

    def _disabled(self, request: Request, why: str) -> list[Output]:
        target = self._targets.find(request["workspace"], request["target_key"])
        if target is None or target.disabled:
            return []
        disabled = Disabled(WEBHOOK, target.workspace, target.key, target.version, target.document)
        record = disabled_record(disabled, why, request["correlation_id"], PRODUCED_BY, wall_clock_micros())
        made = output(self._settings.definitions_topic, self._definition, record_key(target.workspace, target.key), record, request)
        self._targets.apply(record)  # takes effect in this process now, in others when they read the topic
        return [made]

    def _send(self, outputs: Sequence[Output], stored: Callable[[], None]) -> None:
        receipt = _Receipt(len(outputs), stored)
        for one in outputs:
            self._produce(one, receipt)

    def _produce(self, made: Output, receipt: _Receipt) -> None:
        delivered = partial(self._delivered, made.request, receipt)
        more: dict[str, Any] = {"timestamp": made.stamp_ms, "headers": made.headers, "on_delivery": delivered}
        try:
            try:
                self._producer.produce(made.topic, made.value, made.key, **more)
            except BufferError:  # the client's queue is full
                self._producer.flush(_FLUSH_SECONDS)
                self._producer.produce(made.topic, made.value, made.key, **more)
        except BufferError as cause:
            raise BrokerUnavailable(f"{made.topic}: the queue of the client is full") from cause
        except KafkaException as cause:
            if made.request is None or cause.args[0].code() not in RECORD_REFUSED:
                raise
            self._unwritten.append((made.request, cause.args[0], receipt))

    def _delivered(self, request: Request | None, receipt: _Receipt, error: KafkaError | None, message: Message) -> None:
        if error is None:
            receipt.acknowledged()
        elif request is not None and error.code() in RECORD_REFUSED:
            self._unwritten.append((request, error, receipt))
        else:
            self._failures.append(f"{message.topic()}: {error.str()}")
