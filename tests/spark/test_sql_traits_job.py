"""The job `sql_traits` on a real lake, broker and Cassandra: values and views equal pandas, kills, and what Spark refuses."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from urllib.parse import urlsplit

import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions

from starling_common.kafka.topics import PRODUCTS
from starling_common.values import deterministic_id
from starling_rules.sql.event_types import Property
from starling_rules.sql.runs import ACTIVE, FAILED, REFUSED
from starling_spark.jobs.sql_traits import products, results
from starling_spark.jobs.sql_traits.job import PINNING, Limits
from starling_spark.jobs.sql_traits.plan import PlanRefused, check_plan
from starling_spark.jobs.sql_traits.store import VIEWS
from starling_spark.jobs.sql_traits.tables import SOURCES, pinned_tables
from starling_spark.jobs.sql_traits.typed import typed
from starling_spark.jobs.sql_traits.values import json_values
from starling_spark.jobs.sql_traits.views import view_lake
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.pinned import pinned
from tests.conftest import Stack
from tests.lineage_receiver import places, rows_of, sent_lineage
from tests.spark.conftest import spark_settings
from tests.spark.sql_rig import GENEROUS, SPENT, START, TEXT, Killed, KilledStore, Rig, columns, declared, event, opened_rig


@pytest.fixture
def rig(spark: SparkSession, stack: Stack) -> Iterator[Rig]:
    with opened_rig(spark, stack) as made:
        yield made


def spent(events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The statement `SPENT` in pandas."""
    frame = pd.DataFrame([one for one in events if one["workspace"] == "acme"])
    frame["revenue"] = [json.loads(text)["revenue"] for text in frame["properties"]]
    as_of = frame["event_time"].max()
    recent = frame[(frame["name"] == "Order Completed") & (frame["event_time"] > as_of - pd.Timedelta(days=30))]
    return {str(user): int(value) for user, value in recent.groupby("user_id")["revenue"].sum().items()}


def test_values_equal_pandas_and_only_differences_are_published(rig: Rig) -> None:
    dice = random.Random(11)
    events = [event(f"u{dice.randrange(80)}", dice.uniform(0, 60), dice.randrange(100)) for _ in range(1_500)]
    events += [event(f"u{dice.randrange(80)}", dice.uniform(0, 60), 7, name="Page") for _ in range(100)]
    events += [event("other", 59, 5, workspace="shop")]
    rig.add("behaviour_events", events)
    run = rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 1}
    first = spent(events)
    records = rig.published(len(first))
    assert {one["user_id"]: json.loads(one["value"]) for one in records} == first
    assert {one["event_id"] for one in records} == {deterministic_id("sql-trait", run, user) for user in first}
    row = rig.row("spent")
    assert (row.state, row.users, row.published) == (ACTIVE, len(first), len(first))
    assert row.as_of_ms == int(max(one["event_time"] for one in events if one["workspace"] == "acme").timestamp() * 1000)
    assert row.scanned_bytes
    assert all(one["as_of"] == row.as_of_ms and one["trait_version"] == 1 for one in records)

    # Nothing new: nothing is published. Then time passes: users leave the window, and their values are withdrawn.
    rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 1}
    assert rig.row("spent").published == 0
    events += [event(f"u{dice.randrange(80)}", 75, dice.randrange(1, 100)) for _ in range(5)]
    rig.add("behaviour_events", events[-5:])
    rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 1}
    second = spent(events)
    wanted = {user: second.get(user) for user in first | second if first.get(user) != second.get(user)}
    changes = rig.published(rig.row("spent").published or 0)
    assert None in wanted.values()
    assert {one["user_id"]: None if one["value"] is None else json.loads(one["value"]) for one in changes} == wanted

    # The end of the trait withdraws every value, and no rows of it stay.
    rig.ordered("spent", SPENT, archived=True)
    assert rig.perform() == {ACTIVE: 1}
    assert {one["user_id"]: one["value"] for one in rig.published(len(second))} == dict.fromkeys(second)
    assert rig.stored() == 0


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_with_the_same_ids(rig: Rig) -> None:
    rig.add("behaviour_events", [event("ann", 1, 5), event("bob", 2, 7)])
    rig.ordered("spent", SPENT)
    with pytest.raises(Killed):
        rig.perform(KilledStore(rig.database, "set_computed"))
    assert rig.stored() == 2  # rows of which nothing is known: they are computed again
    with pytest.raises(Killed):
        rig.perform(KilledStore(rig.database, "end_published"))
    before = rig.published(2)
    rig.add("behaviour_events", [event("cid", 3, 9)])  # not in the rows of this run
    assert rig.perform() == {ACTIVE: 1}
    again = rig.published(2)
    assert sorted(again, key=str) == sorted(before, key=str)
    assert rig.stored() == 2
    rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 1}
    assert [(one["user_id"], one["value"]) for one in rig.published(1)] == [("cid", "9")]


