"""A checkpoint that continues at records that Kafka no longer has."""

import uuid
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
from starling_spark.kafka.sources import kafka_records
from starling_spark.session.query_metrics import QueryMetrics
from starling_spark.session.running import Running, WatchedQuery
from tests.conftest import Stack


def test_a_query_names_the_cure_when_its_input_has_expired(spark: SparkSession, stack: Stack, tmp_path: Path) -> None:
    topic, admin = f"t{uuid.uuid4().hex[:10]}", AdminClient({"bootstrap.servers": stack.brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer(producer_config(stack.brokers))

    def started() -> StreamingQuery:
        records = kafka_records(spark, stack.brokers, [topic])
        return records.writeStream.format("noop").queryName("lake").option("checkpointLocation", str(tmp_path)).start()

    producer.produce(topic, b"v", b"k")
    assert producer.flush(30) == 0
    query = started()
    query.processAllAvailable()
    query.stop()
    producer.produce(topic, b"v", b"k")
    assert producer.flush(30) == 0
    admin.delete_records([TopicPartition(topic, 0, -1)])[TopicPartition(topic, 0)].result()
    query = started()
    watched = WatchedQuery(Running(query, QueryMetrics(Metrics(CollectorRegistry()), "lake")))
    with pytest.raises(Exception, match="may have been lost"):
        query.processAllAvailable()
    with pytest.raises(InputLost, match=r"lake: the checkpoint continues at records .* delete its directory"):
        watched.poll()
    admin.delete_topics([topic])[topic].result()
