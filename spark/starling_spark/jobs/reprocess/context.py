"""Adapter: the tables of reprocessings, each in its own namespace beside the lake's."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession, types

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, INGEST_TOPICS, PRODUCTS, PROFILE
from starling_spark.jobs.reprocess.plan import Plan
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.kafka.codec import Wire
from starling_spark.kafka.columns import columns_of
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.positions import Position
from starling_spark.lakehouse.schema.tables import ORIGIN, PROPERTIES, QUARANTINE, QUARANTINE_COLUMNS, TABLES
from starling_spark.lineage.runs import OFF, Lineage

CARRIED: Final = (*INGEST_TOPICS, BEHAVIOUR, PROFILE, PRODUCTS)
"""The topics whose values this job reads or writes."""

REACHED: Final = (*INGEST_TOPICS, AGGREGATES, BEHAVIOUR, PROFILE)
"""The topics whose offsets determine the instant up to which the lake is complete."""

_MADE: Final[Mapping[str, str]] = {"behaviour_events": BEHAVIOUR, "profile_changes": PROFILE}
_PLAN_TABLE: Final = "about"
_PLAN_COLUMNS: Final = types.StructType([types.StructField("text", types.StringType())])
# One task writes the rows of an hour; a task with rows of ten years would open 90,000 files.
_PROPERTIES: Final = MappingProxyType({**PROPERTIES, "write.distribution-mode": "hash"})


@dataclass(frozen=True, slots=True)
class RunContext:
    """The context of a run."""

    spark: SparkSession
    wire: Wire
    settings: ReprocessSettings
    lake: Lake
    lineage: Lineage = OFF

    def topic(self, name: str) -> str:
        """Return the name of a topic in this installation."""
        return self.settings.lake_topic_prefix + name


class Tables:
    """The tables of one reprocessing: the event tables, a quarantine, and its plan."""

    def __init__(self, context: RunContext, name: str) -> None:
        self._spark = context.spark
        self._wire = context.wire
        self._prefix = context.settings.lake_topic_prefix
        self.lake = context.lake.sibling(name, _PROPERTIES)

    def plan(self) -> Plan | None:
        """Return the plan; None: the reprocessing does not exist."""
        if not self.lake.exists(_PLAN_TABLE):
            return None
        found = self.lake.rows(_PLAN_TABLE).collect()
        return msgspec.json.decode(found[0]["text"], type=Plan) if found else None

    def write_plan(self, plan: Plan) -> None:
        """Replace the stored plan."""
        text = msgspec.json.encode(plan).decode()
        self.lake.replace(_PLAN_TABLE, self._spark.createDataFrame([(text,)], _PLAN_COLUMNS))

    def make(self, plan: Plan) -> None:
        """Replace all tables by empty ones, and write the plan last; tables without a plan are invalid."""
        self.remove()
        layout = {one.name: one for one in TABLES}
        for table, topic in _MADE.items():
            columns = columns_of(self._wire.of(self._prefix + topic).reader_schema)
            wanted = types.StructType([*columns.fields, *ORIGIN.fields])
            self.lake.ensure(table, wanted, layout[table].partitioning, layout[table].sorted_by)
        self.lake.ensure(QUARANTINE, QUARANTINE_COLUMNS, ("hours(origin_timestamp)", "origin_topic"), ())
        self.lake.ensure(_PLAN_TABLE, _PLAN_COLUMNS, (), ())
        self.write_plan(plan)

    def remove(self) -> None:
        """Delete the tables, the plan first."""
        for table in (_PLAN_TABLE, QUARANTINE, *_MADE):
            self.lake.drop(table)

    def append(self, table: str, rows: DataFrame, partitions: list[int]) -> None:
        """Append the rows of these partitions, unless the table has them already."""
        tip = self.lake.tip(table)
        own = {("partition", number): 1 for number in partitions}
        if not tip.position.keys() >= own.keys():
            self.lake.append(table, rows, _and(tip.position, own), tip)


def _and(had: Position, own: Position) -> Position:
    return {**had, **own}
