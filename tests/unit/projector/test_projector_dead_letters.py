"""A projector reads records again after a rebalance. A record that it refused before gets no second letter."""

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Producer
from prometheus_client import CollectorRegistry

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Codec, Registry
from starling_projector import dead_letters
from starling_projector.dead_letters import DeadLetters

REASON = Refused("not_avro", "five bytes of something else")


class MemoryProducer:
    """Keeps the letters; the one with number `unavailable_at` is not acknowledged."""

    def __init__(self, unavailable_at: int | None = None) -> None:
        self.letters: list[bytes] = []
        self._unavailable_at = unavailable_at
        self._error: KafkaError | None = None
        self._report: Any = None

    def produce(self, _topic: str, value: bytes, _key: bytes, *, on_delivery: Any, **_more: object) -> None:
        self._error, self._report = None, on_delivery
        if len(self.letters) == self._unavailable_at:
            self._error, self._unavailable_at = KafkaError(KafkaError._MSG_TIMED_OUT), None
            return
        self.letters.append(value)

    def flush(self, _seconds: float) -> int:
        self._report(self._error, None)
        return 0


class MemoryRegistry:
    def codec(self, _topic: str, name: str) -> Codec:
        return Codec(name, 1, lambda _: "")


def refused(*offsets: int) -> list[tuple[SourceRecord, Refused]]:
    return [(SourceRecord("events.profile", 3, offset, b"shop/u", b"value", (), 1_000, None), REASON) for offset in offsets]


def letters(monkeypatch: pytest.MonkeyPatch, producer: MemoryProducer) -> DeadLetters:
    monkeypatch.setattr(dead_letters, "Producer", lambda _config: cast("Producer", producer))
    return DeadLetters("broker:1", cast("Registry", MemoryRegistry()), Metrics(CollectorRegistry()))


def test_a_record_that_is_read_again_gets_no_second_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = MemoryProducer()
    stage = letters(monkeypatch, producer)
    stage.bury(refused(1, 2))
    stage.bury(refused(1, 2, 3))
    assert len(producer.letters) == 3


def test_a_repeated_call_publishes_only_the_letters_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = MemoryProducer(unavailable_at=1)
    stage = letters(monkeypatch, producer)
    with pytest.raises(BrokerUnavailable):
        stage.bury(refused(1, 2))
    stage.bury(refused(1, 2))
    assert len(producer.letters) == 2


def test_only_the_newest_letters_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_MOST_REMEMBERED", 2)
    producer = MemoryProducer()
    stage = letters(monkeypatch, producer)
    stage.bury(refused(1, 2, 3))
    stage.bury(refused(2, 3))
    assert len(producer.letters) == 3
    stage.bury(refused(1))
    assert len(producer.letters) == 4
