"""A broker that lags lists a new topic as missing. The deploy step checks the topic all the same, once it is listed."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.deploy import DeployFailed, create_topics
from starling_common.kafka.topics import Topic


class LaggingBroker:
    """Lists its only topic from the second call on."""

    def __init__(self, partitions: int, replicas: int) -> None:
        found = {number: SimpleNamespace(replicas=[1] * replicas) for number in range(partitions)}
        self._listings: list[dict[str, Any]] = [{}, {}, {"orders": SimpleNamespace(partitions=found)}]

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics=self._listings.pop(0))

    def create_topics(self, new: list[NewTopic], operation_timeout: float) -> dict[str, "Future[None]"]:
        assert operation_timeout > 0
        refused: Future[None] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        return {topic.topic: refused for topic in new}


@pytest.mark.parametrize(
    ("partitions", "replicas", "fault"), [(2, 1, "orders has 1 replicas, not 2"), (3, 2, "orders has 3 partitions, not 2")]
)
def test_a_topic_that_is_listed_late_is_checked(partitions: int, replicas: int, fault: str) -> None:
    orders = Topic("orders", "ClockAdvanced", 2, False, "delete", 3_600_000, "FULL_TRANSITIVE")
    with pytest.raises(DeployFailed, match=fault):
        create_topics(cast("AdminClient", LaggingBroker(partitions, replicas)), [orders], 2)
