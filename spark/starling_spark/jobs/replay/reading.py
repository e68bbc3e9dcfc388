"""Adapter: all that happened: from the lake as far as it goes, the rest from the topics."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, types

from starling_common.logs import log
from starling_spark.history.past import FIELDS, corrected_rows, lake_rows, past_rows
from starling_spark.jobs.replay.place import Place
from starling_spark.jobs.replay.profiles import CARRIED
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.in_force import EVENT_TABLES, PAST_TABLES, EventRows, event_rows

_EARLIEST: Final = -2


def all_past(place: Place) -> DataFrame:
    """`past.PAST` of every topic, by the event tables that are in force. Raises: KafkaException, LakePositionLost."""
    return reduce(DataFrame.unionByName, [_past_of(place, topic, FIELDS[topic], in_force=True) for topic in FIELDS])


def live_past(place: Place) -> DataFrame:
    """The same with the profiles that events carry, as they were made live. Raises: as `all_past`."""
    return reduce(DataFrame.unionByName, [_past_of(place, topic, CARRIED[topic], in_force=False) for topic in CARRIED])


def _past_of(place: Place, topic: str, fields: Sequence[str], *, in_force: bool) -> DataFrame:
    table = PAST_TABLES.get(topic)
    if place.lake is None or table is None or not place.lake.exists(table):
        return _from_topic(place, topic, fields, "earliest")
    ends = {partition: end for (name, partition), end in place.lake.position(table).items() if name == place.topic(topic)}
    log(__name__).info("lake_read", table=table, ends=ends)
    corrects = in_force and topic in EVENT_TABLES
    rows = event_rows(place.lake, table) if corrects else EventRows(place.lake.rows(table), None)
    kept = lake_rows(rows.own, topic, fields, ends)
    if rows.corrected is not None:
        kept = kept.unionByName(corrected_rows(rows.corrected, topic, place.topic("")))
    return kept.unionByName(_from_topic(place, topic, fields, _starts(place, topic, ends)))


def _from_topic(place: Place, topic: str, fields: Sequence[str], starts: str) -> DataFrame:
    records = kafka_past(place.spark, place.settings.kafka.brokers, [place.topic(topic)], starts)
    return past_rows(decoded(records, _reading(place, topic, fields)), topic, fields)


def _starts(place: Place, topic: str, ends: Mapping[int, int]) -> str:
    """Where the topic goes on; a partition of which the lake has nothing, from its beginning."""
    name = place.topic(topic)
    offsets = GroupOffsets(place.settings.kafka.brokers, place.settings.instance_id)
    try:
        partitions = [number for _, number in offsets.ends([name])]
    finally:
        offsets.close()
    return json.dumps({name: {str(number): ends.get(number, _EARLIEST) for number in partitions}})


def _reading(place: Place, topic: str, fields: Sequence[str]) -> Reading:
    columns = columns_of(place.wire.of(place.topic(topic)).reader_schema)
    return Reading(place.wire, place.topic(topic), types.StructType([columns[name] for name in fields]))
