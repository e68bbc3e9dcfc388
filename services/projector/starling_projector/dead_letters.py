"""Adapter: publishes refused records to `projector.dlq`, whole, with the reason and the origin."""

from collections import deque
from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter, dead_letter_headers, letter_correlation_id
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import record_timestamp_ms, wall_clock_ms
from starling_common.wire import Codec, Registry
from starling_projector.settings import STAGE

TOPIC = f"{STAGE}.dlq"

_MOST_REMEMBERED = 100_000
"""Published letters that are not published again, about 15 MB. A repeated batch has fewer records since the last commit."""


class DeadLetters:
    """Publishes dead letters. The producer is opened at the first refused record.

    The projector reads records again after a rebalance, or after it lost its connections to the database. They get no second letter
    from the same process. A killed process may leave a letter that its successor publishes again.
    """

    def __init__(self, brokers: str, registry: Registry, metrics: Metrics) -> None:
        self._producer: Callable[[], Producer] = lambda: Producer(producer_config(brokers))
        self._registry = registry
        self._opened: tuple[Producer, Codec] | None = None
        self._published: set[tuple[str, int, int]] = set()
        self._oldest: deque[tuple[str, int, int]] = deque()
        self._refused = metrics.counter("starling_projector_refused_total")

    def bury(self, refused: Sequence[tuple[SourceRecord, Refused]]) -> None:
        """Publish the dead letters and wait for the acknowledgements. Raises: BrokerUnavailable, RegistryUnavailable."""
        for source, reason in refused:
            if source[:3] in self._published:
                continue
            if self._opened is None:
                self._opened = (self._producer(), self._registry.codec(TOPIC, "DeadLetter"))
            producer, codec = self._opened
            value, headers = codec.encode(dead_letter(STAGE, source, reason, wall_clock_ms())), dead_letter_headers(STAGE, source)
            timestamp_ms = record_timestamp_ms(source.received_at, wall_clock_ms())
            produce_and_wait(producer, TOPIC, key=source.key or b"", value=value, headers=headers, timestamp_ms=timestamp_ms)
            self._remember(source[:3])
            self._refused.labels(reason.code).inc()
            log(__name__).warning(
                "refused", code=reason.code, reason=reason.message, origin=source[:3], correlation_id=letter_correlation_id(source)
            )

    def _remember(self, place: tuple[str, int, int]) -> None:
        self._published.add(place)
        self._oldest.append(place)
        if len(self._oldest) > _MOST_REMEMBERED:
            self._published.discard(self._oldest.popleft())
