"""A checkpoint that continues at records that Kafka no longer has."""

import uuid
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from starling_common.kafka.clients import producer_config
from starling_common.kafka.lost_input import InputLost
from starling_common.telemetry.metrics import Metrics
from starling_common.testing import free_port
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.kafka.sources import kafka_records
from starling_spark.lost_input import main
from starling_spark.session.query_metrics import QueryMetrics
from starling_spark.session.running import Running, WatchedQuery
from tests.conftest import Stack


def test_a_query_names_the_commands_that_cure_expired_input_and_they_do(
    spark: SparkSession, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, admin = f"t{uuid.uuid4().hex[:10]}", AdminClient({"bootstrap.servers": stack.brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer(producer_config(stack.brokers))

    def started() -> StreamingQuery:
        records = kafka_records(spark, stack.brokers, [topic])
        return records.writeStream.format("noop").queryName("lake").option("checkpointLocation", str(tmp_path / "lake-2")).start()

    producer.produce(topic, b"v", b"k")
    assert producer.flush(30) == 0
    query = started()
    query.processAllAvailable()
    query.stop()
    producer.produce(topic, b"v", b"k")
    assert producer.flush(30) == 0
    admin.delete_records([TopicPartition(topic, 0, -1)])[TopicPartition(topic, 0)].result()
    query = started()
    watched = WatchedQuery(Running("lake", query, QueryMetrics(Metrics(CollectorRegistry()), "lake")))
    with pytest.raises(Exception, match="may have been lost"):
        query.processAllAvailable()
    with pytest.raises(InputLost, match=r"lake: the checkpoint .*stage resume lake` .*stage accept-loss lake`"):
        watched.poll()
    environment = {"STARLING_KAFKA__BROKERS": stack.brokers, "STARLING_CHECKPOINT_DIR": str(tmp_path)}
    for name, value in {**environment, "STARLING_HTTP__PORT": str(free_port()), "STARLING_LAKE_GROUP": f"{topic}-group"}.items():
        monkeypatch.setenv(name, value)
    assert main(["lake", "resume"]) == 1
    assert "use `starling stage accept-loss lake`" in capsys.readouterr().err
    assert main(["lake", "accept-loss"]) == 0
    assert f"{topic} 0: 1 -> 2" in capsys.readouterr().out
    producer.produce(topic, b"later", b"k")
    assert producer.flush(30) == 0
    query = started()
    query.processAllAvailable()
    assert sum(one["numInputRows"] for one in query.recentProgress) == 1
    query.stop()
    assert main(["lake", "resume"]) == 0
    with closing(GroupOffsets(stack.brokers, f"{topic}-group")) as group:
        group.load([topic])
        assert group._committed == {(topic, 0): (3, "")}
    admin.delete_topics([topic])[topic].result()
