"""A bounded read: where it ends, and what it does with a broker that is silent or refuses."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from starling_common.kafka.clients import PARTITION_EOF, BrokerUnavailable
from starling_common.kafka.topic_range import Partition, read_range


class Read:
    """A message, or an event if `code` is set."""

    def __init__(self, partition: int, offset: int, code: int | None = None) -> None:
        self._partition, self._offset, self._code = partition, offset, code

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)


def end(partition: int, offset: int) -> Read:
    return Read(partition, offset, PARTITION_EOF)


class MemoryConsumer:
    """A client that returns batches as given, and then nothing."""

    def __init__(self, *batches: list[Read], ends: Mapping[int, int] | None = None) -> None:
        self.batches = list(batches)
        self.ends = ends or {}
        self.assigned: dict[int, int] = {}
        self.unassigned: list[int] = []
        self.rest: list[Read] = []

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        return [TopicPartition(place.topic, place.partition, self.ends[place.partition]) for place in places]

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = {place.partition: place.offset for place in places}

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self.unassigned += [place.partition for place in places]

    def unassign(self) -> None:
        self.assigned = {}

    def poll(self, _seconds: float) -> Read | None:
        if not self.batches:
            return None
        first, *self.rest = self.batches.pop(0)
        return first

    def consume(self, _most: int, _seconds: float) -> list[Read]:
        return self.rest


def read(consumer: MemoryConsumer, starts: Mapping[int, int], ends: Mapping[int, int] | None = None, **more: Any) -> list[Any]:
    places: dict[Partition, int] = {("t", number): offset for number, offset in starts.items()}
    until = None if ends is None else {("t", number): offset for number, offset in ends.items()}
    batches = read_range(cast("Consumer", consumer), places, until, **more)
    return [[(message.partition(), message.offset()) for message in batch] for batch in batches]


def test_records_after_the_end_as_of_now_are_not_part_of_it() -> None:
    consumer = MemoryConsumer([Read(0, 0), Read(0, 1), Read(0, 2)], [Read(1, 0), Read(0, 3)], [Read(1, 1)], ends={0: 2, 1: 2})
    assert read(consumer, {0: OFFSET_BEGINNING, 1: OFFSET_BEGINNING}) == [[(0, 0), (0, 1)], [(1, 0)], [(1, 1)]]
    assert (consumer.unassigned, consumer.assigned) == ([0, 1], {})


def test_the_markers_of_a_transaction_before_the_end_are_passed() -> None:
    consumer = MemoryConsumer([Read(0, 5), end(0, 7)], ends={0: 7})
    assert read(consumer, {0: 5}) == [[(0, 5)]]


def test_a_record_after_a_gap_over_the_end_is_not_part_of_it() -> None:
    consumer = MemoryConsumer([Read(0, 0)], [Read(0, 5)])
    assert read(consumer, {0: 0}, {0: 3}) == [[(0, 0)]]


def test_an_earlier_end_of_the_partition_does_not_end_the_range() -> None:
    """A record may become visible later, when its transaction is committed."""
    consumer = MemoryConsumer([Read(0, 0), end(0, 1)], [Read(0, 1)])
    assert read(consumer, {0: 0}, {0: 2}) == [[(0, 0)], [(0, 1)]]


@pytest.mark.parametrize("start", [2, 3])
def test_an_empty_range_is_not_read(start: int) -> None:
    consumer = MemoryConsumer()
    assert read(consumer, {0: start}, {0: 2}, silence_seconds=0.0) == []


def test_a_silent_broker_is_reported_with_the_partition() -> None:
    consumer = MemoryConsumer([Read(0, 0), Read(1, 0)])
    with pytest.raises(BrokerUnavailable, match="t 1: no records for 0 s"):
        read(consumer, {0: 0, 1: 0}, {0: 1, 1: 2}, silence_seconds=0.0)


def test_a_change_of_leader_is_waited_for_and_another_error_is_raised() -> None:
    moved = MemoryConsumer([Read(0, -1, KafkaError.NOT_LEADER_FOR_PARTITION), Read(0, 0)])
    assert read(moved, {0: 0}, {0: 1}) == [[(0, 0)]]
    with pytest.raises(KafkaException):
        read(MemoryConsumer([Read(0, -1, KafkaError.TOPIC_AUTHORIZATION_FAILED)]), {0: 0}, {0: 1})