@pytest.mark.long
def test_a_run_that_ends_the_job_each_time_fails_and_does_not_keep_others_from_running(rig: Rig) -> None:
    rig.add("behaviour_events", [event("ann", 1, 5)])
    rig.ordered("bad", SPENT)
    for _ in range(3):
        with pytest.raises(Killed):
            rig.perform(KilledStore(rig.database, "set_computed"))
    rig.ordered("good", SPENT)
    assert rig.perform() == {FAILED: 1, ACTIVE: 1}
    assert "ended 3 times" in str(rig.row("bad").message)
    assert len(rig.published(1)) == 1


@pytest.mark.long
def test_runs_emit_their_statements_tables_and_records(rig: Rig, tmp_path: Path) -> None:
    rig.add("behaviour_events", [event("planted-ann", 1, 5), event("planted-bob", 2, 7)])
    per_user = "SELECT user_id, count(*) AS value FROM events WHERE user_id LIKE 'planted%' GROUP BY user_id"
    rig.ordered("visits", per_user)
    rig.ordered("wrong", "SELECT user_id, anonymous_ids AS value FROM profiles WHERE user_id = 'planted'")
    rig.ordered_view("kinds", "SELECT kind, count(*) AS events FROM events GROUP BY kind")
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        assert rig.perform(lineage=lineage) == {ACTIVE: 2, REFUSED: 1}
        snapshot = rig.lake.snapshot("behaviour_events")
    ends = {one["job"]["name"]: one for one in receiver.events() if one["eventType"] != "START"}
    assert {name: one["eventType"] for name, one in ends.items()} == {
        "sql_traits.acme.visits": "COMPLETE",
        "sql_traits.acme.wrong": "FAIL",
        "sql_views.acme.kinds": "COMPLETE",
    }
    trait, view = ends["sql_traits.acme.visits"], ends["sql_views.acme.kinds"]
    assert trait["job"]["facets"]["sql"]["query"].endswith("FROM events WHERE user_id LIKE ? GROUP BY user_id")
    assert trait["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2026-01-03T00:00:00.000+00:00"
    events = urlsplit(rig.lake.location("behaviour_events")).path
    for one in (trait, view):
        assert places(one["inputs"]) == [("file", events)]
        assert one["inputs"][0]["facets"]["version"]["datasetVersion"] == str(snapshot)
    target = rig.place.target
    assert places(trait["outputs"])[1] == (f"kafka://{target.brokers}", target.topic)
    assert list(rows_of(trait).values()) == [2, 2]
    assert list(rows_of(view).values()) == [1]
    assert places(ends["sql_traits.acme.wrong"]["inputs"])[0][1].endswith("profile_changes")
    assert "value is of the type array<string>" in ends["sql_traits.acme.wrong"]["run"]["facets"]["errorMessage"]["message"]
    assert "planted" not in "".join(receiver.bodies)


@pytest.mark.parametrize(
    ("sql", "limits", "state", "message"),
    [
        ("SELECT user_id, 1 AS value FROM events", GENEROUS, REFUSED, "several rows for a user"),
        ("SELECT user_id, anonymous_ids AS value FROM profiles", GENEROUS, REFUSED, "value is of the type array<string>"),
        ("SELECT user_id, sum(total) AS value FROM events GROUP BY user_id", GENEROUS, REFUSED, "there is no column 'total'"),
        (SPENT, Limits(1, 10, 60), REFUSED, "MAX_BYTES"),
        (SPENT, Limits(10**12, 1, 60), REFUSED, "at most 1 are allowed"),
        ("SELECT user_id, count(*) / (count(*) - 2) AS value FROM events GROUP BY user_id", GENEROUS, FAILED, "DIVIDE_BY_ZERO"),
        (SPENT, Limits(10**12, 10, 0.001), FAILED, "MAX_MINUTES"),
    ],
)
@pytest.mark.long
def test_what_is_refused_or_fails_changes_no_value(rig: Rig, sql: str, limits: Limits, state: str, message: str) -> None:
    rig.add("behaviour_events", [event("ann", 1, 5), event("bob", 2, 7), event("bob", 2, 7)])
    profile = {"workspace": "acme", "user_id": "ann", "anonymous_ids": ["a"], "traits": "{}", "origin_offset": 1}
    rig.add("profile_changes", [{**profile, "event_time": START, "received_at": START}])
    rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 1}
    assert len(rig.published(2)) == 2
    rig.ordered("spent", sql, 2)
    assert rig.perform(limits=limits) == {state: 1}
    assert message in str(rig.row("spent").message)
    assert rig.stored() == 2
    rig.ordered("spent", SPENT, 3)
    assert rig.perform() == {ACTIVE: 1}
    assert rig.row("spent").published == 0


