"""Checks of results in SQL on Spark: what is measured with nulls, NaN, no rows and time zones, and runs on a real lake."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from starling_common.time.instants import parse_instant
from starling_rules.sql.checks import Measured, checks_of
from starling_rules.sql.runs import ACTIVE, FAILED, REFUSED, run_id
from starling_spark.jobs.sql_traits.checks.measuring import measured, misfit
from starling_spark.jobs.sql_traits.checks.quality import TABLE
from starling_spark.jobs.sql_traits.store import VIEWS
from starling_spark.jobs.sql_traits.views import view_lake
from tests.conftest import Stack
from tests.lineage_receiver import places, sent_lineage
from tests.spark.conftest import spark_settings
from tests.spark.sql_rig import Killed, KilledStore, Rig, declared, event, opened_rig

ROWS = """VALUES
  (DATE'2026-03-01', 'pro', 1, 1.5D, 2.50), (DATE'2026-03-01', 'pro', 5, CAST('NaN' AS DOUBLE), -1.25),
  (DATE'2026-03-02', NULL, NULL, CAST('Infinity' AS DOUBLE), NULL), (DATE'2026-03-02', NULL, -3, NULL, NULL),
  (NULL, 'free', 9, -2.0D, 4.00) AS t(day, plan, orders, share, price)"""


def rows_of(spark: SparkSession, zone: str = "UTC", condition: str = "true") -> DataFrame:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    return session.sql(f"SELECT * FROM {ROWS}").where(condition)  # noqa: S608 - our own text


def test_each_rule_is_measured_with_nulls_and_nan(spark: SparkSession) -> None:
    cases: list[tuple[dict[str, Any], Measured]] = [
        ({"not_null": "plan"}, Measured(5, 2)),
        ({"not_null": "SHARE"}, Measured(5, 1)),
        ({"range": {"column": "orders", "min": 0, "max": 5}}, Measured(5, 2, least="-3", greatest="9")),
        ({"range": {"column": "orders", "max": 9}}, Measured(5, 0, least="-3", greatest="9")),
        # NaN is outside of every range, and null of none.
        ({"range": {"column": "share", "min": -2}}, Measured(5, 1, least="-2", greatest="inf")),
        ({"range": {"column": "share", "max": 10.5}}, Measured(5, 2, least="-2", greatest="inf")),
        ({"range": {"column": "price", "min": -1}}, Measured(5, 1, least="-1.25", greatest="4")),
        # Nulls are equal to one another.
        ({"unique": ["plan"]}, Measured(5, 4, 2)),
        ({"unique": ["day", "plan"]}, Measured(5, 4, 2)),
        ({"unique": ["orders"]}, Measured(5)),
        ({"volume": {"min": 1}}, Measured(7, before=3)),
        ({"freshness": {"column": "day", "within": "1d"}}, Measured(5, newest_ms=parse_instant("2026-03-02"))),
    ]
    checks = checks_of([document for document, _ in cases])
    found = measured(rows_of(spark), checks, 7, 3)
    assert {check.title: one for check, one in zip(checks, found, strict=True)} == {
        check.title: expected for check, (_, expected) in zip(checks, cases, strict=True)
    }
    assert found == [expected for _, expected in cases]


def test_no_rows_and_columns_without_values(spark: SparkSession) -> None:
    documents: list[dict[str, Any]] = [
        {"not_null": "plan"}, {"range": {"column": "share", "min": 0}}, {"unique": ["plan"]}, {"volume": {"max": 1}},
        {"freshness": {"column": "day", "within": "1d"}},
    ]  # fmt: skip
    assert measured(rows_of(spark, condition="false"), checks_of(documents), 0, None) == [Measured(0)] * 5
    [nan, newest] = measured(
        rows_of(spark, condition="isnan(share) OR share < 0").where("day IS NULL OR orders = 5"),
        checks_of(documents)[1::3],
        2,
        None,
    )
    assert (nan, newest) == (Measured(2, 2, least="-2", greatest="-2"), Measured(2, newest_ms=parse_instant("2026-03-01")))


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("UTC", "2026-03-02T00:00:00Z"), ("Asia/Tokyo", "2026-03-01T15:00:00Z"), ("America/New_York", "2026-03-02T05:00:00Z")],
)
def test_a_date_begins_in_the_time_zone_of_the_definition(spark: SparkSession, zone: str, expected: str) -> None:
    [found] = measured(rows_of(spark, zone), checks_of([{"freshness": {"column": "day", "within": "1d"}}]), 5, None)
    assert found.newest_ms == parse_instant(expected)


def test_a_check_that_does_not_fit_its_column_is_refused(spark: SparkSession) -> None:
    columns = rows_of(spark).schema
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"not_null": "total"},
            "check 1, not_null total: the result has no column total: name one of day, plan, orders, share, price",
        ),
        ({"range": {"column": "plan", "min": 1}}, "check 1, range plan: the column is of the type string: CAST it to a number"),
        ({"freshness": {"column": "orders", "within": "1d"}}, "the column is of the type int: CAST it to a DATE or a TIMESTAMP"),
    ]
    for check, reason in cases:
        assert str(misfit(columns, checks_of([check]))).endswith(reason)
    assert misfit(columns, checks_of([{"unique": ["DAY", "plan"]}, {"range": {"column": "price", "min": 1}}])) is None


@pytest.fixture
def rig(spark: SparkSession, stack: Stack) -> Iterator[Rig]:
    with opened_rig(spark, stack) as made:
        yield made


def shown(results: str | None) -> list[tuple[str, bool, str | None]]:
    return [(one["check"], one["passed"], one["observed"]) for one in json.loads(str(results))["checks"]]


@pytest.mark.long
def test_a_failed_check_keeps_the_rows_and_the_values_of_the_run_before(rig: Rig) -> None:
    rig.add("behaviour_events", [event("ann", 1, 5), event("bob", 2, 7), event("cid", 3, 40)])
    revenue = "max(CAST(get_json_object(properties, '$.revenue') AS BIGINT))"
    sql = f"SELECT user_id, {revenue} AS value, max(event_time) AS at FROM events GROUP BY user_id"  # noqa: S608 - our own text
    checks: list[dict[str, Any]] = [
        {"not_null": "value"},
        {"range": {"column": "value", "min": 0, "max": 50}},
        {"unique": ["user_id"]},
        {"volume": {"min": 2, "change_percent": 50}},
        {"freshness": {"column": "at", "within": "1d"}, "severity": "warning"},
    ]
    rig.ordered_view("spent", sql, checks=checks)
    trait = sql.replace(", max(event_time) AS at", "")
    rig.ordered("spent", trait, checks=checks[:4])
    assert rig.perform() == {ACTIVE: 2}
    lake = view_lake(rig.spark, "acme")
    assert shown(rig.view("spent").check_results) == [
        ("not_null value", True, "0"), ("range value", True, "5 to 40"), ("unique user_id", True, "0"), ("volume", True, "3"),
        ("freshness at", True, "2026-01-04T00:00:00.000Z"),
    ]  # fmt: skip
    assert len(shown(rig.row("spent").check_results)) == 4
    assert len(rig.published(3)) == 3

    # A value beyond the range, one that is null, and twice as many users.
    bad = [{**event("eve", 4, 0), "properties": "{}"}, event("dan", 4, 51), event("fay", 4, 1)]
    rig.add("behaviour_events", bad)
    rig.ordered_view("spent", sql, checks=checks)
    rig.ordered("spent", trait, checks=checks[:4])
    assert rig.perform() == {FAILED: 2}
    assert rig.view("spent").message == (
        "check 1, not_null value: 1 of 6 rows have no value; "
        "check 2, range value: 1 of 6 rows are not 0 to 50: the values are 1 to 51; "
        "check 4, volume: the result has 6 rows: it changed by +100.0 % from the last complete run (3 rows), and at most 50 % are "
        "allowed"
    )
    # Of a trait the users with a value are counted.
    assert "the result has 5 rows: it changed by +66.7 %" in str(rig.row("spent").message)
    assert lake.rows("spent").count() == 3
    assert (rig.stored(), rig.row("spent").users) == (3, 3)
    assert shown(rig.row("spent").check_results)[1] == ("range value", False, "1 to 51")

    # Warnings publish the result; duplicates, and times that are too old, are found.
    later: list[dict[str, Any]] = [{"unique": ["kind"]}, {"freshness": {"column": "at", "within": "1h"}}]
    duplicated = "SELECT kind, event_time - INTERVAL 2 HOURS AS at FROM events"
    rig.ordered_view("spent", duplicated, checks=later)
    assert rig.perform() == {FAILED: 1}
    assert [passed for _, passed, _ in shown(rig.view("spent").check_results)] == [False, False]
    rig.ordered_view("spent", duplicated, checks=[one | {"severity": "warning"} for one in later])
    assert rig.perform() == {ACTIVE: 1}
    assert [passed for _, passed, _ in shown(rig.view("spent").check_results)] == [False, False]
    assert (lake.rows("spent").count(), rig.view("spent").message) == (6, None)

    found = rig.lake.rows(TABLE).where("NOT passed").collect()
    failed = sorted((row["kind"], row["rule"], row["number"], row["severity"]) for row in found)
    both = [("not_null", 1, "error"), ("range", 2, "error"), ("volume", 4, "error")]
    later_two = [
        (rule, number, severity) for rule, number in (("freshness", 2), ("unique", 1)) for severity in ("error", "warning")
    ]
    assert failed == sorted([("computed_trait", *one) for one in both] + [("view", *one) for one in both + later_two])
    [row] = [row for row in found if (row["kind"], row["rule"]) == ("view", "range")]
    assert (row["workspace"], row["key"], row["columns"], row["violations"]) == ("acme", "spent", "value", 1)
    assert (json.loads(row["bounds"]), row["observed"]) == ({"min": 0, "max": 50}, "1 to 51")


@pytest.mark.long
def test_the_events_of_an_event_type_are_checked(rig: Rig, tmp_path: Path) -> None:
    properties = [{"name": "revenue", "type": "number"}, {"name": "orderId", "type": "string"}]
    declared(rig, "order", "Order Completed", properties)
    document: dict[str, Any] = {
        "key": "order", "event": "Order Completed", "properties": properties, "schedule": "0 * * * *", "within": "2d",
        "checks": [
            {"not_null": "revenue"},
            {"range": {"column": "revenue", "min": 0}},
            {"unique": ["orderid"], "severity": "warning"},
            {"volume": {"min": 2}},
            {"freshness": {"column": "event_time", "within": "1h"}},
        ],
    }  # fmt: skip

    def order(day: float, revenue: object, name: str, workspace: str = "acme") -> dict[str, Any]:
        return event("ann", day, 0, workspace) | {"properties": json.dumps({"revenue": revenue, "orderId": name})}

    # Events of another name and workspace, and one before the period, violate every check.
    strange = [event("bob", 9, 0, name="Page"), order(9, -1, "a", "my-shop"), order(6.5, "much", "a")]
    rig.add("behaviour_events", [order(7.5, 5, "a"), order(9, "7.5", "b"), *strange])
    rig.ordered_checks(document)
    assert rig.perform() == {ACTIVE: 1}
    row = rig.event_type("order")
    assert (row.users, row.message) == (2, None)
    assert shown(row.check_results) == [
        ("not_null revenue", True, "0"), ("range revenue", True, "5 to 7.5"), ("unique orderid", True, "0"),
        ("volume", True, "2"), ("freshness event_time", True, "2026-01-10T00:00:00.000Z"),
    ]  # fmt: skip
    # A value of another type is none, as in statements. A page moves the time of the run by two hours.
    page = event("bob", 9 + 2 / 24, 0, name="Page")
    rig.add("behaviour_events", [order(9, "much", "b"), order(9, -3, "c"), page])
    rig.ordered_checks(document)
    with sent_lineage(spark_settings(tmp_path)) as (lineage, receiver):
        assert rig.perform(lineage=lineage) == {FAILED: 1}
    row = rig.event_type("order")
    assert [passed for _, passed, _ in shown(row.check_results)] == [False, False, False, True, False]
    assert "check 1, not_null revenue: 1 of 4 rows have no value; check 2, range revenue: 1 of 4 rows" in str(row.message)
    assert "check 3" not in str(row.message)
    found = rig.lake.rows(TABLE).where("NOT passed").orderBy("number").collect()
    assert {(one["workspace"], one["kind"], one["key"]) for one in found} == {("acme", "event_type", "order")}
    assert [(one["rule"], one["severity"], one["violations"]) for one in found] == [
        ("not_null", "error", 1), ("range", "error", 1), ("unique", "warning", 2), ("freshness", "error", None),
    ]  # fmt: skip
    start, failed = receiver.events()
    assert (start["job"]["name"], failed["eventType"]) == ("event_types.acme.order", "FAIL")
    assert [name.rpartition("/")[2] for _, name in places(failed["inputs"])] == ["behaviour_events"]
    assert [name.rpartition("/")[2] for _, name in places(failed["outputs"])] == [TABLE]
    # Checks that are removed leave no outcome.
    rig.ordered_checks(document | {"checks": []}, 2)
    assert rig.perform() == {ACTIVE: 1}
    row = rig.event_type("order")
    assert (row.archived, row.check_results) == (True, None)


@pytest.mark.long
def test_a_check_of_a_column_that_is_not_there_is_refused_and_a_kill_doubles_no_outcome(rig: Rig) -> None:
    rig.add("behaviour_events", [event("ann", 1, 5)])
    rig.ordered_view("users", "SELECT user_id FROM events", checks=[{"not_null": "name"}])
    assert rig.perform() == {REFUSED: 1}
    assert "the result has no column name" in str(rig.view("users").message)
    rig.ordered_view("users", "SELECT user_id FROM events", checks=[{"not_null": "user_id"}])
    with pytest.raises(Killed):
        rig.perform(views=KilledStore(rig.database, "set_computed", VIEWS))
    assert rig.lake.rows(TABLE).count() == 1
    assert rig.perform() == {ACTIVE: 1}
    assert [row["run"] for row in rig.lake.rows(TABLE).collect()] == [run_id("acme", "users", 1, 2)]
    # Another run without checks has no outcome, and rows that are too old are deleted.
    rig.ordered_view("users", "SELECT user_id FROM events")
    assert rig.perform() == {ACTIVE: 1}
    assert rig.view("users").check_results is None
    rig.spark.sql(f"UPDATE {rig.lake.name(TABLE)} SET checked_at = checked_at - INTERVAL 9 DAYS")  # noqa: S608 - our own names
    rig.place = replace(rig.place, checks_keep_days=8)
    rig.ordered_view("users", "SELECT user_id FROM events", checks=[{"not_null": "user_id"}])
    assert rig.perform() == {ACTIVE: 1}
    assert [row["run"] for row in rig.lake.rows(TABLE).collect()] == [run_id("acme", "users", 1, 4)]
