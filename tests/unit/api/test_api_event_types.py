"""Event types over HTTP, on stores in memory: what a document may be, how it may change, and the tables that statements read."""

import json
from typing import Any

import pytest

from starling_api.definitions.event_types import checked_statement
from starling_rules.sql.event_types import event_type_of, with_event_types
from starling_rules.sql.statement import sql_errors
from tests.unit.api.calls import call
from tests.unit.api.memory import World

PATH = "/v1/event-types"
REVENUE = {"name": "revenue", "type": "number"}
COUPONS = {"name": "coupons", "type": "string[]"}
BODY: dict[str, Any] = {"key": "order", "event": "Order Completed", "properties": [REVENUE, COUPONS]}
SQL = "SELECT user_id, sum(revenue) AS value FROM event_order WHERE array_contains(coupons, 'VIP') GROUP BY user_id"
TRAIT = {"key": "spent", "sql": SQL, "schedule": "15 * * * *"}


def created() -> World:
    world = World()
    assert call(world, "POST", PATH, json=BODY).status_code == 201
    return world


def errors(world: World, method: str, path: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    answer = call(world, method, path, json=body)
    assert answer.status_code == 422, answer.text
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def test_an_event_type_is_defined_listed_changed_and_archived() -> None:
    world = World()
    made = call(world, "POST", PATH, json=BODY | {"description": "A paid order", "tags": ["shop"]}).json()
    assert (made["properties"], made["version"], made["status"]) == (BODY["properties"], 1, "active")
    assert [one["key"] for one in call(world, "GET", PATH, role="see").json()["items"]] == ["order"]
    # The response can be edited and sent back.
    more = {"name": "paid_at", "type": "timestamp", "description": "By the bank"}
    changed = call(world, "PUT", f"{PATH}/order", json=made | {"properties": [*made["properties"], more]}).json()
    assert (changed["version"], changed["properties"][2]) == (2, more)
    assert call(world, "PUT", f"{PATH}/order", json=changed | {"description": "Paid"}).json()["version"] == 2
    assert call(world, "PUT", f"{PATH}/order", json=BODY, role="see").status_code == 403
    assert call(world, "DELETE", f"{PATH}/order").status_code == 204
    assert call(world, "GET", f"{PATH}/order").json()["status"] == "archived"
    assert {change.kind for change in world.published} == {"event_type"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"key": "order-completed"}, [("/key", "bad_key")]),
        ({"key": None}, [("", "missing_field")]),
        ({"event": None, "properties": None}, [("", "missing_field"), ("", "missing_field")]),
        ({"colour": 1, "properties": []}, [("/colour", "unknown_field")]),
        ({"event": "x" * 513, "description": 5}, [("/event", "wrong_type"), ("/description", "wrong_type")]),
        ({"properties": {"revenue": "number"}}, [("/properties", "wrong_type")]),
        ({"properties": [REVENUE] * 201}, [("/properties", "wrong_type")]),
        (
            {
                "properties": [
                    {"name": "order id", "type": "string"}, {"name": "user_id", "type": "text"}, "revenue", REVENUE,
                    {"name": "Revenue", "type": "number", "archived": "yes"}, {"name": "tax", "type": ["number"], "unit": "EUR"},
                ]
            },
            [
                ("/properties/0/name", "bad_name"), ("/properties/1/name", "bad_name"), ("/properties/1/type", "bad_type"),
                ("/properties/2", "wrong_type"), ("/properties/4/name", "bad_name"), ("/properties/4/archived", "wrong_type"),
                ("/properties/5/type", "bad_type"), ("/properties/5/unit", "unknown_field"),
            ],
        ),
    ],
)  # fmt: skip
def test_a_refused_event_type_names_every_error(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert errors(World(), "POST", PATH, BODY | change) == expected


def test_an_event_has_one_type() -> None:
    world = created()
    assert errors(world, "POST", PATH, BODY | {"key": "sale"}) == [("/event", "event_taken")]
    call(world, "DELETE", f"{PATH}/order")
    assert call(world, "POST", PATH, json=BODY | {"key": "sale"}).status_code == 201


def test_the_event_and_the_types_never_change() -> None:
    world = created()
    changed = {"event": "Order Paid", "properties": [{"name": "revenue", "type": "integer"}, {"name": "tax", "type": "number"}]}
    assert errors(world, "PUT", f"{PATH}/order", BODY | changed) == [
        ("/event", "frozen_field"), ("/properties/0/type", "frozen_field"), ("/properties", "frozen_field"),
    ]  # fmt: skip
    renamed = [{"name": "Revenue", "type": "number"}, COUPONS]
    assert errors(world, "PUT", f"{PATH}/order", BODY | {"properties": renamed}) == [("/properties/0/name", "frozen_field")]
    archived = [REVENUE | {"archived": True}, COUPONS]
    assert call(world, "PUT", f"{PATH}/order", json=BODY | {"properties": archived}).json()["version"] == 2
    assert call(world, "PUT", f"{PATH}/order", json=BODY).json()["version"] == 3


CHECKS = [{"not_null": "Revenue"}, {"unique": ["event_id"]}, {"volume": {"min": 1}, "severity": "warning"}]
SCHEDULED: dict[str, Any] = {"checks": CHECKS, "schedule": "15 * * * *"}
HOUR_MICROS = 3_600_000_000


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"checks": CHECKS}, [("", "missing_field")]),
        ({"schedule": "15 * * * *", "timezone": "UTC"}, [("/schedule", "unknown_field"), ("/timezone", "unknown_field")]),
        ({"checks": [], "within": "1d"}, [("/within", "unknown_field")]),
        (
            SCHEDULED | {"checks": [{"not_null": "tax"}, {"range": {"column": "revenue"}}], "within": "soon", "timezone": "Mars"},
            [
                ("/timezone", "bad_timezone"), ("/within", "bad_duration"), ("/checks/0/not_null", "unknown_column"),
                ("/checks/1/range", "missing_field"),
            ],
        ),
        # A column of a property that is archived.
        (SCHEDULED | {"properties": [REVENUE | {"archived": True}]}, [("/checks/0/not_null", "unknown_column")]),
        (SCHEDULED | {"schedule": "never"}, [("/schedule", "bad_schedule")]),
    ],
)  # fmt: skip
def test_wrong_checks_are_refused(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert errors(World(), "POST", PATH, BODY | change) == expected


def checked(world: World, **more: Any) -> None:
    """Let the newest run of the checks end, as the Spark job does."""
    rows = world.event_type_check_store.rows
    rows["acme", "order"] = rows["acme", "order"]._replace(**more)


def test_checks_run_by_their_schedule_and_their_outcome_is_shown() -> None:
    world = created()
    assert world.event_type_checks.queue_due() == {"waiting": 0, "running": 0}
    before = call(world, "GET", f"{PATH}/order").json()
    assert (before["status"], "last_run" in before) == ("active", False)
    made = call(world, "PUT", f"{PATH}/order", json=before | SCHEDULED).json()
    assert (made["version"], made["status"], made["within"], made["timezone"]) == (2, "waiting", "1d", "UTC")
    assert world.event_type_checks.queue_due() == {"waiting": 1, "running": 0}
    row = world.event_type_check_store.rows["acme", "order"]
    assert json.loads(str(row.checks)) == CHECKS
    results = [
        {"check": "not_null Revenue", "severity": "error", "passed": False, "observed": "1", "violations": 1, "message": "m"}
    ]
    outcome = json.dumps({"checked_at_ms": 3_000, "checks": results})
    checked(world, state="failed", users=7, message="check 1", check_results=outcome)
    for found in (call(world, "GET", f"{PATH}/order").json(), call(world, "GET", PATH).json()["items"][0]):
        assert (found["status"], found["next_run_at"] is None) == ("failed", False)
        last = found["last_run"]
        assert (last["checks"], last["rows"], last["message"], "users" in last) == (results, 7, "check 1", False)
    assert world.event_type_checks.failed_checks() == {("acme", "error"): 1}
    world.micros += 2 * HOUR_MICROS
    assert world.event_type_checks.queue_due() == {"waiting": 1, "running": 0}
    assert len(world.event_type_check_store.runs) == 2


def test_checks_that_are_removed_end_and_can_come_back() -> None:
    world = World()
    call(world, "POST", PATH, json=BODY | SCHEDULED)
    world.event_type_checks.queue_due()
    failed = '{"checked_at_ms": 1, "checks": [{"severity": "error", "passed": false}]}'
    checked(world, state="failed", check_results=failed)
    without = call(world, "PUT", f"{PATH}/order", json=BODY).json()
    assert (without["version"], without["status"], without.get("last_run"), "checks" in without) == (2, "active", None, False)
    world.event_type_checks.queue_due()
    assert world.event_type_checks.failed_checks() == {}
    world.micros += 2 * HOUR_MICROS
    world.event_type_checks.queue_due()
    assert len(world.event_type_check_store.runs) == 2
    # A run that removes the checks is not overtaken while the job performs it.
    checked(world, state="running")
    call(world, "PUT", f"{PATH}/order", json=BODY | SCHEDULED)
    world.event_type_checks.queue_due()
    assert len(world.event_type_check_store.runs) == 2
    checked(world, state="active")
    world.event_type_checks.queue_due()
    row = world.event_type_check_store.rows["acme", "order"]
    assert (row.archived, row.state, len(world.event_type_check_store.runs)) == (False, "waiting", 3)
    checked(world, state="active")
    call(world, "DELETE", f"{PATH}/order")
    world.event_type_checks.queue_due()
    assert world.event_type_check_store.rows["acme", "order"].archived
    archived = call(world, "GET", f"{PATH}/order").json()
    assert (archived["status"], "last_run" in archived) == ("archived", False)


def test_checks_read_their_columns_of_the_period_alone() -> None:
    document = BODY | SCHEDULED | {"timezone": "UTC", "within": "90m"}
    sql = "SELECT `revenue`, `event_id` FROM event_order WHERE event_time > :as_of - INTERVAL 5400 SECONDS"
    assert checked_statement(document) == sql
    event_type = event_type_of(document)
    assert event_type is not None
    assert sql_errors(sql, with_event_types([event_type]), is_view=True) == []
    volume = checked_statement(document | {"checks": [{"volume": {"min": 1}}]})
    assert str(volume).startswith("SELECT `event_id` FROM")
    # Another producer can write what the API refuses.
    for wrong in ({"schedule": None}, {"within": None}, {"checks": "all"}, {"properties": None}):
        assert checked_statement(document | wrong) is None


def test_a_statement_reads_the_table_of_an_event_type() -> None:
    world = World()
    assert ("/sql", "unknown_table") in errors(world, "POST", "/v1/computed-traits", TRAIT)
    call(world, "POST", PATH, json=BODY)
    wrong = TRAIT | {"sql": SQL.replace("revenue", "tax")}
    assert errors(world, "POST", "/v1/computed-traits", wrong) == [("/sql", "unknown_column")]
    assert call(world, "POST", "/v1/computed-traits", json=TRAIT).status_code == 201
    assert call(world, "GET", f"{PATH}/order").json()["used_by"] == ["spent"]


def test_what_a_statement_reads_is_not_archived() -> None:
    world = created()
    call(world, "POST", "/v1/computed-traits", json=TRAIT)
    archived = BODY | {"properties": [REVENUE | {"archived": True}, COUPONS]}
    assert errors(world, "PUT", f"{PATH}/order", archived) == [("/properties", "in_use")]
    refused = call(world, "DELETE", f"{PATH}/order")
    assert (refused.status_code, refused.json()["used_by"]) == (409, ["spent"])
    call(world, "DELETE", "/v1/computed-traits/spent")
    assert call(world, "PUT", f"{PATH}/order", json=archived).status_code == 200
    assert ("/sql", "unknown_column") in errors(world, "POST", "/v1/computed-traits", TRAIT | {"key": "spent-2"})
    assert call(world, "DELETE", f"{PATH}/order").status_code == 204
