"""Adapter: where reprocessings are kept: each in a namespace of its own, beside the lake's."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession, types

from starling_common.topics import AGGREGATES, BEHAVIOUR, INGEST_TOPICS, PRODUCTS, PROFILE
from starling_spark.jobs.reprocess.plan import Plan
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.positions import Position
from starling_spark.lakehouse.tables import ORIGIN, PROPERTIES, QUARANTINE, QUARANTINE_COLUMNS, TABLES

CARRIED: Final = (*INGEST_TOPICS, BEHAVIOUR, PROFILE, PRODUCTS)
"""The topics whose values this job reads or writes."""

REACHED: Final = (*INGEST_TOPICS, AGGREGATES, BEHAVIOUR, PROFILE)
"""The topics whose ends say up to when everything is at hand."""

_MADE: Final[Mapping[str, str]] = {"behaviour_events": BEHAVIOUR, "profile_changes": PROFILE}
_ABOUT: Final = "about"
_ABOUT_COLUMNS: Final = types.StructType([types.StructField("text", types.StringType())])
# An hour's rows go to one task: a task with rows of ten years would else open 90,000 files.
_PROPERTIES: Final = MappingProxyType({**PROPERTIES, "write.distribution-mode": "hash"})


@dataclass(frozen=True, slots=True)
class Place:
    """What a run works with."""

    spark: SparkSession
    wire: Wire
    settings: ReprocessSettings
    lake: Lake

    def topic(self, name: str) -> str:
        """As it is called here."""
        return self.settings.lake_topic_prefix + name


class Tables:
    """The tables of one reprocessing: the event tables, a quarantine, and what it says about itself."""

    def __init__(self, place: Place, name: str) -> None:
        self._spark = place.spark
        self._wire = place.wire
        self._prefix = place.settings.lake_topic_prefix
        self.lake = place.lake.sibling(name, _PROPERTIES)

    def plan(self) -> Plan | None:
        """None: there is no such reprocessing."""
        if not self.lake.exists(_ABOUT):
            return None
        found = self.lake.rows(_ABOUT).collect()
        return msgspec.json.decode(found[0]["text"], type=Plan) if found else None

    def tell(self, plan: Plan) -> None:
        """What the reprocessing says about itself from now on."""
        text = msgspec.json.encode(plan).decode()
        self.lake.replace(_ABOUT, self._spark.createDataFrame([(text,)], _ABOUT_COLUMNS))

    def make(self, plan: Plan) -> None:
        """Empty tables for that plan, in place of all that is there; the plan comes last, without it nothing counts."""
        self.remove()
        layout = {one.name: one for one in TABLES}
        for table, topic in _MADE.items():
            columns = columns_of(self._wire.of(self._prefix + topic).reader_schema)
            wanted = types.StructType([*columns.fields, *ORIGIN.fields])
            self.lake.ensure(table, wanted, layout[table].partitioning, layout[table].sorted_by)
        self.lake.ensure(QUARANTINE, QUARANTINE_COLUMNS, ("hours(origin_timestamp)", "origin_topic"), ())
        self.lake.ensure(_ABOUT, _ABOUT_COLUMNS, (), ())
        self.tell(plan)

    def remove(self) -> None:
        """The plan goes first."""
        for table in (_ABOUT, QUARANTINE, *_MADE):
            self.lake.drop(table)

    def append(self, table: str, rows: DataFrame, partitions: list[int]) -> None:
        """The rows of these partitions, once: a table that has them already is left alone."""
        had = self.lake.position(table)
        own = {("partition", number): 1 for number in partitions}
        if not had.keys() >= own.keys():
            self.lake.append(table, rows, _and(had, own))


def _and(had: Position, own: Position) -> Position:
    return {**had, **own}
