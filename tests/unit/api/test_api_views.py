"""Views in SQL over HTTP, on stores in memory: definitions, runs, and the path that they share with materialised views."""

from typing import Any

import pytest

from starling_api.reports.views import ViewEntry
from starling_rules.sql.incremental import incremental_of
from tests.unit.api.calls import call
from tests.unit.api.memory import World

PATH = "/v1/views"
SQL = "SELECT name, count(*) AS events FROM events WHERE event_time > :as_of - INTERVAL 30 DAYS GROUP BY name"
BODY = {"key": "events_by_name", "sql": SQL, "schedule": "15 * * * *"}


def created(**more: Any) -> World:
    world = World()
    assert call(world, "POST", PATH, json=BODY | more).status_code == 201
    return world


def test_a_view_waits_for_its_first_run_and_shows_the_last_one() -> None:
    world = created(description="Of all people", timezone="Asia/Tokyo", tags=["shop"])
    found = call(world, "GET", f"{PATH}/events_by_name", role="see").json()
    assert (found["status"], found["version"], found["sql"], found["timezone"]) == ("waiting", 1, SQL, "Asia/Tokyo")
    assert set(found["last_run"].values()) == {None}
    assert world.sql_views.queue_due() == {"waiting": 1, "running": 0}
    assert (world.sql_traits.queue_due(), world.sql_trait_store.runs) == ({"waiting": 0, "running": 0}, [])
    place = ("acme", "events_by_name")
    row = world.sql_view_store.rows[place]
    world.sql_view_store.rows[place] = row._replace(state="active", as_of_ms=1_000, ended_at_ms=2_000, users=3, scanned_bytes=10)
    found = call(world, "GET", f"{PATH}/events_by_name")
    assert found.json()["last_run"] == {
        "as_of": "1970-01-01T00:00:01.000Z", "ended_at": "1970-01-01T00:00:02.000Z", "rows": 3, "days": None, "late_rows": None,
        "scanned_bytes": 10, "message": None, "checked_at": None, "checks": None,
    }  # fmt: skip
    assert [one["status"] for one in call(world, "GET", f"{PATH}?status=active").json()["items"]] == ["active"]
    # The response can be edited and sent back.
    etag = {"If-Match": found.headers["ETag"]}
    assert call(world, "PUT", f"{PATH}/events_by_name", json=found.json(), headers=etag).json()["version"] == 1
    changed = call(world, "PUT", f"{PATH}/events_by_name", json=BODY | {"sql": SQL.replace("30", "60")}).json()
    assert (changed["version"], changed["status"]) == (2, "waiting")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"key": "events-by-name"}, [("/key", "bad_key")]),
        ({"sql": None, "schedule": None}, [("", "missing_field"), ("/sql", "wrong_type")]),
        ({"sql": "SELECT * FROM events"}, [("/sql", "star")]),
        ({"sql": "SELECT name, count(*) FROM events GROUP BY name"}, [("/sql", "bad_result")]),
        ({"sql": "SELECT name, kind AS NAME FROM events"}, [("/sql", "bad_result")]),
        ({"sql": "SELECT name AS `a b` FROM events"}, [("/sql", "bad_result")]),
        ({"sql": "SELECT e.name FROM events e CROSS JOIN profiles p"}, [("/sql", "cross_join")]),
        ({"sql": "SELECT n FROM event_order", "name": 5}, [("/name", "wrong_type"), ("/sql", "unknown_table")]),
        ({"checks": [{"unique": ["NAME", "day"]}]}, [("/checks/0/unique/1", "unknown_column")]),
        ({"sql": "SELECT * FROM events", "checks": [{"not_null": "day"}, {}]}, [("/checks/1", "wrong_type"), ("/sql", "star")]),
        ({"description": 5, "colour": 1}, [("/colour", "unknown_field"), ("/description", "wrong_type")]),
    ],
)
def test_a_refused_view_names_every_error(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    answer = call(World(), "POST", PATH, json=BODY | change)
    assert answer.status_code == 422
    assert sorted((error["pointer"], error["code"]) for error in answer.json()["errors"]) == expected


def test_a_view_computes_columns_that_a_trait_does_not() -> None:
    world = World()
    sql = "SELECT lower(user_id) AS user_id, kind, count(*) AS events FROM events GROUP BY lower(user_id), kind"
    assert call(world, "POST", PATH, json=BODY | {"sql": sql}).status_code == 201


def test_a_view_reads_an_event_type_which_then_stays() -> None:
    world = World()
    order = {"key": "order", "event": "Order Completed", "properties": [{"name": "revenue", "type": "number"}]}
    call(world, "POST", "/v1/event-types", json=order)
    assert call(world, "POST", PATH, json=BODY | {"sql": "SELECT sum(revenue) AS revenue FROM event_order"}).status_code == 201
    assert call(world, "GET", "/v1/event-types/order").json()["used_by"] == ["events_by_name"]
    archived = order | {"properties": [{"name": "revenue", "type": "number", "archived": True}]}
    [error] = call(world, "PUT", "/v1/event-types/order", json=archived).json()["errors"]
    assert (error["code"], "view events_by_name" in error["message"]) == ("in_use", True)
    assert call(world, "DELETE", "/v1/event-types/order").status_code == 409


def test_a_run_outside_the_schedule_and_the_end_of_a_view() -> None:
    world = created()
    run = f"{PATH}/events_by_name/run"
    assert call(world, "POST", f"{run}?dry_run=true").status_code == 200
    assert world.sql_view_store.runs == []
    assert call(world, "POST", run).json()["status"] == "waiting"
    assert call(world, "POST", run).status_code == 200
    assert len(world.sql_view_store.runs) == 1
    assert call(world, "POST", run, role="see").status_code == 403
    assert call(world, "POST", f"{PATH}/none/run").status_code == 404
    assert call(world, "DELETE", f"{PATH}/events_by_name").status_code == 204
    assert call(world, "POST", run).status_code == 409
    found = call(world, "GET", f"{PATH}/events_by_name").json()
    assert (found["status"], found["next_run_at"]) == ("archived", None)


def test_a_materialised_view_keeps_its_path() -> None:
    world = World()
    world.views.entries["sales"] = ViewEntry(1, ("region",), ("quantity",), 1_000)
    [error] = call(world, "POST", PATH, json=BODY | {"key": "sales"}).json()["errors"]
    assert (error["pointer"], error["code"]) == ("/key", "key_taken")
    assert call(world, "GET", f"{PATH}/sales").json()["view"] == "sales"
    assert call(world, "GET", f"{PATH}/none").status_code == 404


BY_DAY = "SELECT to_date(event_time) AS day, count(*) AS events FROM events GROUP BY to_date(event_time)"
WATERMARK = "/incremental/watermark"
OF_PROFILES = "SELECT to_date(updated_at) AS day FROM profiles"


def test_an_incremental_view_has_a_column_of_the_day_and_runs_in_full_on_demand() -> None:
    world = created(sql=BY_DAY, incremental={"column": "DAY"})
    path, place = f"{PATH}/events_by_name", ("acme", "events_by_name")
    found = call(world, "GET", path)
    assert found.json()["incremental"] == {"column": "day", "watermark": "7d"}
    assert call(world, "PUT", path, json=found.json(), headers={"If-Match": found.headers["ETag"]}).json()["version"] == 1
    world.sql_views.queue_due()
    assert incremental_of(world.sql_view_store.incremental[place]) == ("day", 7 * 86_400_000, False)
    row = world.sql_view_store.rows[place]
    world.sql_view_store.rows[place] = row._replace(state="active", days=3, late_rows=5)
    last = call(world, "GET", path).json()["last_run"]
    assert (last["days"], last["late_rows"]) == (3, 5)
    assert call(world, "POST", f"{path}/run?full=true").status_code == 200
    assert incremental_of(world.sql_view_store.incremental[place]) == ("day", 7 * 86_400_000, True)
    changed = call(world, "PUT", path, json=BODY | {"sql": BY_DAY}).json()
    assert (changed["version"], changed.get("incremental")) == (2, None)


@pytest.mark.parametrize(
    ("sql", "field", "expected"),
    [
        (BY_DAY, "day", [("/incremental", "wrong_type")]),
        (BY_DAY, {"column": "days"}, [("/incremental/column", "unknown_column")]),
        (BY_DAY, {"column": 5, "watermark": "7"}, [("/incremental/column", "wrong_type"), (WATERMARK, "bad_duration")]),
        (BY_DAY, {"column": "day", "lookback": "1d"}, [("/incremental/lookback", "unknown_field")]),
        (BY_DAY.replace("to_date(event_time) AS", "CAST(received_at AS DATE) AS"), {"column": "day"}, [("/sql", "bad_result")]),
        (BY_DAY.replace("to_date(event_time) AS", "CAST(event_time AS STRING) AS"), {"column": "day"}, [("/sql", "bad_result")]),
        (BY_DAY.replace("to_date(event_time) AS", "to_date(event_time, 'dd') AS"), {"column": "day"}, [("/sql", "bad_result")]),
        (BY_DAY.replace("events FROM", "day FROM"), {"column": "day"}, [("/sql", "bad_result")]),
        (BY_DAY.replace("GROUP", "WHERE event_time < :as_of GROUP"), {"column": "day"}, [("/sql", "bad_parameter")]),
        (OF_PROFILES, {"column": "day"}, [("/sql", "bad_result"), ("/sql", "not_incremental")]),
        ("SELECT day FROM (SELECT day(event_time) AS day FROM events)", {"column": "day"}, [("/sql", "bad_result")]),
    ],
)
def test_an_incremental_view_is_refused_with_every_error(sql: str, field: object, expected: list[tuple[str, str]]) -> None:
    answer = call(World(), "POST", PATH, json=BODY | {"sql": sql, "incremental": field})
    assert answer.status_code == 422
    assert sorted((error["pointer"], error["code"]) for error in answer.json()["errors"]) == expected


@pytest.mark.parametrize(
    "sql",
    [
        BY_DAY.replace("to_date(event_time) AS", "CAST(e.event_time AS DATE) AS").replace("FROM events", "FROM events e"),
        "WITH own AS (SELECT to_date(event_time) AS day, name FROM events) SELECT o.day AS day, o.name FROM own o",
        "SELECT day, n FROM (SELECT to_date(event_time) AS day, 1 AS n FROM events)",
    ],
)
def test_a_column_of_the_day_is_computed_by_any_part(sql: str) -> None:
    assert call(World(), "POST", PATH, json=BODY | {"sql": sql, "incremental": {"column": "day"}}).status_code == 201
