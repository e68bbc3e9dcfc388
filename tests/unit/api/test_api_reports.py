"""Requests to the audience report, over HTTP, on rows in memory."""

from typing import Any

import pytest

from starling_api.reports.audience_report import ReportRow, ReportRun
from tests.unit.api.calls import call
from tests.unit.api.memory import World

NOON_MS = 1_700_049_600_000


def reported() -> World:
    world = World()
    world.reports.runs["acme"] = ReportRun(7, NOON_MS, "Europe/Berlin", ["buyers", "lapsing"], 2, 0)
    days = [(key, f"2023-11-{day}") for key in ("lapsing", "buyers") for day in (13, 14, 15)]
    world.reports.kept["acme", 7, "days"] = [
        ReportRow(key, day, {"day": day, "size": number, "entries": 0}) for number, (key, day) in enumerate(days)
    ]
    world.reports.kept["acme", 7, "retention"] = [
        ReportRow("buyers", f"2023-11-13/{later:05d}", {"day": "2023-11-13", "days_later": later, "entered": 2, "still": 1})
        for later in (30, 7)
    ]
    world.reports.kept["acme", 7, "overlap"] = [ReportRow("buyers", "lapsing", {"other_key": "lapsing", "users": 3})]
    return world


def asked(world: World, query: str) -> list[tuple[str, Any]]:
    """(segment, size or days_later) of all rows, on pages of two."""
    found: list[tuple[str, Any]] = []
    cursor = ""
    while True:
        answer = call(world, "GET", f"/v1/reports/audience?limit=2&{query}{cursor}").json()
        found += [(item["segment"], item.get("size", item.get("days_later"))) for item in answer["items"]]
        if answer["next_cursor"] is None:
            return found
        cursor = f"&cursor={answer['next_cursor']}"


def test_a_report_states_its_time_zone_and_counts() -> None:
    assert call(reported(), "GET", "/v1/reports/audience?show=overlap", role="see").json() == {
        "report": "audience",
        "show": "overlap",
        "items": [{"segment": "buyers", "other_key": "lapsing", "users": 3}],
        "next_cursor": None,
        "as_of": "2023-11-15T12:00:00.000Z",
        "timezone": "Europe/Berlin",
        "records_missing": 2,
        "records_unreadable": 0,
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [("buyers", 3), ("buyers", 4), ("buyers", 5), ("lapsing", 0), ("lapsing", 1), ("lapsing", 2)]),
        ("segment=lapsing", [("lapsing", 0), ("lapsing", 1), ("lapsing", 2)]),
        ("from=2023-11-14&to=2023-11-15", [("buyers", 4), ("lapsing", 1)]),
        ("show=retention", [("buyers", 7), ("buyers", 30)]),
        ("show=retention&from=2023-11-14", []),
    ],
)
def test_pages_and_filters(query: str, expected: list[tuple[str, int]]) -> None:
    assert asked(reported(), query) == expected


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("segment=none", 404, "unknown_segment"),
        ("from=yesterday", 400, "bad_day"),
        ("show=overlap&from=2023-11-14", 400, "bad_parameter"),
        ("show=sizes", 400, "bad_parameter"),
        ("cursor=x", 400, "bad_cursor"),
    ],
)
def test_an_invalid_parameter_is_refused(query: str, status: int, code: str) -> None:
    answer: Any = call(reported(), "GET", f"/v1/reports/audience?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_before_the_first_report_there_is_none() -> None:
    answer: Any = call(World(), "GET", "/v1/reports/audience")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_report")


def test_a_report_replaced_during_the_read_is_read_again() -> None:
    world = reported()
    world.reports.kept["acme", 8, "days"] = [ReportRow("buyers", "2023-11-16", {"day": "2023-11-16", "size": 9, "entries": 0})]

    def replaced() -> None:
        world.reports.runs["acme"] = ReportRun(8, NOON_MS, "UTC", ["buyers"], 0, 0)
        world.reports.kept["acme", 7, "days"].clear()

    world.reports.on_rows = replaced
    answer = call(world, "GET", "/v1/reports/audience").json()
    assert ([row["size"] for row in answer["items"]], answer["timezone"]) == ([9], "UTC")


def test_a_page_of_a_report_that_was_replaced_is_not_continued() -> None:
    world = reported()
    cursor = call(world, "GET", "/v1/reports/audience?limit=1").json()["next_cursor"]
    world.reports.runs["acme"] = world.reports.runs["acme"]._replace(run=8)
    assert call(world, "GET", f"/v1/reports/audience?cursor={cursor}").json()["code"] == "bad_cursor"
