"""Adapter: all past records: from the lake up to its position, the rest from the topics."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, types

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.telemetry.logs import log
from starling_spark.history.past import FIELDS, corrected_rows, lake_rows, past_rows
from starling_spark.jobs.replay.place import ReplayContext
from starling_spark.kafka.columns import columns_of
from starling_spark.kafka.decoding import Reading, decoded
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.kafka.sources import kafka_past
from starling_spark.lakehouse.in_force import EVENT_TABLES, PAST_TABLES, EventRows, corrected, event_rows
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Dataset

_CARRIED: Final[Mapping[str, tuple[str, ...]]] = {**FIELDS, BEHAVIOUR: (*FIELDS[BEHAVIOUR], "traits")}
"""Topic -> fields to read, with the profile of every event."""

_EARLIEST: Final = -2
_GROUP: Final = "starling-replay"
"""Named for the client library. The job commits nothing."""


def all_past(context: ReplayContext) -> DataFrame:
    """Return `past.PAST` of every topic, from the event tables in force. Raises: KafkaException, LakePositionLost."""
    return reduce(DataFrame.unionByName, [_past_of(context, topic, FIELDS[topic], in_force=True) for topic in FIELDS])


def past_tables(context: ReplayContext, *, versions: bool) -> tuple[Dataset, ...]:
    """Return the tables of the lake that `all_past` reads. `versions`: with the snapshots of the run."""
    if context.lake is None:
        return ()
    own, now = table_datasets(context.lake, *PAST_TABLES.values(), versions=versions), corrected(context.lake)
    others = () if now is None else table_datasets(context.lake.sibling(now.name), *EVENT_TABLES.values(), versions=versions)
    return (*own, *others)


def live_past(context: ReplayContext) -> DataFrame:
    """Return the records from the live event tables, with the profiles on events. Raises: as `all_past`."""
    return reduce(DataFrame.unionByName, [_past_of(context, topic, _CARRIED[topic], in_force=False) for topic in _CARRIED])


def _past_of(context: ReplayContext, topic: str, fields: Sequence[str], *, in_force: bool) -> DataFrame:
    table = PAST_TABLES.get(topic)
    if context.lake is None or table is None or not context.lake.exists(table):
        return _from_topic(context, topic, fields, "earliest")
    ends = {partition: end for (name, partition), end in context.lake.position(table).items() if name == context.topic(topic)}
    log(__name__).info("lake_read", table=table, ends=ends)
    corrects = in_force and topic in EVENT_TABLES
    rows = event_rows(context.lake, table) if corrects else EventRows(context.lake.rows(table), None)
    past = lake_rows(rows.own, topic, fields, ends)
    if rows.corrected is not None:
        past = past.unionByName(corrected_rows(rows.corrected, topic, context.topic("")))
    return past.unionByName(_from_topic(context, topic, fields, _starts(context, topic, ends)))


def _from_topic(context: ReplayContext, topic: str, fields: Sequence[str], starts: str) -> DataFrame:
    records = kafka_past(context.spark, context.settings.kafka.brokers, [context.topic(topic)], starts)
    return past_rows(decoded(records, _reading(context, topic, fields)), topic, fields)


def _starts(context: ReplayContext, topic: str, ends: Mapping[int, int]) -> str:
    """Return the offsets that follow the lake; the earliest one for a partition that the lake lacks."""
    name = context.topic(topic)
    offsets = GroupOffsets(context.settings.kafka.brokers, _GROUP)
    try:
        partitions = [number for _, number in offsets.ends([name])]
    finally:
        offsets.close()
    return json.dumps({name: {str(number): ends.get(number, _EARLIEST) for number in partitions}})


def _reading(context: ReplayContext, topic: str, fields: Sequence[str]) -> Reading:
    columns = columns_of(context.wire.of(context.topic(topic)).reader_schema)
    return Reading(context.wire, context.topic(topic), types.StructType([columns[name] for name in fields]))
