"""A group whose coordinator refuses requests, beside a broker that is away."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from starling_common.kafka import group_requests
from starling_common.kafka.group_requests import GroupAddress, GroupRequests

LIMIT_SECONDS = 120.0


class World:
    """A client of the group, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.refuses = False
        self.is_away = False
        self.error: int = KafkaError.GROUP_AUTHORIZATION_FAILED
        self.reported: list[float] = []
        self.closed = 0
        self.requests = GroupRequests(
            GroupAddress("broker:1", "a-group", "topic"),
            LIMIT_SECONDS,
            self.reported.append,
            clock=lambda: self.now,
            new_client=self.client,
        )

    def client(self, _config: dict[str, Any]) -> Any:
        return self

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.refuses or self.is_away:
            raise KafkaException(KafkaError(self.error if self.refuses else KafkaError._TIMED_OUT))
        return places

    def list_topics(self, _topic: str, timeout: float) -> None:
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def close(self) -> None:
        self.closed += 1

    def at(self, now: float) -> str | None:
        self.now = now
        self.requests.check()
        return self.requests.problem


def test_a_group_that_is_refused_for_the_time_has_failed_until_it_is_answered() -> None:
    world = World()
    world.refuses = True
    assert [world.at(now) for now in (10.0, 129.0)] == [None, None]
    assert (world.at(130.0) or "").startswith("the coordinator of the group a-group has refused requests for 120 s (")
    world.refuses = False
    assert world.at(140.0) is None
    world.refuses = True
    assert world.at(500.0) is None
    assert world.reported == [0.0, 119.0, 120.0, 0.0, 0.0]
    assert world.closed == 5


def test_a_broker_that_is_away_is_no_failure_of_the_group() -> None:
    world = World()
    world.is_away = True
    assert [world.at(now) for now in (0.0, 1_000.0)] == [None, None]
    world.refuses = True
    assert world.at(2_000.0) is None
    world.is_away = False
    assert world.at(3_000.0) is None


def test_a_coordinator_that_is_not_found_within_a_request_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_requests, "_ANSWER_SECONDS", 0.3)
    world = World()
    world.error = KafkaError.NOT_COORDINATOR
    world.refuses = True
    assert world.at(0.0) is None
    assert "Broker: Not coordinator" in (world.at(LIMIT_SECONDS) or "")
