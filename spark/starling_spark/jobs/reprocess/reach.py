"""Adapter: the instant up to which the lake has every received item and its events."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions

from starling_common.kafka.clients import committed, consumer_config, partitions_of, watermarks
from starling_common.kafka.topics import INGEST_TOPICS
from starling_spark.jobs.reprocess.context import REACHED, RunContext
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.in_force import EVENT_TABLES
from starling_spark.lakehouse.positions import Position

Ends = Mapping[tuple[str, int], int]

_TIMEOUT_SECONDS: Final = 30.0


def first_missing(context: RunContext, taken: Position) -> dict[int, int | None]:
    """Partition -> when the first record was received (epoch ms) that the lake or the normalizer lacks; None: there is none.

    `taken`: the position up to which the lake has items and events.
    Reads the ends of the topics, from there on. Raises: KafkaException.
    """
    starts = _starts(context, taken)
    topics = [context.topic(topic) for topic in REACHED]
    found = kafka_past(context.spark, context.settings.kafka.brokers, topics, _as_json(starts))
    ingest = {context.topic(topic) for topic in INGEST_TOPICS}
    # The broker's timestamp of an item is that of its append, which follows its receipt by as long as the edge retried.
    published_ms = round(context.settings.reprocess_settle_seconds * 1000)
    late_ms = functions.when(functions.col("topic").isin(*ingest), published_ms).otherwise(0)
    firsts = found.groupBy("partition").agg(functions.min(functions.col("timestamp_ms") - late_ms).alias("first")).collect()
    first = {row["partition"]: row["first"] for row in firsts}
    return {partition: first.get(partition) for topic, partition in starts if topic in ingest}


def _starts(context: RunContext, lake: Position) -> dict[tuple[str, int], int]:
    """The first offset of each partition that is not taken by the lake, or not by the normalizer."""
    consumer = Consumer(consumer_config(context.settings.kafka.brokers, context.settings.reprocess_normalizer_group))
    try:
        starts: dict[tuple[str, int], int] = {}
        for topic in REACHED:
            name = context.topic(topic)
            parts = [TopicPartition(name, number) for number in _partitions(consumer, name)]
            read = {} if topic in EVENT_TABLES else _committed(consumer, parts)
            for part in parts:
                low, high = watermarks(consumer, name, part.partition, _TIMEOUT_SECONDS)
                kept = lake.get((name, part.partition), 0) if topic in INGEST_TOPICS or topic in EVENT_TABLES else high
                taken = min(kept, read.get(part.partition, kept))
                starts[name, part.partition] = min(max(taken, low), high)
        return starts
    finally:
        consumer.close()


def _committed(consumer: Consumer, parts: Sequence[TopicPartition]) -> dict[int, int]:
    found = committed(consumer, parts, _TIMEOUT_SECONDS)
    return {one.partition: max(one.offset, 0) for one in found}


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    return partitions_of(consumer, topic, _TIMEOUT_SECONDS)


def _as_json(starts: Ends) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in starts.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)
