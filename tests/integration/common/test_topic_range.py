"""Bounded reads of a real broker: only committed records, and only those that were there when the read began."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.kafka.clients import producer_config
from starling_common.kafka.topic_range import range_consumer, read_range, read_topic, spans
from tests.conftest import Stack


@pytest.fixture
def topic(stack: Stack) -> Iterator[str]:
    name = f"range-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for made in admin.create_topics([NewTopic(name, 2, 1)]).values():
        made.result(30)
    yield name
    for deleted in admin.delete_topics([name]).values():
        deleted.result(30)


def _write(stack: Stack, topic: str, values: list[tuple[int, bytes]], *, commit: bool = True) -> None:
    producer = Producer(producer_config(stack.brokers, **{"transactional.id": f"range-{uuid.uuid4().hex}"}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition, value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def test_committed_records_up_to_the_ends_as_of_now(stack: Stack, topic: str) -> None:
    _write(stack, topic, [(0, b"a"), (0, b"b"), (1, b"x")])
    _write(stack, topic, [(0, b"aborted"), (1, b"aborted")], commit=False)
    consumer = range_consumer(stack.brokers, "test-range")
    try:
        reading = read_range(consumer, {(topic, 0): 1, (topic, 1): OFFSET_BEGINNING})
        values = [message.value() for message in next(reading)]
        _write(stack, topic, [(0, b"late"), (1, b"late")])
        values += [message.value() for messages in reading for message in messages]
        assert sorted(value for value in values if value) == [b"b", b"x"]
        found = spans(consumer, topic, 30)
    finally:
        consumer.close()
    assert found == {(topic, 0): (0, 7), (topic, 1): (0, 6)}
    assert sorted(message.value() or b"" for message in read_topic(stack.brokers, topic)) == [b"a", b"b", b"late", b"late", b"x"]


def test_a_topic_that_is_empty_or_missing_has_no_records(stack: Stack, topic: str) -> None:
    assert list(read_topic(stack.brokers, topic)) == []
    assert list(read_topic(stack.brokers, "no-such-topic")) == []
