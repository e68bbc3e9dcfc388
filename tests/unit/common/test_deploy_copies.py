"""An installation whose data has one copy is refused before anything is created, unless that is acknowledged."""

import pytest

from starling_common.deploy import DeployFailed, DeploySettings, deploy, in_sync_replicas
from starling_common.settings import Cassandra, Kafka, SchemaRegistry


def settings(kafka: int, cassandra: int) -> DeploySettings:
    return DeploySettings(
        kafka=Kafka(brokers="127.0.0.1:1"),
        registry=SchemaRegistry(url="http://127.0.0.1:1"),
        cassandra=Cassandra(contact_points="127.0.0.1", replication_factor=cassandra),
        replication_factor=kafka,
    )


@pytest.mark.parametrize(
    ("kafka", "cassandra", "named"),
    [
        (1, 3, ["STARLING_REPLICATION_FACTOR is 1: the loss of a broker"]),
        (3, 1, ["STARLING_CASSANDRA__REPLICATION_FACTOR is 1: the loss of a Cassandra node"]),
        (1, 1, ["STARLING_REPLICATION_FACTOR is 1", "STARLING_CASSANDRA__REPLICATION_FACTOR is 1"]),
    ],
)
def test_a_single_copy_is_refused_with_the_cure(kafka: int, cassandra: int, named: list[str]) -> None:
    with pytest.raises(DeployFailed) as refused:
        deploy(settings(kafka, cassandra))
    assert all(text in str(refused.value) for text in [*named, "Set 3, or STARLING_ACKNOWLEDGE_SINGLE_COPY=true"])


def test_an_acknowledged_record_has_two_copies_if_there_are_two() -> None:
    assert [in_sync_replicas(factor) for factor in (1, 2, 3, 5)] == [1, 2, 2, 2]
