"""Adapter: which event tables are in force: the lake's own, or those that a reprocessing wrote beside them.

A table of one row says so, and a switch is one commit to it: every reader finds all tables of the one or of the other. Corrected
tables end at an instant in each partition; what was received later stands in the lake's own tables alone, which go on growing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, functions, types

from starling_common.topics import BEHAVIOUR, DELIVERY, PROFILE
from starling_spark.lakehouse.iceberg import Lake

EVENT_TABLES: Final[Mapping[str, str]] = {BEHAVIOUR: "behaviour_events", PROFILE: "profile_changes"}
"""Topic -> its table in the lake; these a reprocessing writes anew."""
PAST_TABLES: Final[Mapping[str, str]] = {**EVENT_TABLES, DELIVERY: "delivery_reports"}
"""The same with all that makes up the past and that the lake has."""

_TABLE: Final = "events_in_force"
_COLUMNS: Final = types.StructType([types.StructField("text", types.StringType())])


class Corrected(msgspec.Struct, frozen=True):
    """Event tables of a reprocessing. `cut`: partition -> the last instant of receipt that they cover, epoch microseconds."""

    name: str
    cut: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows of one event table. `corrected`: None where none are in force; `own`: of the lake's own those that are."""

    own: DataFrame
    corrected: DataFrame | None


def corrected(lake: Lake) -> Corrected | None:
    """The corrected tables in force; None: the lake's own are."""
    if not lake.exists(_TABLE):
        return None
    text = lake.rows(_TABLE).collect()[0]["text"]
    return None if text is None else msgspec.json.decode(text, type=Corrected)


def switch(lake: Lake, to: Corrected | None) -> None:
    """Put these in force, or the lake's own: one commit."""
    lake.ensure(_TABLE, _COLUMNS, (), ())
    text = None if to is None else msgspec.json.encode(to).decode()
    lake.replace(_TABLE, lake.rows(_TABLE).sparkSession.createDataFrame([(text,)], _COLUMNS))


def event_rows(lake: Lake, table: str) -> EventRows:
    """Rows of `behaviour_events` or `profile_changes`. `origin_*` of a corrected row is the place of the item that it is of."""
    now, own = corrected(lake), lake.rows(table)
    if now is None:
        return EventRows(own, None)
    return EventRows(own.where(~covered(now.cut, functions.unix_micros("received_at"))), lake.sibling(now.name).rows(table))


def covered(cut: Mapping[int, int], received_at: Column) -> Column:
    """Whether a row was received before corrected tables end. Its partition is `origin_partition`."""
    partition = functions.col("origin_partition")
    return reduce(or_, [(partition == one) & (received_at <= last) for one, last in cut.items()], functions.lit(False))
