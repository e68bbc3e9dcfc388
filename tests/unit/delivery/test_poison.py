"""Nothing that the delivery reads may end it: a record or request that cannot be processed becomes a dead letter."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Producer
from prometheus_client import CollectorRegistry

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import DELIVERY, MEMBERSHIP, load_catalogue
from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Codec, Record, Registry, RegistryUnavailable
from starling_delivery.agents import MembershipInput
from starling_delivery.channel import Answer, Delivered
from starling_delivery.channel import Message as ChannelMessage
from starling_delivery.item import Item
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Step
from starling_delivery.settings import Settings
from tests.unit.delivery.making import MemoryConsumer, change, definition, dispatcher, request, run_agent, targets

_SCHEMAS = {topic: entry.schema for topic, entry in load_catalogue().topics.items()}


def _codec(topic: str) -> Codec:
    return Codec(_SCHEMAS[topic], 1, lambda _: "")


class MemoryRegistry:
    def codec(self, topic: str, _name: str) -> Codec:
        return _codec(topic)


@dataclass
class MemoryProducer:
    """Keeps the records; those of the refused topics are reported as undelivered with an error."""

    refused: dict[str, int] = field(default_factory=dict)
    records: list[tuple[str, bytes]] = field(default_factory=list)
    reports: list[tuple[Any, KafkaError | None]] = field(default_factory=list)

    def produce(self, topic: str, value: bytes, _key: bytes, *, on_delivery: Any, **_more: object) -> None:
        if topic not in self.refused:
            self.records.append((topic, value))
        self.reports.append((on_delivery, KafkaError(self.refused[topic]) if topic in self.refused else None))

    def poll(self, _seconds: float) -> None:
        reports, self.reports = self.reports, []
        for report, error in reports:
            report(error, Read(b"", 0))

    def flush(self, seconds: float) -> int:
        self.poll(seconds)
        return 0

    def letters(self) -> list[Record]:
        return [_codec("delivery.dlq").decode(value) for topic, value in self.records if topic == "delivery.dlq"]


@dataclass
class Read:
    data: bytes
    at: int

    def topic(self) -> str:
        return MEMBERSHIP

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"default/ada"

    def value(self) -> bytes:
        return self.data

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_500

    def error(self) -> None:
        return None


def _outbox(producer: MemoryProducer) -> Outbox:
    return Outbox(
        _settings(), cast("Producer", producer), cast("Registry", MemoryRegistry()), targets(), Metrics(CollectorRegistry())
    )


def _settings() -> Settings:
    return Settings(
        kafka=Kafka(brokers="127.0.0.1:1"), registry=SchemaRegistry(url="http://127.0.0.1:1"), http=Http(port=1), instance_id="d0"
    )


def test_a_request_whose_outcome_the_broker_refuses_is_a_dead_letter() -> None:
    producer = MemoryProducer({DELIVERY: KafkaError.MSG_SIZE_TOO_LARGE})
    outbox = _outbox(producer)
    stored: list[str] = []
    outbox.record(Item(request(), lambda: None), Step("DELIVERED"), lambda: stored.append("once"))
    outbox.flush()
    assert stored == ["once"]
    [letter] = producer.letters()
    assert (letter["code"], letter["origin_topic"]) == ("poison", "delivery.retry")
    assert _codec("delivery.retry").decode(letter["value"])["delivery_id"] == request()["delivery_id"]


def test_a_broker_that_times_out_ends_the_process_and_refuses_nothing() -> None:
    producer = MemoryProducer({DELIVERY: KafkaError._MSG_TIMED_OUT})
    outbox = _outbox(producer)
    stored: list[str] = []
    outbox.record(Item(request(), lambda: None), Step("DELIVERED"), lambda: stored.append("never"))
    with pytest.raises(BrokerUnavailable):
        outbox.flush()
    assert (producer.letters(), stored) == ([], [])


@dataclass
class Receiving:
    """A channel that delivers everything."""

    name: str = "webhook"
    sent: list[str] = field(default_factory=list)

    async def send(self, message: ChannelMessage) -> Answer:
        self.sent.append(message.user_id)
        return Delivered(200)

    async def close(self) -> None:
        """Nothing to close."""


def _deliver(
    codec: Codec, values: list[bytes], producer: MemoryProducer, url: str = "https://example.com/hook"
) -> tuple[list[str], list[int]]:
    known, channel = targets(definition(url=url)), Receiving()
    outbox = Outbox(
        _settings(), cast("Producer", producer), cast("Registry", MemoryRegistry()), known, Metrics(CollectorRegistry())
    )
    consumer = MemoryConsumer([Read(value, at) for at, value in enumerate(values)])
    source = MembershipInput([MEMBERSHIP], codec.decode, known, "webhook")
    asyncio.run(run_agent(source, consumer, dispatcher(channel, known, outbox), outbox))
    return channel.sent, [consumer.position]


class Failing(Codec):
    """A codec that raises for the records of one user."""

    error: Exception = RecursionError("too deep")

    def decode(self, data: bytes) -> dict[str, Any]:
        record = super().decode(data)
        if record["user_id"] == "u1":
            raise self.error
        return record


def _values() -> list[bytes]:
    return [_codec(MEMBERSHIP).encode(change(f"u{number}")) for number in range(3)]


def test_a_change_that_makes_the_code_raise_is_a_dead_letter_and_the_others_are_delivered() -> None:
    producer = MemoryProducer()
    sent, committed = _deliver(Failing(_SCHEMAS[MEMBERSHIP], 1, lambda _: ""), _values(), producer)
    assert (sorted(sent), committed) == (["u0", "u2"], [3])
    [letter] = producer.letters()
    assert (letter["code"], letter["origin_offset"], letter["value"]) == ("poison", 1, _values()[1])
    assert letter["message"].startswith("RecursionError: too deep (stack ")


def test_a_registry_away_commits_nothing() -> None:
    producer, codec = MemoryProducer(), Failing(_SCHEMAS[MEMBERSHIP], 1, lambda _: "")
    codec.error = RegistryUnavailable("away")
    with pytest.raises(RegistryUnavailable):
        _deliver(codec, _values(), producer)
    assert producer.letters() == []


def test_a_request_that_no_record_can_hold_is_a_dead_letter() -> None:
    producer = MemoryProducer()
    _, committed = _deliver(_codec(MEMBERSHIP), _values(), producer, url="https://example.com/\ud800")
    assert committed == [3]
    assert {b"ud800" in letter["value"] for letter in producer.letters()} <= {True}
