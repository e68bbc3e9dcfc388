"""Incremental views in SQL on a real lake and Cassandra: after each run their rows equal those of one fold over all events."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from starling_common.settings import Clock
from starling_rules.sql.runs import ACTIVE, FAILED, REFUSED
from starling_spark.jobs.sql_traits import days, tables
from starling_spark.jobs.sql_traits.store import VIEWS
from starling_spark.jobs.sql_traits.views import view_lake
from tests.conftest import Stack
from tests.spark.sql_rig import START, Killed, KilledStore, Rig, declared, event, opened_rig

BY_DAY = {"column": "day", "watermark": "7d"}
ORDERS = (
    "SELECT to_date(event_time) AS day, user_id AS user, count(*) AS orders FROM event_order GROUP BY to_date(event_time), user_id"
)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def rig(spark: SparkSession, stack: Stack) -> Iterator[Rig]:
    with opened_rig(spark, stack) as made:
        declared(made, "order", "Order Completed", [{"name": "revenue", "type": "integer"}])
        yield made


def counted(events: Sequence[dict[str, Any]], zone: str = "UTC") -> dict[tuple[date, str], int]:
    """The statement `ORDERS` in Python."""
    found: dict[tuple[date, str], int] = defaultdict(int)
    for one in events:
        if one["workspace"] == "acme" and one["name"] == "Order Completed":
            found[one["event_time"].astimezone(ZoneInfo(zone)).date(), one["user_id"]] += 1
    return dict(found)


def shown(rig: Rig, key: str = "orders") -> dict[tuple[date, str], int]:
    rows = view_lake(rig.spark, "acme").rows(key).collect()
    found = {(row["day"], row["user"]): row["orders"] for row in rows}
    assert len(found) == len(rows)
    return found


def performed(rig: Rig, *, full: bool = False, timezone: str = "UTC", sql: str = ORDERS) -> int | None:
    """Perform a run; return the number of days that it computed."""
    rig.ordered_view("orders", sql, timezone=timezone, incremental=BY_DAY, full=full)
    assert rig.perform() == {ACTIVE: 1}
    return rig.view("orders").days


@pytest.mark.long
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_run_computes_the_days_of_new_events_and_equals_one_over_all(rig: Rig, zone: str) -> None:
    dice = random.Random(7)
    events: list[dict[str, Any]] = []

    def add(new: Sequence[dict[str, Any]]) -> int:
        """Return the number of days of new orders."""
        events.extend(new)
        rig.add("behaviour_events", new)
        return len({day for day, _ in counted(new, zone)})

    # 23:31 in Greenwich is the next day in Berlin.
    add([event("ann", 85.98, 1), *(event(f"u{dice.randrange(9)}", dice.uniform(0, 90), 1) for _ in range(200))])
    assert performed(rig, timezone=zone) is None
    assert shown(rig) == counted(events, zone)
    for _ in range(4):
        low = dice.uniform(0, 88)
        touched = add([event(f"u{dice.randrange(9)}", dice.uniform(low, low + 2), 1) for _ in range(dice.randrange(1, 12))])
        add([event("ann", 40, 1, name="Page"), event("other", 41, 1, workspace="shop")])
        assert performed(rig, timezone=zone) == touched
        assert shown(rig) == counted(events, zone)
    assert performed(rig, timezone=zone) == 0
    assert rig.view("orders").users == len(counted(events, zone))
    assert performed(rig, timezone=zone, full=True) is None
    assert shown(rig) == counted(events, zone)


@pytest.mark.long
def test_a_changed_past_is_computed_as_a_whole(rig: Rig) -> None:
    events = [event(f"u{n % 3}", n / 4, 1) for n in range(80)]
    rig.add("behaviour_events", events)
    assert performed(rig) is None

    # A compaction changes no row.
    rig.lake.call("rewrite_data_files", "behaviour_events", "options => map('rewrite-all', 'true')")
    rig.add("behaviour_events", [new := event("bob", 3, 1)])
    assert performed(rig) == 1
    assert shown(rig) == counted([*events, new])

    rig.spark.sql(f"DELETE FROM {rig.lake.name('behaviour_events')} WHERE user_id = 'u1'")  # noqa: S608 - a name of ours
    left = [one for one in [*events, new] if one["user_id"] != "u1"]
    assert performed(rig) is None
    assert shown(rig) == counted(left)

    # The snapshot of the run before is gone.
    rig.add("behaviour_events", [late := event("eve", 5, 1)])
    at = "older_than => timestamp_millis(4000000000000), retain_last => 1"
    rig.lake.call("expire_snapshots", "behaviour_events", at)
    assert performed(rig) is None
    assert shown(rig) == counted([*left, late])

    # Another column of the day, another statement, and then no days at all.
    sql = ORDERS.replace("AS day,", "AS day, to_date(event_time) AS other,")
    assert performed(rig, sql=sql) is None
    rig.ordered_view("orders", sql, incremental={"column": "other"})
    assert rig.perform() == {ACTIVE: 1}
    assert rig.view("orders").days is None
    assert shown(rig) == counted([*left, late])
    other = ORDERS.replace("count(*)", "count(*) * 2")
    assert performed(rig, sql=other) is None
    assert shown(rig) == {at: 2 * number for at, number in counted([*left, late]).items()}
    rig.ordered_view("orders", ORDERS)
    assert rig.perform() == {ACTIVE: 1}
    assert (rig.view("orders").days, rig.view("orders").late_rows) == (None, None)
    assert shown(rig) == counted([*left, late])
    assert performed(rig) is None


@pytest.mark.long
def test_a_run_that_is_killed_or_fails_computes_its_days_again(rig: Rig) -> None:
    events = [event(f"u{n % 3}", n / 4, 1) for n in range(80)]
    rig.add("behaviour_events", events)
    assert performed(rig) is None
    rig.add("behaviour_events", [new := event("bob", 3, 1)])
    rig.ordered_view("orders", ORDERS, incremental=BY_DAY)
    with pytest.raises(Killed):
        rig.perform(views=KilledStore(rig.database, "set_computed", VIEWS))
    assert rig.perform() == {ACTIVE: 1}
    assert shown(rig) == counted([*events, new])

    # A check sees the whole table, and the days of a refused result are computed by the next run.
    rig.add("behaviour_events", [again := event("bob", 4, 1), event("bob", 4, 1)])
    few = [{"range": {"column": "orders", "max": 1}}]
    rig.ordered_view("orders", ORDERS, incremental=BY_DAY, checks=few)
    assert rig.perform() == {FAILED: 1}
    assert shown(rig) == counted([*events, new])
    rig.ordered_view("orders", ORDERS, incremental=BY_DAY, checks=[{"volume": {"min": len(counted(events)) + 2}}])
    assert rig.perform() == {ACTIVE: 1}
    assert rig.view("orders").days == 1
    assert shown(rig) == counted([*events, new, again, again])


@pytest.mark.long
def test_late_days_wait_for_the_next_day(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 20, 12, tzinfo=BERLIN)
    rig.place = replace(rig.place, clock=Clock.WALL)

    def at(moment: datetime) -> int | None:
        monkeypatch.setattr(tables, "wall_clock_ms", lambda: round(moment.timestamp() * 1000))
        return performed(rig, timezone="Europe/Berlin")

    def on(moment: datetime) -> dict[str, Any]:
        return event("ann", (moment - START) / timedelta(days=1), 1)

    rig.add("behaviour_events", events := [on(now - timedelta(days=day)) for day in range(40)])
    assert at(now) is None
    rig.add("behaviour_events", [in_time := on(datetime(2026, 3, 13, 0, 0, 1, tzinfo=BERLIN))])
    late = [on(datetime(2026, 3, 12, 23, 59, 59, tzinfo=BERLIN)), on(now - timedelta(days=30)), on(now - timedelta(days=30))]
    rig.add("behaviour_events", late[:2])
    assert (at(now + timedelta(hours=1)), rig.view("orders").late_rows) == (1, 2)
    assert shown(rig) == counted([*events, in_time], "Europe/Berlin")
    rig.add("behaviour_events", late[2:])
    assert (at(now + timedelta(hours=11.9)), rig.view("orders").late_rows) == (0, 3)
    assert shown(rig) == counted([*events, in_time], "Europe/Berlin")
    assert (at(now + timedelta(hours=12)), rig.view("orders").late_rows) == (2, 0)
    assert shown(rig) == counted([*events, in_time, *late], "Europe/Berlin")


@pytest.mark.long
def test_days_that_are_not_those_of_events_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.add("behaviour_events", events := [event("ann", 1, 1), event("ann", 2, 1)])
    for sql, message in (
        ("SELECT date_add(to_date(event_time), 1) AS day, user_id AS user, 1 AS orders FROM events", "2026-01-06, and no event"),
        ("SELECT CAST(to_date(event_time) AS STRING) AS day, user_id AS user, 1 AS orders FROM events", "of the type string"),
        ("SELECT CASE WHEN kind = '' THEN to_date(event_time) END AS day, user_id AS user, 1 AS orders FROM events", "day is null"),
    ):
        rig.ordered_view("orders", sql, incremental=BY_DAY)
        rig.perform()
        rig.add("behaviour_events", [event("ann", 4, 1)])
        rig.ordered_view("orders", sql, incremental=BY_DAY)
        assert rig.perform() == {REFUSED: 1}
        assert message in str(rig.view("orders").message)
    # So many days at once are computed with all others.
    monkeypatch.setattr(days, "MOST_DAYS", 2)
    assert performed(rig) is None
    rig.add("behaviour_events", events)
    assert performed(rig) == 2
    rig.add("behaviour_events", [event("ann", 10 + day, 1) for day in range(3)])
    assert performed(rig) is None


@pytest.mark.long
def test_a_run_of_many_days_writes_one_file_after_the_other(rig: Rig) -> None:
    """A writer for each day at the same time would need more memory than the JVM has."""
    rig.add("behaviour_events", events := [event("ann", -day, 1) for day in range(3_000)])
    assert performed(rig) is None
    assert shown(rig) == counted(events)
    rig.ordered_view("orders", ORDERS, archived=True)  # the other tests would maintain so many files
    assert rig.perform() == {ACTIVE: 1}


@pytest.mark.long
def test_former_days_keep_the_profiles_of_their_runs(rig: Rig) -> None:
    def plan(name: str, offset: int) -> dict[str, Any]:
        return {
            "workspace": "acme", "user_id": "ann", "event_time": START, "received_at": START, "order": START, "anonymous_ids": [],
            "traits": json.dumps({"plan": name}), "origin_partition": 0, "origin_offset": offset,
        }  # fmt: skip

    sql = """WITH own AS (SELECT to_date(event_time) AS day, user_id FROM events)
SELECT o.day AS day, get_json_object(p.traits, '$.plan') AS user, count(*) AS orders
FROM own o JOIN profiles p ON p.user_id = o.user_id
GROUP BY o.day, get_json_object(p.traits, '$.plan')"""
    rig.add("profile_changes", [plan("free", 1)])
    rig.add("behaviour_events", [event("ann", 1, 1), event("ann", 2, 1)])
    assert performed(rig, sql=sql) is None
    rig.add("profile_changes", [plan("pro", 2)])
    rig.add("behaviour_events", [event("ann", 2, 1)])
    assert performed(rig, sql=sql) == 1
    assert shown(rig) == {(date(2026, 1, 2), "free"): 1, (date(2026, 1, 3), "pro"): 2}
