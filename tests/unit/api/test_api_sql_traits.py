"""Computed traits in SQL, over HTTP, on stores in memory: definitions, runs, and when they are queued."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from starling_api.sql.wiring import FailedChecks
from starling_common.telemetry.metrics import Metrics
from starling_common.values import Workspace
from tests.unit.api.calls import call
from tests.unit.api.memory import World

PATH = "/v1/computed-traits"
SQL = "SELECT user_id, count(*) AS value FROM events WHERE event_time > :as_of - INTERVAL 30 DAYS GROUP BY user_id"
BODY = {"key": "orders-30", "sql": SQL, "schedule": "15 * * * *"}
HOUR_MICROS = 3_600_000_000
MEASURE = {"key": "ltv", "event": "Order Completed", "measure": {"sum": "revenue"}}


def created(**more: Any) -> World:
    world = World()
    assert call(world, "POST", PATH, json=BODY | more).status_code == 201
    return world


def ended(world: World, state: str, **more: Any) -> None:
    row = world.sql_trait_store.rows["acme", "orders-30"]
    world.sql_trait_store.rows["acme", "orders-30"] = row._replace(state=state, **more)


def refusal(body: dict[str, Any]) -> list[tuple[str, str]]:
    answer = call(World(), "POST", PATH, json=body)
    assert answer.status_code == 422
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def test_a_trait_in_sql_waits_for_its_first_run_and_shows_the_last_one() -> None:
    world = created(name="Orders", timezone="Asia/Tokyo", tags=["shop"])
    found = call(world, "GET", f"{PATH}/orders-30", role="see").json()
    assert (found["status"], found["version"], found["sql"], found["timezone"]) == ("waiting", 1, SQL, "Asia/Tokyo")
    assert found["next_run_at"] == "1970-01-01T01:15:00.000Z"
    assert set(found["last_run"].values()) == {None}
    assert world.sql_traits.queue_due() == {"waiting": 1, "running": 0}
    ended(world, "active", as_of_ms=1_000, ended_at_ms=2_000, users=3, published=2, scanned_bytes=10)
    found = call(world, "GET", f"{PATH}/orders-30", role="see").json()
    assert found["status"] == "active"
    assert found["last_run"] == {
        "as_of": "1970-01-01T00:00:01.000Z", "ended_at": "1970-01-01T00:00:02.000Z", "users": 3, "published": 2,
        "scanned_bytes": 10, "message": None, "checked_at": None, "checks": None,
    }  # fmt: skip
    assert [one["status"] for one in call(world, "GET", f"{PATH}?status=active").json()["items"]] == ["active"]
    # The response can be edited and sent back.
    assert call(world, "PUT", f"{PATH}/orders-30", json=found).status_code == 200


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sql": "SELECT * FROM events"}, [("/sql", "bad_result"), ("/sql", "star")]),
        ({"sql": "DROP TABLE events"}, [("/sql", "not_select")]),
        ({"sql": 5}, [("/sql", "wrong_type")]),
        ({"schedule": None}, [("", "missing_field")]),
        ({"schedule": "0 0 30 2 *"}, [("/schedule", "bad_schedule")]),
        ({"schedule": "hourly"}, [("/schedule", "bad_schedule")]),
        ({"timezone": "Mars/Olympus"}, [("/timezone", "bad_timezone")]),
        ({"within": "30d"}, [("/within", "unknown_field")]),
        ({"event": "Order Completed"}, [("/event", "unknown_field")]),
        (
            {"checks": [{"not_null": "total"}, {"volume": {}}]},
            [("/checks/0/not_null", "unknown_column"), ("/checks/1/volume", "missing_field")],
        ),
        ({"sql": 5, "checks": {}}, [("/checks", "wrong_type"), ("/sql", "wrong_type")]),
    ],
)
def test_a_refused_trait_names_every_error(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert sorted(refusal(BODY | change)) == sorted(expected)


def test_an_error_in_the_sql_has_its_line_and_column() -> None:
    answer = call(World(), "POST", PATH, json=BODY | {"sql": "SELECT user_id,\n  total AS value\nFROM events"}).json()
    assert [error["message"] for error in answer["errors"]] == ["line 2, column 3: there is no column 'total'"]


def test_a_semicolon_at_the_end_is_dropped_and_an_equal_trait_changes_nothing() -> None:
    world = created()
    answer = call(world, "PUT", f"{PATH}/orders-30", json={**BODY, "sql": f" {SQL};\n"})
    assert (answer.status_code, answer.json()["version"], len(world.published)) == (200, 1, 1)


def test_a_measure_stays_a_measure_and_sql_stays_sql() -> None:
    world = created()
    call(world, "POST", PATH, json=MEASURE)
    for key, body in (("orders-30", MEASURE | {"key": "orders-30"}), ("ltv", BODY | {"key": "ltv"})):
        answer = call(world, "PUT", f"{PATH}/{key}", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "frozen_field")
    assert call(world, "GET", f"{PATH}/ltv").json().get("last_run") is None


def test_missed_times_lead_to_one_run_and_a_run_is_queued_once() -> None:
    world = created()
    world.sql_traits.queue_due()
    world.micros += 50 * HOUR_MICROS
    world.sql_traits.queue_due()  # the first run still waits
    ended(world, "running")
    assert world.sql_traits.queue_due() == {"waiting": 0, "running": 1}
    assert len(world.sql_trait_store.runs) == 1
    ended(world, "active")
    for _ in range(3):
        world.sql_traits.queue_due()
    assert len(world.sql_trait_store.runs) == 2
    ended(world, "failed", message="division by zero")
    world.micros += HOUR_MICROS
    world.sql_traits.queue_due()
    assert len(set(world.sql_trait_store.runs)) == 3


def test_of_two_processes_one_queues_a_run() -> None:
    world = created()
    store = world.sql_trait_store
    slow = type(store)()  # read before the other process queued the run
    slow.queue = store.queue  # type: ignore[method-assign]
    other = type(world.sql_traits)(slow, world.reader, lambda: world.micros // 1000 + 1)
    world.sql_traits.queue_due()
    assert other.queue_due()["waiting"] == 0
    assert len(store.runs) == 1


def test_a_new_statement_runs_at_once_and_a_new_name_does_not() -> None:
    world = created()
    world.sql_traits.queue_due()
    ended(world, "active")
    call(world, "PUT", f"{PATH}/orders-30", json={**BODY, "name": "Orders"})
    world.sql_traits.queue_due()
    assert len(world.sql_trait_store.runs) == 1
    changed = call(world, "PUT", f"{PATH}/orders-30", json={**BODY, "sql": SQL.replace("30", "60")}).json()
    assert (changed["version"], changed["status"]) == (2, "waiting")
    world.sql_traits.queue_due()
    assert len(world.sql_trait_store.runs) == 2


def test_an_archived_trait_has_one_more_run_which_withdraws_its_values() -> None:
    world = created()
    world.sql_traits.queue_due()
    ended(world, "active")
    assert call(world, "DELETE", f"{PATH}/orders-30").status_code == 204
    world.sql_traits.queue_due()
    assert world.sql_trait_store.rows["acme", "orders-30"].archived
    ended(world, "active")
    world.micros += 5 * HOUR_MICROS
    world.sql_traits.queue_due()
    assert len(world.sql_trait_store.runs) == 2
    found = call(world, "GET", f"{PATH}/orders-30").json()
    assert (found["status"], found["next_run_at"]) == ("archived", None)


def test_a_run_outside_the_schedule() -> None:
    world = created()
    call(world, "POST", PATH, json=MEASURE)
    run = f"{PATH}/orders-30/run"
    assert call(world, "POST", f"{run}?dry_run=true").status_code == 200
    assert world.sql_trait_store.runs == []
    assert call(world, "POST", run).json()["status"] == "waiting"
    assert call(world, "POST", run).status_code == 200
    assert len(world.sql_trait_store.runs) == 1
    ended(world, "refused", message="too large")
    assert call(world, "POST", run).json()["last_run"]["message"] is None
    assert len(set(world.sql_trait_store.runs)) == 2
    for path, role, status in (
        (f"{PATH}/none/run", "make", 404), (f"{PATH}/ltv/run", "make", 400), (run, "see", 403),
    ):  # fmt: skip
        assert call(world, "POST", path, role=role).status_code == status
    call(world, "DELETE", f"{PATH}/orders-30")
    assert call(world, "POST", run).status_code == 409


def test_a_measure_has_no_checks() -> None:
    assert refusal(MEASURE | {"checks": [{"not_null": "value"}]}) == [("/checks", "unknown_field")]


def test_a_trait_shows_its_checks_and_their_outcome_until_the_next_one() -> None:
    checks = [{"not_null": "value"}, {"volume": {"min": 10}, "severity": "warning"}]
    world = created(checks=checks)
    assert call(world, "GET", f"{PATH}/orders-30").json()["checks"] == checks
    world.sql_traits.queue_due()
    row = world.sql_trait_store.rows["acme", "orders-30"]
    assert json.loads(str(row.checks)) == checks
    outcome = {"severity": "error", "observed": "2", "violations": 2, "message": "2 of 9 rows have no value"}
    results = [
        {"check": "not_null value", "passed": False, **outcome},
        {"check": "volume", "severity": "warning", "passed": False, "observed": "9", "violations": None, "message": "too few"},
    ]
    ended(world, "failed", message="check 1", check_results=json.dumps({"checked_at_ms": 3_000, "checks": results}))
    found = call(world, "GET", f"{PATH}/orders-30").json()
    assert (found["last_run"]["checks"], found["last_run"]["checked_at"]) == (results, "1970-01-01T00:00:03.000Z")
    assert found["last_run"]["message"] == "check 1"
    assert world.sql_traits.failed_checks() == {("acme", "error"): 1, ("acme", "warning"): 1}
    # A response can be edited and sent back. Other checks run at once, and the outcome stays until they have run.
    changed = call(world, "PUT", f"{PATH}/orders-30", json=found | {"checks": checks[:1]}).json()
    assert (changed["version"], changed["status"], changed["checks"]) == (2, "waiting", checks[:1])
    assert call(world, "GET", f"{PATH}/orders-30").json()["last_run"]["checks"] == results
    # Without checks nothing is reported.
    unchecked = call(world, "PUT", f"{PATH}/orders-30", json={**BODY, "checks": []}).json()
    assert (unchecked["version"], "checks" in unchecked) == (3, False)
    world.sql_traits.queue_due()
    assert call(world, "GET", f"{PATH}/orders-30").json()["last_run"]["checks"] is None
    assert world.sql_traits.failed_checks() == {}


def test_the_gauge_of_failed_checks_is_0_when_they_pass_again() -> None:
    world = created(checks=[{"not_null": "value"}])
    world.sql_traits.queue_due()
    registry = CollectorRegistry()
    gauge = FailedChecks(Metrics(registry))

    def reported() -> dict[tuple[str, ...], float]:
        gauge.report((world.sql_traits, world.sql_views))
        return {tuple(one.labels.values()): one.value for metric in registry.collect() for one in metric.samples}

    assert reported() == {}
    for passed, expected in (("false", 1), ("true", 0)):
        results = f'{{"checked_at_ms": 1, "checks": [{{"severity": "error", "passed": {passed}}}]}}'
        ended(world, "active", check_results=results)
        assert reported() == {("acme", "computed_trait", "error"): expected}


def test_failed_checks_of_an_archived_trait_are_not_counted() -> None:
    world = created(checks=[{"not_null": "value"}])
    world.sql_traits.queue_due()
    ended(world, "failed", check_results='{"checked_at_ms": 1, "checks": [{"severity": "error", "passed": false}]}')
    assert world.sql_traits.failed_checks() == {("acme", "error"): 1}
    call(world, "DELETE", f"{PATH}/orders-30")
    world.sql_traits.queue_due()
    assert world.sql_traits.failed_checks() == {}


def test_a_trait_without_a_runner_names_who_starts_the_job() -> None:
    world = created()
    traits = world.sql_traits
    operated = type(traits)(world.sql_trait_store, world.reader, lambda: 0, is_started=False)
    (shown,) = operated.shown("acme", world.reader.definitions("acme", "computed_trait")).values()
    assert "STARLING_SQL_TRAITS_RUNNER" in shown["last_run"]["message"]


def test_a_document_of_another_producer_is_left_out() -> None:
    world = created()
    place = (Workspace("acme"), "computed_trait", "orders-30")
    stored = world.reader.shown[place]
    for document in ({**BODY, "schedule": "never"}, {**BODY, "sql": 5}, {**BODY, "timezone": "Mars"}, {**BODY, "checks": 5}):
        world.reader.shown[place] = type(stored)(
            stored.kind, stored.key, 1, stored.status, document, stored.created_at_micros, stored.recorded_at_micros
        )
        assert world.sql_traits.queue_due() == {"waiting": 0, "running": 0}
        assert call(world, "GET", f"{PATH}/orders-30").status_code == 200
