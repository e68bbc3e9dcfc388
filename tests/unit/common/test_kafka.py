"""Asking the broker how far a partition reaches, while it may have no leader."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from starling_common import kafka
from starling_common.kafka import watermarks


class Asked:
    """Stands for a consumer: gives, or raises, one answer after the other; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int | None, bool]] = []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> Any:
        assert timeout > 0
        self.asked.append((place.topic, place.partition, cached))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_AGAIN_SECONDS", 0.001)


def test_a_partition_without_a_leader_is_asked_about_again() -> None:
    consumer: Any = Asked(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, (3, 9))
    assert watermarks(consumer, "t", 4, 30) == (3, 9)
    assert consumer.asked == [("t", 4, False)] * 3


def test_when_no_leader_is_found_in_time_the_brokers_own_word_is_told() -> None:
    consumer: Any = Asked(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaException) as raised:
        watermarks(consumer, "t", 4, 0.05)
    assert raised.value.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE
    assert len(consumer.asked) > 1


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_what_does_not_pass_is_told_at_once(code: int) -> None:
    consumer: Any = Asked(code)
    with pytest.raises(KafkaException):
        watermarks(consumer, "t", 4, 30)
    assert len(consumer.asked) == 1


def test_no_answer_is_no_empty_partition() -> None:
    consumer: Any = Asked(None)
    with pytest.raises(KafkaException, match="no answer about partition 4 of t within 30 s"):
        watermarks(consumer, "t", 4, 30)
