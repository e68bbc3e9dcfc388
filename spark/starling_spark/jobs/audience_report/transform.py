"""Changes of membership -> the report's rows: DataFrame in, DataFrame out. No session, no broker, no database.

A day is a calendar day of the workspace's time zone. A size is the number of members at the end of the day. A user who enters
and leaves on one day counts as an entry and an exit, and not in the size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions

from starling_spark.history.memberships import PAIR, members

_DAY_MS: Final = 86_400_000
_SEGMENT: Final = ("workspace", "segment_key")


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days of a report. `zones`: workspace -> IANA time zone, by default UTC; `until_ms`: the end of the report."""

    until_ms: int
    zones: Mapping[str, str]

    def day(self, ms: Column) -> Column:
        """Return the date of an instant, independent of the session's time zone."""
        midnight = functions.make_dt_interval(
            functions.floor(ms / _DAY_MS).cast("int"),
            functions.lit(0),
            functions.lit(0),
            (functions.pmod(ms, functions.lit(_DAY_MS)) / 1000).cast("decimal(18,6)"),
        )
        utc = functions.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + midnight
        return functions.convert_timezone(functions.lit("UTC"), self._zone(), utc).cast("date")

    def last(self) -> Column:
        """Return the day in which the report ends."""
        return self.day(functions.lit(self.until_ms))

    def last_whole(self) -> Column:
        """Return the last complete day of the report."""
        return functions.date_sub(self.day(functions.lit(self.until_ms + 1)), 1)

    def _zone(self) -> Column:
        zone = functions.lit("UTC")
        for workspace, name in self.zones.items():
            zone = functions.when(functions.col("workspace") == workspace, name).otherwise(zone)
        return zone


def days(changes: DataFrame, calendar: Calendar) -> DataFrame:
    """Return every day of each segment from its first change on, with the days without a change.

    Shape: in: changes of memberships; out: `workspace`, `segment_key`, `day`, `size` (at the end of the day or report),
           `entries`, `exits`, and of these `entries_by_definition`, `exits_by_definition`: caused by a definition of the
           segment, not by an event.
    """
    by_definition = functions.col("cause") == "DEFINITION"
    counted = changes.groupBy(*_SEGMENT, calendar.day(functions.col("at_ms")).alias("day")).agg(
        _count(functions.col("entered")).alias("entries"),
        _count(~functions.col("entered")).alias("exits"),
        _count(functions.col("entered") & by_definition).alias("entries_by_definition"),
        _count(~functions.col("entered") & by_definition).alias("exits_by_definition"),
    )
    known = changes.groupBy(*_SEGMENT).agg(
        functions.min(calendar.day(functions.col("at_ms"))).alias("first_day"),
        _count(functions.col("first") & ~functions.col("entered")).alias("before"),
    )
    every = known.select(*_SEGMENT, "before", functions.explode(functions.sequence("first_day", calendar.last())).alias("day"))
    numbers = ("entries", "exits", "entries_by_definition", "exits_by_definition")
    filled = every.join(counted, [*_SEGMENT, "day"], "left").fillna(0, numbers)
    moved = functions.sum(functions.col("entries") - functions.col("exits")).over(Window.partitionBy(*_SEGMENT).orderBy("day"))
    return filled.select(*_SEGMENT, "day", (functions.col("before") + moved).alias("size"), *numbers)


def retention(memberships: DataFrame, calendar: Calendar, days_later: Sequence[int]) -> DataFrame:
    """Return how many of the users who entered on a day are members at the end of the n-th day after it.

    An absence in between does not matter.

    Shape: in: memberships with entry and exit time; out: `workspace`, `segment_key`, `day`, `days_later`, `entered` (users),
           `still`; only for complete days.
    """
    dated = memberships.select(
        *PAIR, calendar.day(functions.col("since_ms")).alias("since"), calendar.day(functions.col("left_ms")).alias("left")
    )
    people = dated.groupBy(*PAIR).agg(functions.collect_list(functions.struct("since", "left")).alias("stays"))
    entries = functions.array_distinct(functions.filter(functions.col("stays")["since"], lambda day: day.isNotNull()))
    cohorts = (
        people.withColumn("day", functions.explode(entries))
        .withColumn("days_later", functions.explode(functions.array(*map(functions.lit, days_later))))
        .withColumn("then", functions.date_add("day", functions.col("days_later")))
        .where(functions.col("then") <= calendar.last_whole())
    )
    still = functions.exists("stays", lambda stay: _covers(stay, functions.col("then")))
    return cohorts.groupBy(*_SEGMENT, "day", "days_later").agg(functions.count("*").alias("entered"), _count(still).alias("still"))


def overlap(memberships: DataFrame) -> DataFrame:
    """Return the number of users in both of two segments at the end of the report.

    Shape: in: memberships with entry and exit time; out: `workspace`, `segment_key`, `other_key`, `users`: in both orders, and
           each segment with itself; two segments without a common user have no row.
    """
    people = members(memberships).groupBy("workspace", "user_id").agg(functions.collect_set("segment_key").alias("segments"))
    pairs = people.withColumn("segment_key", functions.explode("segments")).withColumn("other_key", functions.explode("segments"))
    return pairs.groupBy(*_SEGMENT, "other_key").agg(functions.count("*").alias("users"))


def _count(condition: Column) -> Column:
    return functions.count_if(condition)


def _covers(stay: Column, day: Column) -> Column:
    return (stay["since"].isNull() | (stay["since"] <= day)) & (stay["left"].isNull() | (stay["left"] > day))
