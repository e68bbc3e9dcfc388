"""Adapter: refused records to `projector.dlq`, whole, with the reason and the way back."""

from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from starling_common.headers import header, record_headers
from starling_common.instants import wall_clock_micros, wall_clock_ms
from starling_common.kafka import produce_and_wait, producer_config
from starling_common.logs import log
from starling_common.metrics import Metrics
from starling_common.outcome import Refused
from starling_common.values import deterministic_id
from starling_common.wire import Codec, Record, Registry
from starling_projector.batch import Inbound
from starling_projector.settings import STAGE

TOPIC = f"{STAGE}.dlq"


class DeadLetters:
    """Opens a producer at the first refused record; most projectors never need one."""

    def __init__(self, brokers: str, registry: Registry, metrics: Metrics) -> None:
        self._producer: Callable[[], Producer] = lambda: Producer(producer_config(brokers))
        self._registry = registry
        self._opened: tuple[Producer, Codec] | None = None
        self._refused = metrics.counter("starling_projector_refused_total")

    def bury(self, refused: Sequence[tuple[Inbound, Refused]]) -> None:
        """Returns once the broker has all of them. Raises: BrokerUnavailable, RegistryUnavailable."""
        for inbound, reason in refused:
            if self._opened is None:
                self._opened = (self._producer(), self._registry.codec(TOPIC, "DeadLetter"))
            producer, codec = self._opened
            origin = (inbound.topic, inbound.partition, inbound.offset)
            correlation_id = header(inbound.headers, "correlation_id") or deterministic_id("dead letter", *origin)
            value = codec.encode(dead_letter(inbound, reason, correlation_id, wall_clock_ms()))
            headers = record_headers(correlation_id, STAGE, header(inbound.headers, "traceparent"))
            produce_and_wait(producer, TOPIC, key=inbound.key or b"", value=value, headers=headers)
            self._refused.labels(reason.code).inc()
            log(__name__).warning("refused", code=reason.code, reason=reason.message, origin=origin, correlation_id=correlation_id)


def dead_letter(inbound: Inbound, reason: Refused, correlation_id: str, refused_at_ms: int) -> Record:
    """The record for `projector.dlq`. Source: schemas/avro/DeadLetter.avsc."""
    return {
        "received_at": wall_clock_micros(),
        "stage": STAGE,
        "code": reason.code,
        "message": reason.message,
        "origin_topic": inbound.topic,
        "origin_partition": inbound.partition,
        "origin_offset": inbound.offset,
        "key": inbound.key,
        "value": inbound.value,
        "headers": {name: value for name, value in inbound.headers if isinstance(value, bytes)},
        "workspace": None,
        "correlation_id": correlation_id,
        "refused_at": refused_at_ms,
    }
