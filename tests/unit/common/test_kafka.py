"""Asking the broker how far a partition reaches, while it may have no leader."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from starling_common import retries
from starling_common.kafka.clients import TopicView, offsets, watermarks


class FakeConsumer:
    """Stands for a consumer: gives, or raises, one answer after the other; the last one endlessly."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, int | None, bool]] = []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> Any:
        assert timeout > 0
        self.requests.append((place.topic, place.partition, cached))
        return self._answer()

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> Any:
        assert timeout > 0
        self.requests += [(place.topic, place.offset, False) for place in places]
        return self._answer()

    def _answer(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_WAITS", {"wait_initial": 0.001, "wait_max": 0.001, "wait_jitter": 0.0})


LEADER_CHANGES = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


def test_a_partition_without_a_leader_is_asked_about_again() -> None:
    consumer: Any = FakeConsumer(*LEADER_CHANGES, (3, 9))
    assert watermarks(consumer, "t", 4, 30) == (3, 9)
    assert consumer.requests == [("t", 4, False)] * 5


class FakePartition:
    """Stands for a partition in an answer, which can hold an error of its own."""

    def __init__(self, partition: int, offset: int, code: int | None = None) -> None:
        self.topic, self.partition, self.offset = "t", partition, offset
        self.error = None if code is None else KafkaError(code)


@pytest.mark.parametrize("code", LEADER_CHANGES)
def test_offsets_are_asked_again_through_a_change_of_leader(code: int) -> None:
    consumer: Any = FakeConsumer(
        code, [FakePartition(0, 7), FakePartition(1, -1, code)], [FakePartition(0, 7), FakePartition(1, 9)]
    )
    assert offsets(consumer, [("t", 0), ("t", 1)], OFFSET_END, 30) == {("t", 0): 7, ("t", 1): 9}
    assert consumer.requests == [("t", OFFSET_END, False)] * 6


def test_the_error_of_one_partition_is_no_offset() -> None:
    consumer: Any = FakeConsumer([FakePartition(0, 7), FakePartition(1, -1, KafkaError.UNKNOWN_TOPIC_OR_PART)])
    with pytest.raises(KafkaException) as raised:
        offsets(consumer, [("t", 0), ("t", 1)], OFFSET_END, 30)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_no_partitions_have_no_offsets() -> None:
    assert offsets(FakeConsumer(), [], OFFSET_END, 30) == {}  # type: ignore[arg-type]


def test_without_a_leader_the_error_of_the_broker_is_reported() -> None:
    consumer: Any = FakeConsumer(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaException) as raised:
        watermarks(consumer, "t", 4, 0.05)
    assert raised.value.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE
    assert len(consumer.requests) > 1


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_permanent_error_is_raised_without_a_retry(code: int) -> None:
    consumer: Any = FakeConsumer(code)
    with pytest.raises(KafkaException):
        watermarks(consumer, "t", 4, 30)
    assert len(consumer.requests) == 1


def test_no_answer_is_no_empty_partition() -> None:
    consumer: Any = FakeConsumer(None)
    with pytest.raises(KafkaException, match="no answer about partition 4 of t within 30 s"):
        watermarks(consumer, "t", 4, 30)


def test_a_view_that_was_not_started_stops_at_once() -> None:
    view = TopicView("127.0.0.1:1", "definitions", lambda _message: None)
    view.stop()
    assert view.problem() is None