@pytest.mark.long
def test_profiles_are_the_newest_and_runs_read_one_snapshot(rig: Rig) -> None:
    def change(user: str, offset: int, plan: str) -> dict[str, Any]:
        at = START + timedelta(hours=offset)
        return {
            "workspace": "acme", "user_id": user, "event_time": at, "received_at": at, "order": at, "anonymous_ids": [],
            "traits": json.dumps({"plan": plan}), "origin_partition": 0, "origin_offset": offset,
        }  # fmt: skip

    rig.add("profile_changes", [change("ann", 1, "free"), change("ann", 3, "pro"), change("bob", 2, "free")])
    rig.add("behaviour_events", [event("ann", 1, 5)])
    with pinned(rig.lake, PINNING) as lake:
        tables = pinned_tables(lake, "acme")
        rig.add("profile_changes", [change("bob", 9, "pro")])
        found = {row["user_id"]: json.loads(row["traits"])["plan"] for row in tables["profiles"].collect()}
    assert found == {"ann": "pro", "bob": "free"}
    rig.ordered("plan", "SELECT user_id, get_json_object(traits, '$.plan') AS value FROM profiles")
    assert rig.perform() == {ACTIVE: 1}
    assert {one["user_id"]: one["value"] for one in rig.published(2)} == {"ann": '"pro"', "bob": '"pro"'}


def test_a_statement_reads_the_typed_columns_of_an_event_type(rig: Rig) -> None:
    revenue = {"name": "revenue", "type": "integer"}
    declared(rig, "order", "Order Completed", [revenue, {"name": "tax", "type": "number", "archived": True}])
    declared(rig, "old", "Page", [revenue], status="archived")
    wrong = {**event("bob", 2, 0), "properties": '{"revenue": "much"}'}
    rig.add("behaviour_events", [event("ann", 1, 5), event("ann", 2, 7), wrong, event("cid", 2, 9, name="Page")])
    sql = "SELECT user_id, sum(revenue) AS value FROM event_order GROUP BY user_id"
    for key, statement in (
        ("spent", sql),
        ("taxed", sql.replace("revenue", "tax")),
        ("old", sql.replace("event_order", "event_old")),
    ):
        rig.ordered(key, statement)
    assert rig.perform() == {ACTIVE: 1, REFUSED: 2}
    assert {one["user_id"]: one["value"] for one in rig.published(1)} == {"ann": "12"}
    assert rig.row("spent").users == 1
    assert "there is no column 'tax'" in str(rig.row("taxed").message)
    assert "there is no table 'event_old'" in str(rig.row("old").message)


