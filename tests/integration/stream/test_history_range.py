"""The history of a task, on a real broker: ranges are read one after the other by the same consumers."""

import uuid
from collections.abc import Iterator
from threading import Event
from time import monotonic

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_stream.state.restore import range_consumers
from starling_stream.state.restore.range_consumers import RangeConsumers
from starling_stream.state.restore.restore import Interrupted, read_range
from tests.conftest import Stack

RECORDS = 300


@pytest.fixture
def topic(stack: Stack) -> Iterator[str]:
    name, admin = f"history-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": stack.brokers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": stack.brokers})
    for number in range(2 * RECORDS):
        producer.produce(name, b"%d" % number, b"acme/u", number % 2)
    producer.flush(30)
    yield name
    admin.delete_topics([name])[name].result(30)


def _values(consumers: RangeConsumers, topic: str, partition: int, first: int, until: int) -> list[int]:
    batches = read_range(consumers, topic, partition, (first, until), Event())
    return [int(record.value or b"") for batch in batches for record in batch]


def test_a_consumer_reads_one_range_after_another(stack: Stack, topic: str) -> None:
    consumers = RangeConsumers(stack.brokers)
    for first, until in ((0, RECORDS), (10, 20), (0, 5), (290, RECORDS)):
        for partition in (0, 1):
            expected = [2 * offset + partition for offset in range(first, until)]
            assert _values(consumers, topic, partition, first, until) == expected
    assert len(consumers._idle) == 1
    consumers.close()
    assert not consumers._idle


def test_a_range_that_is_not_read_to_its_end_gives_no_consumer_back(stack: Stack, topic: str) -> None:
    consumers, stop = RangeConsumers(stack.brokers), Event()
    records = read_range(consumers, topic, 0, (0, RECORDS + 1), stop)
    assert next(records)[0].value == b"0"
    stop.set()
    with pytest.raises(Interrupted):
        list(records)
    assert not consumers._idle


def test_consumers_that_were_idle_for_long_are_closed(stack: Stack, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    consumers = RangeConsumers(stack.brokers)
    both = [read_range(consumers, topic, partition, (0, 1), Event()) for partition in (0, 1)]
    assert [len(list(pair)) for pair in zip(*both, strict=True)] == [2]
    assert len(consumers._idle) == 2
    later = monotonic() + 31
    monkeypatch.setattr(range_consumers, "monotonic", lambda: later)
    assert _values(consumers, topic, 0, 0, 1) == [0]
    assert len(consumers._idle) == 1
    consumers.close()
