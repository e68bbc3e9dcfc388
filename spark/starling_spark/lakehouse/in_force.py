"""Adapter: the event tables in force: the lake's own, or the corrected ones of a reprocessing.

A table of one row contains the choice, and a switch is one commit to it: a reader sees all tables of one set. Corrected
tables end at an instant in each partition. Later records are only in the lake's own tables, to which the lake job appends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, functions, types

from starling_common.kafka.topics import BEHAVIOUR, DELIVERY, PROFILE
from starling_spark.lakehouse.iceberg import Lake

EVENT_TABLES: Final[Mapping[str, str]] = {BEHAVIOUR: "behaviour_events", PROFILE: "profile_changes"}
"""Topic -> its table in the lake; a reprocessing writes corrected versions of these tables."""
PAST_TABLES: Final[Mapping[str, str]] = {**EVENT_TABLES, DELIVERY: "delivery_reports"}
"""Topic -> its table in the lake, of all inputs of the segmenter that the lake has."""

_TABLE: Final = "events_in_force"
_COLUMNS: Final = types.StructType([types.StructField("text", types.StringType())])


class Corrected(msgspec.Struct, frozen=True):
    """Event tables of a reprocessing. `cut`: partition -> the last instant of receipt that they cover, epoch microseconds."""

    name: str
    cut: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows in force of one event table. `own`: rows of the lake's own table; `corrected`: None without a switch."""

    own: DataFrame
    corrected: DataFrame | None


def corrected(lake: Lake) -> Corrected | None:
    """Return the corrected tables in force; None: the lake's own tables are."""
    if not lake.exists(_TABLE):
        return None
    text = lake.rows(_TABLE).collect()[0]["text"]
    return None if text is None else msgspec.json.decode(text, type=Corrected)


def switch(lake: Lake, to: Corrected | None) -> None:
    """Put corrected tables in force, or with None the lake's own, in one commit."""
    lake.ensure(_TABLE, _COLUMNS, (), ())
    text = None if to is None else msgspec.json.encode(to).decode()
    lake.replace(_TABLE, lake.rows(_TABLE).sparkSession.createDataFrame([(text,)], _COLUMNS))


def event_rows(lake: Lake, table: str) -> EventRows:
    """Return rows of `behaviour_events` or `profile_changes`. `origin_*` of a corrected row is the origin of its ingest item."""
    now, own = corrected(lake), lake.rows(table)
    if now is None:
        return EventRows(own, None)
    uncovered = own.where(~covered(now.cut, functions.unix_micros("received_at")))
    return EventRows(uncovered, lake.sibling(now.name).rows(table))


def covered(cut: Mapping[int, int], received_at: Column) -> Column:
    """Return whether a row was received before the end of the corrected tables. Its partition is `origin_partition`."""
    partition = functions.col("origin_partition")
    return reduce(or_, [(partition == one) & (received_at <= last) for one, last in cut.items()], functions.lit(False))