def profile(user: str, plan: str, offset: int) -> dict[str, Any]:
    at = START + timedelta(hours=offset)
    return {
        "workspace": "acme", "user_id": user, "event_time": at, "received_at": at, "order": at, "anonymous_ids": [],
        "traits": json.dumps({"plan": plan}), "origin_partition": 0, "origin_offset": offset,
    }  # fmt: skip


@pytest.mark.long
def test_a_view_is_a_table_that_each_run_replaces(rig: Rig) -> None:
    dice = random.Random(5)
    events = [event(f"u{dice.randrange(20)}", dice.uniform(0, 60), dice.randrange(100)) for _ in range(300)]
    rig.add("behaviour_events", [*events, event("other", 1, 5, workspace="my-shop")])
    rig.add("profile_changes", [profile(f"u{n}", "pro" if n % 3 else "free", n) for n in range(15)])
    declared(rig, "order", "Order Completed", [{"name": "revenue", "type": "integer"}])
    sql = """SELECT coalesce(get_json_object(p.traits, '$.plan'), 'none') AS plan, o.user_id AS user, o.revenue,
  row_number() OVER (PARTITION BY o.user_id ORDER BY o.revenue DESC, o.event_id) AS place, o.event_time
FROM event_order o LEFT JOIN profiles p ON p.user_id = o.user_id"""
    rig.ordered_view("orders", sql)
    rig.ordered_view("orders", "SELECT user_id, kind FROM events", "my-shop")
    rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 3}
    frame = pd.DataFrame(events)
    frame["revenue"] = [json.loads(text)["revenue"] for text in frame["properties"]]
    frame["plan"] = ["none" if int(user[1:]) >= 15 else "pro" if int(user[1:]) % 3 else "free" for user in frame["user_id"]]
    frame = frame.sort_values(["revenue", "event_id"], ascending=[False, True])
    frame["place"] = frame.groupby("user_id").cumcount() + 1
    lake = view_lake(rig.spark, "acme")
    found = lake.rows("orders")
    assert found.columns == ["plan", "user", "revenue", "place", "event_time"]
    rows = {(row["plan"], row["user"], row["revenue"], row["place"]) for row in found.collect()}
    assert rows == {(one.plan, one.user_id, one.revenue, one.place) for one in frame.itertuples()}
    row = rig.view("orders")
    assert (row.state, row.users, row.published) == (ACTIVE, 300, 0)
    assert row.scanned_bytes
    assert [tuple(row) for row in view_lake(rig.spark, "my-shop").rows("orders").collect()] == [("other", "track")]

    # Other columns and other rows, in one commit; the rows before stay readable.
    before = lake.snapshot("orders")
    rig.ordered_view("orders", "SELECT count(*) AS orders, CAST(:as_of AS DATE) AS day FROM event_order")
    assert rig.perform() == {ACTIVE: 1}
    assert [row["orders"] for row in lake.rows("orders").collect()] == [300]
    assert lake.rows("orders", before).count() == 300
    rig.ordered_view("orders", sql, archived=True)
    assert rig.perform() == {ACTIVE: 1}
    assert not lake.exists("orders")
    assert view_lake(rig.spark, "my-shop").exists("orders")


