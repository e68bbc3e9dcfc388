"""Requests to a materialised view, over HTTP, on rows in memory."""

import json
from typing import Any

import pytest

from starling_api.reports.views import ViewEntry, ViewRow
from tests.unit.api.calls import call
from tests.unit.api.memory import World

HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000


def sales() -> World:
    world = World()
    world.views.entries["sales"] = ViewEntry(2, ("product_id", "region"), ("revenue", "quantity"), 6 * HOUR_MS)
    world.views.times["sales", 2] = NOON_MS + 1
    world.views.kept["acme", "sales", 2] = [
        row(start_ms, product, region, str(number))
        for number, (start_ms, product, region) in enumerate(
            (start_ms, product, region)
            for start_ms in (NOON_MS, NOON_MS + 6 * HOUR_MS)
            for product in ("p", "q")
            for region in ("Berlin", "CA")
        )
    ]
    world.views.kept["other", "sales", 2] = [row(NOON_MS, "secret", "Berlin", "1")]
    world.views.kept["acme", "sales", 1] = [row(NOON_MS, "old", "Berlin", "1")]
    return world


def row(start_ms: int, product: str, region: str, revenue: str) -> ViewRow:
    content = {"product_id": product, "region": region, "revenue": f"{revenue}.500000", "quantity": f"{revenue}.000"}
    return ViewRow(start_ms, json.dumps([product, region]), content)


def asked(world: World, query: str) -> list[float]:
    """The revenues on all pages of two."""
    found: list[float] = []
    cursor = ""
    while True:
        answer = call(world, "GET", f"/v1/views/sales?limit=2&{query}{cursor}").json()
        found += [item["revenue"] for item in answer["items"]]
        if answer["next_cursor"] is None:
            return found
        cursor = f"&cursor={answer['next_cursor']}"


def test_a_row_has_its_window_its_dimensions_and_its_sums() -> None:
    answer = call(sales(), "GET", "/v1/views/sales?limit=1", role="see").json()
    assert answer == {
        "view": "sales",
        "version": 2,
        "items": [
            {
                "window_start": "2023-11-15T12:00:00.000Z", "window_end": "2023-11-15T18:00:00.000Z",
                "product_id": "p", "region": "Berlin", "revenue": 0.5, "quantity": 0,
            }
        ],
        "next_cursor": answer["next_cursor"],
        "as_of": "2023-11-15T12:00:00.001Z",
    }  # fmt: skip
    assert answer["next_cursor"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]),
        ("region=CA", [1.5, 3.5, 5.5, 7.5]),
        ("region=CA&product_id=q", [3.5, 7.5]),
        ("from=2023-11-15T12:00:00.001Z", [4.5, 5.5, 6.5, 7.5]),
        ("to=2023-11-15T18:00:00Z", [0.5, 1.5, 2.5, 3.5]),
        ("from=2023-11-16", []),
        ("region=nowhere", []),
    ],
)
def test_pages_and_filters(query: str, expected: list[float]) -> None:
    assert asked(sales(), query) == expected


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/views/nothing", 404, "unknown_view"),
        ("/v1/views/sales?colour=red", 400, "unknown_dimension"),
        ("/v1/views/sales?from=yesterday", 400, "bad_instant"),
        ("/v1/views/sales?cursor=x", 400, "bad_cursor"),
        ("/v1/views/sales?limit=0", 400, "bad_parameter"),
    ],
)
def test_an_invalid_parameter_is_refused(path: str, status: int, code: str) -> None:
    answer: Any = call(sales(), "GET", path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_view_without_a_row_has_no_as_of() -> None:
    world = sales()
    world.views.times.clear()
    world.views.kept.clear()
    answer = call(world, "GET", "/v1/views/sales").json()
    assert (answer["items"], answer["as_of"]) == ([], None)
