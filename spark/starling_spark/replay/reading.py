"""Adapter: all that happened: from the lake as far as it goes, the rest from the topics."""

import json
from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, types

from starling_common.logs import log
from starling_common.topics import BEHAVIOUR, PROFILE
from starling_spark.columns import columns_of
from starling_spark.decoding import Reading, decoded
from starling_spark.groups import GroupOffsets
from starling_spark.replay.past import FIELDS, lake_rows, past_rows
from starling_spark.replay.place import Place
from starling_spark.sources import kafka_past

LAKE_TABLES: Final[Mapping[str, str]] = {BEHAVIOUR: "behaviour_events", PROFILE: "profile_changes"}
"""Topic -> its table in the lake."""

_EARLIEST: Final = -2


def all_past(place: Place) -> DataFrame:
    """`past.PAST` of every topic. Raises: KafkaException, LakeBroken."""
    return reduce(DataFrame.unionByName, [_past_of(place, topic) for topic in FIELDS])


def _past_of(place: Place, topic: str) -> DataFrame:
    if place.lake is None or topic not in LAKE_TABLES:
        return _from_topic(place, topic, "earliest")
    table = LAKE_TABLES[topic]
    ends = {partition: end for (name, partition), end in place.lake.position(table).items() if name == place.topic(topic)}
    log(__name__).info("lake_read", table=table, ends=ends)
    kept = lake_rows(place.spark.table(place.lake.name(table)), topic, ends)
    return kept.unionByName(_from_topic(place, topic, _starts(place, topic, ends)))


def _from_topic(place: Place, topic: str, starts: str) -> DataFrame:
    records = kafka_past(place.spark, place.settings.kafka.brokers, [place.topic(topic)], starts)
    return past_rows(decoded(records, _reading(place, topic)), topic)


def _starts(place: Place, topic: str, ends: Mapping[int, int]) -> str:
    """Where the topic goes on; a partition of which the lake has nothing, from its beginning."""
    name = place.topic(topic)
    offsets = GroupOffsets(place.settings.kafka.brokers, place.settings.instance_id)
    try:
        partitions = [number for _, number in offsets.ends([name])]
    finally:
        offsets.close()
    return json.dumps({name: {str(number): ends.get(number, _EARLIEST) for number in partitions}})


def _reading(place: Place, topic: str) -> Reading:
    columns = columns_of(place.wire.of(place.topic(topic)).reader_schema)
    fields = types.StructType([columns[name] for name in FIELDS[topic]])
    return Reading(place.wire, place.topic(topic), fields)