@pytest.mark.long
def test_only_tables_that_a_run_has_changed_are_maintained(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    maintained: list[str] = []
    call = Lake.call

    def recorded(lake: Lake, procedure: str, table: str, arguments: str = "") -> Mapping[str, Any]:
        maintained.append(table)
        return call(lake, procedure, table, arguments)

    monkeypatch.setattr(Lake, "call", recorded)
    rig.add("behaviour_events", [event("ann", 1, 5)])
    rig.ordered_view("users", "SELECT user_id FROM events")
    assert rig.perform() == {ACTIVE: 1}
    assert set(maintained) == {"users"}
    maintained.clear()
    rig.ordered("spent", SPENT)
    assert rig.perform() == {ACTIVE: 1}
    assert set(maintained) == {results.TABLE}


@pytest.mark.long
def test_a_view_that_does_not_end_keeps_its_rows(rig: Rig) -> None:
    rig.add("behaviour_events", [event("ann", 1, 5), event("bob", 2, 7)])
    rig.ordered_view("users", "SELECT user_id FROM events")
    assert rig.perform() == {ACTIVE: 1}
    lake = view_lake(rig.spark, "acme")
    for sql, limits, state, message in (
        ("SELECT user_id, event_id FROM events", replace(GENEROUS, max_rows=1), REFUSED, "2 rows, and at most 1 are allowed"),
        ("SELECT name,\n  sum(anonymous_ids) AS n\nFROM events GROUP BY name", GENEROUS, REFUSED, "line 2, column 3: [DATATYPE_M"),
        ("SELECT 1 / (length(kind) - 5) AS n\nFROM events", GENEROUS, FAILED, "line 1, column 8: [DIVIDE_BY_ZERO"),
    ):
        rig.ordered_view("users", sql)
        assert rig.perform(limits=limits) == {state: 1}
        assert message in str(rig.view("users").message)
        assert sorted(row["user_id"] for row in lake.rows("users").collect()) == ["ann", "bob"]
    rig.ordered_view("users", "SELECT max(user_id) AS last FROM events")
    with pytest.raises(Killed):
        rig.perform(views=KilledStore(rig.database, "set_computed", VIEWS))
    assert rig.view("users").state == "running"
    assert rig.perform() == {ACTIVE: 1}
    assert [tuple(row) for row in lake.rows("users").collect()] == [("bob",)]


@pytest.mark.long
def test_a_property_of_another_type_is_null(spark: SparkSession) -> None:
    names = {"string": "s", "integer": "i", "number": "n", "boolean": "b", "timestamp": "t", "string[]": "l"}
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    cases: dict[str, dict[str, Any]] = {
        '"a"': {"s": "a"}, "12": {"s": "12", "i": 12, "n": 12.0}, '"12"': {"s": "12", "i": 12, "n": 12.0},
        "12.0": {"s": "12.0", "i": 12, "n": 12.0}, "12.5": {"s": "12.5", "n": 12.5}, "1e400": {"s": ANY}, '"NaN"': {"s": "NaN"},
        "9007199254740993": {"s": "9007199254740993", "i": 9007199254740993, "n": 9007199254740992.0},
        "true": {"s": "true", "b": True}, '"false"': {"s": "false", "b": False}, '"yes"': {"s": "yes"}, "null": {},
        '"2026-01-02T03:04:05Z"': {"s": "2026-01-02T03:04:05Z", "t": at}, '"2026-01-02T04:04:05+01:00"': {"s": ANY, "t": at},
        '"12345"': {"s": "12345", "i": 12345, "n": 12345.0}, '["a", "b"]': {"s": '["a","b"]', "l": ["a", "b"]},
        '{"a": 1}': {"s": '{"a":1}'}, "[]": {"s": "[]", "l": []},
    }  # fmt: skip
    columns_of = typed(functions.col("properties"), [Property(name, kind) for kind, name in names.items()])
    for value, expected in cases.items():
        text = "{" + ", ".join(f'"{name}": {value}' for name in names.values()) + "}"
        rows = spark.createDataFrame([(text,)], "properties string").select(functions.lit(1).alias("x"), *columns_of)
        [row] = rows.withColumn("t", functions.unix_millis("t")).collect()
        found = row.asDict()
        del found["x"]
        wanted = dict.fromkeys(names.values()) | expected
        if wanted["t"] is not None:
            wanted["t"] = int(at.timestamp() * 1000)
        assert found == wanted, value
    [broken] = spark.createDataFrame([("{",)], "properties string").select(*columns_of).collect()
    assert set(broken.asDict().values()) == {None}


@pytest.mark.long
def test_an_account_has_the_traits_of_its_last_group_call(rig: Rig) -> None:
    def called(user: str, account: str, tier: str, offset: int) -> dict[str, Any]:
        group = {"change": "GROUP", "group_id": account, "group_traits": json.dumps({"tier": tier})}
        return profile(user, "pro", offset) | group

    calls = [called("ann", "acme", "gold", 1), called("bob", "acme", "iron", 3), called("cid", "acme", "lead", 2)]
    later = profile("bob", "pro", 5) | {"change": "TRAITS", "group_id": "acme", "group_traits": "{}"}
    rig.add("profile_changes", [*calls, called("dan", "shop", "gold", 4), profile("eve", "pro", 6), later])
    sql = "SELECT user_id, get_json_object(a.traits, '$.tier') AS value FROM profiles JOIN accounts a ON a.account_id = group_id"
    rig.ordered("tier", sql)
    assert rig.perform() == {ACTIVE: 1}
    found = {one["user_id"]: json.loads(one["value"]) for one in rig.published(4)}
    assert found == {"ann": "iron", "bob": "iron", "cid": "iron", "dan": "gold"}


@pytest.mark.long
def test_products_are_those_that_the_catalog_lists_at_the_begin_of_the_run(rig: Rig) -> None:
    def bought(user: str, product: str) -> dict[str, Any]:
        return {**event(user, 1, 5), "properties": json.dumps({"product_id": product})}

    buyers = {"ann": "1", "bob": "2", "cid": "3", "dan": "4", "eve": "5"}
    rig.add("behaviour_events", [bought(user, product) for user, product in buyers.items()])
    rig.list_products({"product_id": "1", "category": "hats"}, {"product_id": "2", "category": "hats", "listed_at": 1_000})
    rig.list_products({"product_id": "2", "category": "shoes", "price": 42.5, "listed_at": 2_000}, {"product_id": "3"})
    rig.list_products({"product_id": "4", "category": "hats"}, {"product_id": "5", "category": "bags"})
    rig.list_products({"product_id": "4", "category": "foreign"}, workspace="shop")
    rig.topics.send_bytes(PRODUCTS, None, b"acme/4")
    rig.topics.send_bytes(PRODUCTS, b"unreadable", b"acme/5")
    rig.topics.flush()
    joined = (
        "SELECT e.user_id, get_json_object(p.properties, '$.category') AS value FROM events e "
        "JOIN products p ON p.product_id = get_json_object(e.properties, '$.product_id')"
    )
    rig.ordered("category", joined)
    rig.ordered_view("listed", "SELECT product_id, properties, unix_millis(updated_at) AS at_ms FROM products")
    assert rig.perform() == {ACTIVE: 2}
    assert rig.row("category").scanned_bytes
    assert {one["user_id"]: one["value"] for one in rig.published(3)} == {"ann": '"hats"', "bob": '"shoes"', "eve": '"bags"'}
    rows = view_lake(rig.spark, "acme").rows("listed").collect()
    assert {row["product_id"]: (json.loads(row["properties"]), row["at_ms"]) for row in rows} == {
        "1": ({"category": "hats"}, 1),
        "2": ({"category": "shoes", "price": 42.5}, 2_000),
        "3": ({}, 1),
        "5": ({"category": "bags"}, 1),
    }

    # The tables of a run stay as they are; the next run reads the products of its own begin.
    with pinned(rig.lake, PINNING) as lake:
        tables = pinned_tables(lake, "acme")
        rig.topics.send_bytes(PRODUCTS, None, b"acme/1")
        rig.list_products({"product_id": "4", "category": "coats"})
        rig.products.refresh()
        assert sorted(row["product_id"] for row in tables["products"].collect()) == ["1", "2", "3", "5"]
    written = rig.lake.snapshot(products.TABLE)
    rig.products.refresh()
    assert rig.lake.snapshot(products.TABLE) == written  # the topic has not changed
    rig.ordered("category", joined)
    assert rig.perform() == {ACTIVE: 1}
    assert {one["user_id"]: one["value"] for one in rig.published(2)} == {"ann": None, "dan": '"coats"'}


@pytest.mark.long
def test_a_run_whose_products_cannot_be_read_fails(rig: Rig) -> None:
    rig.place = replace(rig.place, listing=rig.place.listing._replace(topic="nowhere"))
    rig.ordered("spent", SPENT)
    rig.ordered_view("listed", "SELECT product_id FROM products")
    assert rig.perform() == {ACTIVE: 1, FAILED: 1}
    assert str(rig.view("listed").message).startswith("nowhere: ")


def test_values_are_json(spark: SparkSession) -> None:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    statement = {
        "5": "5", "CAST(5 AS TINYINT)": "5", "2.5D": "2.5", "CAST(2.50 AS DECIMAL(10, 2))": "2.5", "true": "true",
        "'a\"b'": '"a\\"b"', "DATE'2026-01-02'": '"2026-01-02"', "''": '""',
        "CAST(unix_millis(TIMESTAMP'2026-01-02T03:04:05.678Z') AS BIGINT)": "1767323045678",
        "TIMESTAMP'2026-01-02T03:04:05.678Z'": '"2026-01-02T03:04:05.678Z"',
        "CAST('NaN' AS DOUBLE)": None, "CAST('-Infinity' AS DOUBLE)": None, "CAST(NULL AS STRING)": None,
    }  # fmt: skip
    for value, expected in statement.items():
        rows = json_values(spark.sql(f"SELECT 'ann' AS user_id, {value} AS value"), zone).collect()
        assert [row["value"] for row in rows] == ([] if expected is None else [expected]), value
    assert json_values(spark.sql("SELECT * FROM VALUES (NULL, 1), ('', 2) AS t(user_id, value)"), zone).count() == 0


REFUSED_PLANS = (
    "SELECT reflect('java.lang.System', 'getProperty', 'user.name') AS value FROM events",
    "SELECT java_method('java.lang.System', 'getProperty', 'user.name') AS value FROM events",
    "SELECT (SELECT try_reflect('java.lang.System', 'getProperty', 'user.name')) AS value FROM events",
    "SELECT input_file_name() AS value FROM events",
    "SELECT current_user() AS value FROM events",
    "SELECT version() AS value FROM events",
    "SELECT rand() AS value FROM events",
    "SELECT uuid() AS value FROM events",
    "SELECT explode(anonymous_ids) AS value FROM events",
    "SELECT id AS value FROM range(10)",
    "SELECT count(*) AS value FROM {lake}.other",
    "SELECT count(*) AS value FROM events WHERE user_id IN (SELECT user_id FROM {lake}.other)",
    "SELECT count(*) AS value FROM events a CROSS JOIN events b",
    "SELECT count(*) AS value FROM events a JOIN events b ON a.event_time > b.event_time",
    "SELECT count(*) AS value FROM events WHERE name NOT IN (SELECT name FROM events WHERE user_id = 'ann')",
)


def test_the_plan_is_refused_without_the_check_of_the_syntax(rig: Rig) -> None:
    rig.lake.ensure("other", columns(user_id=TEXT), (), ())
    session = rig.spark.newSession()
    accepted = []
    with pinned(Lake(session, rig.place.namespace), PINNING) as lake:
        for name, rows in pinned_tables(lake, "acme").items():
            rows.createOrReplaceTempView(name)
        for sql in REFUSED_PLANS:
            statement = session.sql(sql.replace("{lake}", rig.lake.name("x").removesuffix(".x")))
            with suppress(PlanRefused):
                check_plan(statement, frozenset(SOURCES.values()))
                accepted.append(sql)
    assert accepted == []
