"""Records in a topic of another cluster: the contract of feeds, against the mock cluster of librdkafka."""

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from starling_common.headers import header, headers_of
from starling_common.kafka.clients import producer_config
from starling_common.kafka.clusters import TopicUnusable, check_topic, cluster_config
from starling_delivery.channel import Again, Answer, Channel, Delivered, Message
from starling_delivery.feeds.journal import Outgoing, RecordsRefused, written
from starling_delivery.feeds.lane import Change
from starling_delivery.feeds.mirrors import record_of
from tests.contract.delivery.feed_contract import FeedContract
from tests.unit.delivery.making import change

TOPIC = "audience.changes"


class MockCluster:
    """One broker with one topic, within this process."""

    def __init__(self) -> None:
        self._owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
        [broker] = self._owner.list_topics(timeout=10).brokers.values()
        self.brokers = f"{broker.host}:{broker.port}"

    def create(self, topic: str) -> None:
        written(self.producer(), [Outgoing(topic, b"", b"first", [], 0)])

    def producer(self, **more: Any) -> Producer:
        return Producer({**producer_config(self.brokers), **more})

    def records(self, topic: str) -> list[KafkaMessage]:
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0})
        found: list[KafkaMessage] = []
        try:
            left = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, 0) for number in left])
            while left:
                message = consumer.poll(10)
                assert message is not None
                if message.error() is None:
                    found.append(message)
                else:
                    left.discard(message.partition() or 0)
        finally:
            consumer.close()
        return found


class OneByOne:
    """A channel that writes one record at a time, as a lane of Kafka does with many."""

    name = "kafka"

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def send(self, message: Message) -> Answer:
        value = message.payload.encode()
        record = Outgoing(TOPIC, message.user_id.encode(), value, [("event_id", message.message_id.encode())], 0)
        try:
            await asyncio.to_thread(written, self._producer, [record])
        except KafkaException as error:
            return Again(str(error.args[0].str()))
        return Delivered()

    async def close(self) -> None:
        return None


@pytest.fixture
def cluster() -> MockCluster:
    made = MockCluster()
    made.create(TOPIC)
    return made


class TestKafka(FeedContract):
    uses_addresses = False
    cluster: MockCluster

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: MockCluster) -> None:
        self.cluster = cluster

    def open(self) -> Channel:
        return OneByOne(self.cluster.producer())

    def open_broken(self) -> Channel:
        config = producer_config("127.0.0.1:9", **{"message.timeout.ms": 500, "log_level": 0})
        return OneByOne(Producer(config))

    def message(self, delivery_id: str = "d1") -> Message:
        return Message("default", "ada", delivery_id, f"m-{delivery_id}", "warehouse", "", "{}", 1)

    def received(self) -> list[str]:
        found = [header(headers_of(one), "event_id") for one in self.cluster.records(TOPIC)]
        return [event_id for event_id in found if event_id is not None]

    def test_a_record_that_is_too_large_is_named_and_the_others_are_written(self) -> None:
        producer = self.cluster.producer(**{"message.max.bytes": 2_000, "batch.size": 1_000})
        records = [Outgoing(TOPIC, b"u", size * b"x", [("event_id", b"x")], 0) for size in (10, 5_000, 20)]
        with pytest.raises(RecordsRefused) as refused:
            written(producer, records)
        assert list(refused.value.errors) == [1]
        assert [len(one.value() or b"") for one in self.cluster.records(TOPIC) if one.headers()] == [10, 20]

    def test_a_missing_topic_is_named_and_not_created(self) -> None:
        target = {"topic": TOPIC, "bootstrap_servers": self.cluster.brokers}
        assert check_topic(target, "", allow_private=True) >= 1
        with pytest.raises(TopicUnusable) as refused:
            check_topic(target, "", allow_private=False)
        assert refused.value.reason == "address_refused"
        with pytest.raises(TopicUnusable, match="does not answer") as refused:
            check_topic({"topic": TOPIC, "bootstrap_servers": "127.0.0.1:9"}, "", allow_private=True)
        assert refused.value.reason == "not_connected"


class Carried:
    """The parts of a Kafka message that a record is made of."""

    def value(self) -> bytes:
        return b"as it is in the feed"

    def headers(self) -> list[tuple[str, bytes]]:
        return [("traceparent", b"00-1-2-01"), ("produced_by", b"segmenter")]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_772_357_400_000


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_record_has_the_user_as_its_key_and_names_its_change(kind: str) -> None:
    carried: Any = Carried()
    record = record_of(Change(change("ada"), carried), TOPIC, kind)
    assert (record.topic, record.key, record.timestamp_ms) == (TOPIC, b"ada", 1_772_357_400_000)
    headers = dict(record.headers)
    assert (headers["event_id"], headers["segment"], headers["sequence"]) == (b"event-of-ada-vip-ENTERED", b"vip", b"1")
    assert headers["traceparent"] == b"00-1-2-01"
    if kind == "avro":
        assert record.value == carried.value()
    else:
        assert json.loads(record.value)["traits"] == {"plan": "pro"}


def test_another_cluster_gets_nothing_of_the_connection_of_the_installation() -> None:
    security = {"protocol": "sasl_ssl", "mechanism": "PLAIN", "username": "a", "password": "b", "ca": "pem"}
    assert cluster_config({"bootstrap_servers": "k:1", "security": security}, "own:1") == {
        "bootstrap.servers": "k:1",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
        "ssl.ca.pem": "pem",
    }
    assert cluster_config({"bootstrap_servers": "k:1"}, "own:1")["security.protocol"] == "plaintext"
    assert cluster_config({}, "own:1") == {"bootstrap.servers": "own:1"}
