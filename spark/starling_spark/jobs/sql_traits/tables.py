"""Adapter: the tables of a workspace for its SQL traits, from pinned snapshots of the lake: DataFrame out."""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, functions

from starling_common.settings import Clock
from starling_common.time.instants import wall_clock_ms
from starling_rules.sql.event_types import COLUMNS, EventType
from starling_rules.sql.tables import ACCOUNTS, EVENTS, MEMBERSHIP_CHANGES, PRODUCTS, PROFILES, TABLES
from starling_spark.jobs.sql_traits import products
from starling_spark.jobs.sql_traits.days import Plan
from starling_spark.jobs.sql_traits.typed import typed
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.in_force import event_rows
from starling_spark.lakehouse.pinned import PinnedLake

SOURCES: Final[Mapping[str, str]] = {
    EVENTS: "behaviour_events",
    PROFILES: "profile_changes",
    MEMBERSHIP_CHANGES: "membership_changes",
    PRODUCTS: products.TABLE,
}
"""Table of a statement -> the table of the lake that it reads."""


class NoTables(Exception):
    """The lake lacks a table; the text names it and the cure."""


def pinned_tables(
    lake: PinnedLake, workspace: str, event_types: Iterable[EventType] = (), plan: Plan | None = None
) -> Mapping[str, DataFrame]:
    """Return the tables of a workspace as of now: later commits do not change them. Raises: NoTables.

    `event_types`: those whose tables are returned too; `plan`: only the events of its days are.
    """
    missing = [table for table in SOURCES.values() if not lake.exists(table)]
    if missing:
        raise NoTables(f"the lake has no table {missing[0]} yet: start the job `lake`")
    changes, events = (_events(lake, SOURCES[name], workspace) for name in (PROFILES, EVENTS))
    found = {
        EVENTS: events if plan is None else plan.of_days(events),
        PROFILES: _newest(changes),
        ACCOUNTS: _accounts(changes),
        **{name: lake.rows(SOURCES[name]).where(_is_in(workspace)) for name in (MEMBERSHIP_CHANGES, PRODUCTS)},
    }
    tables = {name: rows.select(*TABLES[name]) for name, rows in found.items()}
    return tables | {one.table: _of_type(tables[EVENTS], one) for one in event_types}


def sources_of(read: Iterable[str], event_types: Iterable[EventType] = ()) -> tuple[str, ...]:
    """Return the tables of the lake behind the tables that a statement reads, sorted. `event_types`: those that it reads."""
    of_types = {one.table: SOURCES[EVENTS] for one in event_types}
    known = {**SOURCES, ACCOUNTS: SOURCES[PROFILES], **of_types}
    return tuple(sorted({known[name] for name in read if name in known}))


def as_of_ms(tables: Mapping[str, DataFrame], clock: Clock) -> int:
    """Return the time of a run in epoch ms: the wall clock, or by the event clock the latest event; 0 without one."""
    if clock is Clock.WALL:
        return wall_clock_ms()
    row = tables[EVENTS].agg(functions.max(functions.unix_millis("event_time"))).collect()[0]
    return int(row[0] or 0)


def _of_type(events: DataFrame, event_type: EventType) -> DataFrame:
    own = events.where(functions.col("name") == functions.lit(event_type.event))
    return own.select(*COLUMNS, *typed(functions.col("properties"), event_type.properties))


def _events(lake: Lake, table: str, workspace: str) -> DataFrame:
    rows = event_rows(lake, table)
    own = rows.own.where(_is_in(workspace))
    if rows.corrected is None:
        return own
    return own.unionByName(rows.corrected.where(_is_in(workspace)), allowMissingColumns=True)


def _accounts(changes: DataFrame) -> DataFrame:
    """Return each account with the traits of the last group call that named it."""
    call = functions.struct(functions.col("group_traits").alias("traits"), functions.col("event_time").alias("updated_at"))
    calls = changes.where("change = 'GROUP' AND group_id IS NOT NULL")
    # Calls of different users have no order among them but that of their arrival.
    order = functions.struct("received_at", "origin_partition", "origin_offset")
    newest = calls.groupBy(functions.col("group_id").alias("account_id")).agg(functions.max_by(call, order).alias("call"))
    return newest.select("account_id", "call.*")


def _newest(changes: DataFrame) -> DataFrame:
    """Return the profile of each user after the last change."""
    order = functions.coalesce(functions.col("order"), functions.col("received_at"))
    profile = functions.struct("anonymous_ids", "traits", "group_id", functions.col("event_time").alias("updated_at"))
    newest = changes.groupBy("user_id").agg(functions.max_by(profile, functions.struct(order, "origin_offset")).alias("profile"))
    return newest.select("user_id", "profile.*")


def _is_in(workspace: str) -> Column:
    return functions.col("workspace") == functions.lit(workspace)
