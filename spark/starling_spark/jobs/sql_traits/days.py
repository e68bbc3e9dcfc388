"""Adapter: the days that a run of an incremental view computes: those of the events that the lake got since the run before.

The summary of the view's snapshot has what its rows are made of: the snapshots of the lake, the statement, and the late days that
wait. So rows and progress are committed together, and a run that is repeated finds the days again, or that they are done.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from pyspark.sql import Column, DataFrame, functions, types

from starling_common.settings import Clock
from starling_common.values import deterministic_id
from starling_rules.sql.incremental import Incremental
from starling_spark.jobs.sql_traits.values import ResultRefused
from starling_spark.lakehouse.in_force import corrected
from starling_spark.lakehouse.pinned import PinnedLake

SUMMARY: Final = "starling.view"
"""The entry of the summary of a view's snapshot with its `Progress`."""
MOST_DAYS: Final = 400
"""Of one run. More of them are computed with all others: a condition for each would make a plan that Spark is slow to read."""
_EVENTS: Final = "behaviour_events"
_DAY: Final = timedelta(days=1)


class Progress(msgspec.Struct, frozen=True):
    """What the rows of a view are made of.

    `statement`: the digest of what defines them; `snapshots`: of the lake, by table; `late`: day -> events that wait; `last_day`:
    the day on which late days were last computed.
    """

    statement: str
    snapshots: Mapping[str, int | None]
    late: Mapping[str, int]
    last_day: str


class Plan(NamedTuple):
    """What one run computes. `column`: of the day; `days`: None: all; `progress`: once they are computed."""

    column: str
    days: Sequence[date] | None
    progress: Progress

    @property
    def late_rows(self) -> int:
        """Return the number of events that wait."""
        return sum(self.progress.late.values())

    def of_days(self, events: DataFrame) -> DataFrame:
        """Return the events of the days. The days are those of the time zone of the session."""
        if self.days is None:
            return events
        zone = ZoneInfo(str(events.sparkSession.conf.get("spark.sql.session.timeZone")))
        within = [_between(first, last, zone) for first, last in _ranges(self.days)]
        return events.where(reduce(or_, within, functions.lit(False)))


class Asked(NamedTuple):
    """What the lake is asked for one run. `names`: of the events that the statement reads; None: of any name."""

    workspace: str
    names: Sequence[str] | None
    statement: str
    at_ms: int
    clock: Clock


def digest(sql: str, columns: types.StructType, timezone: str, column: str) -> str:
    """Return the digest of what defines the rows of a view. With another one no row of before is kept. `column`: of the day."""
    return deterministic_id("sql-view", sql, columns.simpleString(), timezone, column)


def planned(lake: PinnedLake, incremental: Incremental, before: str | None, asked: Asked) -> Plan:
    """Return what a run computes. `before`: the entry `SUMMARY` of the view's snapshot.

    All days are computed for a view without rows, for another statement, and if rows of the lake were changed or deleted since the
    run before, or its snapshot of the lake has expired.
    """
    zone = ZoneInfo(str(lake.spark.conf.get("spark.sql.session.timeZone")))
    today = datetime.fromtimestamp(asked.at_ms / 1000, zone).date()
    progress = Progress(asked.statement, _snapshots(lake), {}, today.isoformat())
    everything = Plan(incremental.column, None, progress)
    known = None if before is None or incremental.full else msgspec.json.decode(before, type=Progress)
    if known is None or known.statement != asked.statement:
        return everything
    found = _new_events(lake, known, progress, asked)
    if found is None:
        return everything
    waiting = Counter(known.late)
    if asked.clock is Clock.EVENT or known.last_day < progress.last_day:
        days, late = {*found, *waiting}, Counter[str]()
    else:
        oldest = datetime.fromtimestamp((asked.at_ms - incremental.watermark_ms) / 1000, zone).date().isoformat()
        late = waiting + Counter({day: count for day, count in found.items() if day < oldest})
        days = {day for day in found if day >= oldest}
    if len(days) > MOST_DAYS:
        return everything
    return Plan(incremental.column, sorted(map(date.fromisoformat, days)), msgspec.structs.replace(progress, late=late))


def check_days(result: DataFrame, plan: Plan) -> None:
    """Raise ResultRefused for rows that do not belong to the days of a plan. Shape: `result` is stored."""
    kinds = {field.name.lower(): field.dataType for field in result.schema.fields}
    if not isinstance(kinds[plan.column], types.DateType):
        kind = kinds[plan.column].simpleString()
        raise ResultRefused(f"{plan.column} is of the type {kind}: select to_date(event_time) AS {plan.column}")
    found = {row[0] for row in result.select(plan.column).distinct().collect()}
    strays = found - set(plan.days) if plan.days is not None else found & {None}
    if strays:
        named = ", ".join(sorted("null" if one is None else one.isoformat() for one in strays)[:3])
        cure = f"select to_date(event_time) AS {plan.column}"
        raise ResultRefused(f"{plan.column} is {named}, and no event of that day was read: {cure}")


def _snapshots(lake: PinnedLake) -> dict[str, int | None]:
    """Return the snapshots of the tables whose rows are the events."""
    now, tables = corrected(lake), {lake.name(_EVENTS): lake.snapshot(_EVENTS)}
    if now is not None:
        other = lake.sibling(now.name)
        tables[other.name(_EVENTS)] = other.snapshot(_EVENTS)
    return tables


def _new_events(lake: PinnedLake, known: Progress, now: Progress, asked: Asked) -> Counter[str] | None:
    """Return the number of new events by day; None if they are not known."""
    own = lake.name(_EVENTS)
    others = [{name: one for name, one in tables.items() if name != own} for tables in (known.snapshots, now.snapshots)]
    since = known.snapshots.get(own)
    rows = None if others[0] != others[1] or since is None else lake.appended(_EVENTS, since)
    if rows is None:
        return None
    rows = rows.where(functions.col("workspace") == functions.lit(asked.workspace))
    if asked.names is not None:
        rows = rows.where(functions.col("name").isin(list(asked.names)))
    days = rows.groupBy(functions.to_date("event_time").alias("day")).count().collect()
    return Counter({row["day"].isoformat(): row["count"] for row in days})


def _ranges(days: Iterable[date]) -> Iterator[tuple[date, date]]:
    """Yield the first and the last of each row of successive days. Shape: `days` ascend."""
    first = last = None
    for day in days:
        if first is None or last is None or day != last + _DAY:
            if first is not None and last is not None:
                yield first, last
            first = day
        last = day
    if first is not None and last is not None:
        yield first, last


def _between(first: date, last: date, zone: ZoneInfo) -> Column:
    begin, end = (datetime(one.year, one.month, one.day, tzinfo=zone).astimezone(UTC) for one in (first, last + _DAY))
    time = functions.col("event_time")
    return (time >= functions.lit(begin)) & (time < functions.lit(end))
