"""The end of the complete range, from a real broker: records missing in the lake, or not read by the normalizer."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, PRODUCTS
from starling_common.settings import Kafka
from starling_items.enrich import Product
from starling_spark.jobs.reprocess.catalog import products_now
from starling_spark.jobs.reprocess.context import REACHED, RunContext
from starling_spark.jobs.reprocess.reach import first_missing
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.kafka.codec import Wire
from starling_spark.lakehouse.iceberg import Lake
from tests.conftest import Stack
from tests.spark.conftest import lake_settings
from tests.spark.received import CODECS, WIRE

TRACK, PAGE = "ingest.track", "ingest.page"
TOPICS = (*REACHED, PRODUCTS)


@pytest.fixture
def place(spark: SparkSession, stack: Stack, tmp_path: Path) -> Iterator[RunContext]:
    prefix = f"t{uuid.uuid4().hex[:10]}."
    own = {
        "kafka": Kafka(brokers=stack.brokers), "lake_topic_prefix": prefix, "reprocess_normalizer_group": f"{prefix}normalizer",
    }  # fmt: skip
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    kept = {"retention.ms": "-1"}  # the records are of 1970: the broker looks every five minutes for what is old, and deletes it
    created = [NewTopic(prefix + topic, 3, 1, config=kept) for topic in TOPICS]
    for future in admin.create_topics(created, operation_timeout=30).values():
        future.result()
    settings = ReprocessSettings(**{**lake_settings(tmp_path).model_dump(), "reprocess_settle_seconds": 0.25, **own})
    carried = tuple(replace(one, topic=prefix + one.topic) for one in WIRE.schemas)
    yield RunContext(spark, Wire(WIRE.registry_url, carried), settings, Lake(spark, "of_nothing"))
    for future in admin.delete_topics([prefix + topic for topic in TOPICS], operation_timeout=30).values():
        future.result()


@pytest.mark.long
def test_missing_records_limit_the_complete_range(place: RunContext) -> None:
    producer = Producer(producer_config(place.settings.kafka.brokers))
    given = [(TRACK, 0, 1000), (TRACK, 0, 2000), (TRACK, 0, 3000), (PAGE, 1, 5000), (PAGE, 1, 6000), (PAGE, 2, 7000)]
    for topic, partition, at_ms in given:
        producer.produce(place.topic(topic), b"v", b"k", partition, timestamp=at_ms)
    assert producer.flush(30) == 0
    track, page = place.topic(TRACK), place.topic(PAGE)
    in_lake = {(track, 0): 2, (page, 1): 2, (page, 2): 1}
    _normalized(place, TopicPartition(track, 0, 3), TopicPartition(page, 1, 1), TopicPartition(page, 2, 1))
    assert first_missing(place, in_lake) == {0: 2750, 1: 5750, 2: None}, "the lake lacks the one, the normalizer the other"
    producer.produce(place.topic(AGGREGATES), b"v", b"k", 0, timestamp=2500)
    producer.produce(place.topic(BEHAVIOUR), b"v", b"k", 2, timestamp=4000)
    assert producer.flush(30) == 0
    assert first_missing(place, in_lake) == {0: 2500, 1: 5750, 2: 4000}, (
        "a trait that was not taken; an event that is not in the lake"
    )
    _normalized(place, TopicPartition(place.topic(AGGREGATES), 0, 1))
    assert first_missing(place, in_lake)[0] == 2750
    _the_catalog_is_read_as_it_is_now(place, producer)


def _the_catalog_is_read_as_it_is_now(place: RunContext, producer: Producer) -> None:
    def listed(price: float) -> bytes:
        return CODECS[PRODUCTS].encode({"workspace": "w", "product_id": "p", "category": "hats", "price": price, "listed_at": 1})

    for key, value in (
        (b"w/p", listed(1.0)),
        (b"w/gone", listed(2.0)),
        (b"w/p", listed(3.0)),
        (b"w/p", b"junk"),
        (b"w/gone", None),
    ):
        producer.produce(place.topic(PRODUCTS), value, key)
    assert producer.flush(30) == 0
    assert products_now(place) == {b"w/p": Product("hats", 3.0, None, None)}


def _normalized(place: RunContext, *offsets: TopicPartition) -> None:
    consumer = Consumer(consumer_config(place.settings.kafka.brokers, place.settings.reprocess_normalizer_group))
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()
