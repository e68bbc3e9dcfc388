"""Lists of definitions with their filters and order, labels, and writes that are only tried."""

import json
from typing import Any

import httpx
import pytest

from starling_api.ports import Day
from tests.unit.api.calls import SEGMENT, call
from tests.unit.api.memory import World

KINDS: dict[str, dict[str, Any]] = {
    "/v1/segments": SEGMENT,
    "/v1/computed-traits": {"key": "vip", "event": "Buy"},
    "/v1/webhooks": {"key": "vip", "url": "https://shop.example/hook"},
}
LABELS = {"tags": ["spring", "eu"], "owner": "crm team"}


def keys(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["key"] for item in answer.json()["items"]]


def filled() -> World:
    world = World()
    for key, name, labels in (("b", "Buyers", LABELS), ("a", "Zebra fans", {"tags": ["eu"]}), ("c", "Lapsed BUYERS", {})):
        made = {"key": key, "name": name, "where": {"everyone": True}, **labels}
        assert call(world, "POST", "/v1/segments", json=made).status_code == 201
        world.micros += 1_000_000
    return world


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"tag": "eu"}, ["a", "b"]),
        ({"tag": "spring"}, ["b"]),
        ({"tag": "spr"}, []),
        ({"owner": "crm team"}, ["b"]),
        ({"name": "buyers"}, ["b", "c"]),
        ({"name": "buyers", "tag": "eu"}, ["b"]),
        ({"status": "backfilling"}, ["a", "b", "c"]),
        ({"status": "paused"}, []),
        ({"sort": "-key"}, ["c", "b", "a"]),
        ({"sort": "name"}, ["b", "c", "a"]),
        ({"sort": "-name"}, ["a", "c", "b"]),
        ({"sort": "created_at"}, ["b", "a", "c"]),
        ({"sort": "-updated_at"}, ["c", "a", "b"]),
    ],
)
def test_segments_are_filtered_and_sorted_on_every_page(query: dict[str, Any], expected: list[str]) -> None:
    world = filled()
    assert keys(call(world, "GET", "/v1/segments", params=query)) == expected
    walked: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = call(world, "GET", "/v1/segments", params=query | cursor | {"limit": "1"}).json()
        walked += [item["key"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert walked == expected


def test_the_filter_finds_archived_and_paused_segments() -> None:
    world = filled()
    call(world, "DELETE", "/v1/segments/a")
    call(world, "POST", "/v1/segments/b/pause")
    assert keys(call(world, "GET", "/v1/segments")) == ["b", "c"]
    assert keys(call(world, "GET", "/v1/segments", params={"include_archived": "true"})) == ["a", "b", "c"]
    assert keys(call(world, "GET", "/v1/segments", params={"status": "archived"})) == ["a"]
    assert keys(call(world, "GET", "/v1/segments", params={"status": "paused"})) == ["b"]


@pytest.mark.parametrize("query", [{"status": "nice"}, {"sort": "size"}, {"tag": "x" * 201}])
def test_an_unknown_filter_is_a_bad_request(query: dict[str, str]) -> None:
    assert call(World(), "GET", "/v1/segments", params=query).status_code == 400


def test_a_cursor_is_valid_for_its_own_order_only() -> None:
    world = filled()
    cursor = call(world, "GET", "/v1/segments", params={"limit": 1, "sort": "name"}).json()["next_cursor"]
    assert call(world, "GET", "/v1/segments", params={"cursor": cursor}).json()["code"] == "bad_cursor"


def test_segments_in_a_list_have_their_sizes() -> None:
    world = filled()
    world.audience.day_rows = [Day(0, 7, 2)]
    page = call(world, "GET", "/v1/segments").json()
    assert [item["size"] for item in page["items"]] == [5, 5, 5]
    assert "size" not in call(world, "GET", "/v1/segments/a").json()


def test_lists_are_listed() -> None:
    world = World()
    for key in ("b", "a"):
        assert call(world, "PUT", f"/v1/lists/{key}", json=LABELS).status_code == 201
    page = call(world, "GET", "/v1/lists", role="see").json()
    assert [(item["key"], item["tags"], item["owner"]) for item in page["items"]] == [(key, *LABELS.values()) for key in "ab"]


@pytest.mark.parametrize("path", KINDS)
def test_labels_are_stored_and_make_no_new_version(path: str) -> None:
    world = World()
    made = call(world, "POST", path, json={**KINDS[path], **LABELS}).json()
    assert {field: made[field] for field in LABELS} == LABELS
    read = call(world, "GET", f"{path}/vip").json()
    changed = call(world, "PUT", f"{path}/vip", json={**read, "tags": ["autumn"], "owner": None}).json()
    assert (changed["version"], changed["tags"]) == (1, ["autumn"])
    assert "owner" not in changed
    assert changed["revision"] > made["revision"]


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize(
    "labels", [{"tags": "a"}, {"tags": [""]}, {"tags": [1]}, {"tags": ["x" * 65]}, {"tags": ["x"] * 33}, {"owner": ""}]
)
def test_invalid_labels_are_refused(path: str, labels: dict[str, Any]) -> None:
    refused = call(World(), "POST", path, json={**KINDS[path], **labels})
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [f"/{next(iter(labels))}"]


def snapshot(world: World) -> tuple[Any, ...]:
    return (
        len(world.published),
        dict(world.claims.newest_claims),
        dict(world.list_store.kept),
        list(world.list_changes),
        dict(world.answers.kept),
    )


WRITES: list[tuple[str, str, Any, int]] = [
    ("POST", "/v1/segments", {"key": "new", "name": "New", "where": {"everyone": True}}, 201),
    ("POST", "/v1/segments", SEGMENT, 422),
    ("PUT", "/v1/segments/vip", {"name": "Other", "where": {"event": "Buy"}}, 200),
    ("PUT", "/v1/segments/unknown", {"name": "Other", "where": {"event": "Buy"}}, 404),
    ("POST", "/v1/segments/vip/pause", None, 200),
    ("POST", "/v1/segments/vip/resume", None, 200),
    ("DELETE", "/v1/segments/vip", None, 204),
    ("PUT", "/v1/lists/new", {}, 201),
    ("PUT", "/v1/lists/fair", {"name": "Fair"}, 200),
    ("DELETE", "/v1/lists/fair", None, 204),
    ("PUT", "/v1/lists/fair/members", {"users": ["bob"]}, 200),
    ("POST", "/v1/lists/fair/members", {"users": ["bob"]}, 200),
    ("DELETE", "/v1/lists/fair/members", {"users": ["ada"]}, 200),
    ("POST", "/v1/lists/fair/members", {"users": [5]}, 422),
    ("POST", "/v1/webhooks", {"key": "shop", "url": "https://shop.example/hook"}, 201),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), WRITES, ids=lambda value: str(value)[:40])
def test_a_dry_run_responds_without_an_effect(method: str, path: str, body: Any, status: int) -> None:
    world = World()
    call(world, "POST", "/v1/segments", json=SEGMENT)
    call(world, "PUT", "/v1/lists/fair")
    call(world, "PUT", "/v1/lists/fair/members", json={"users": ["ada"]})
    before = snapshot(world)
    content = {} if body is None else {"content": json.dumps(body)}
    tried = call(world, method, path, params={"dry_run": "true"}, headers={"Idempotency-Key": "k"}, **content)
    assert tried.status_code == status, tried.text
    assert snapshot(world) == before
    assert "etag" not in tried.headers
    assert '"secret"' not in tried.text
    made = call(world, method, path, headers={"Idempotency-Key": "k"}, **content)
    assert made.status_code == status
    if status in {200, 201}:
        moving = {"revision", "created_at", "updated_at", "secret"}
        assert {k: v for k, v in tried.json().items() if k not in moving} == {
            k: v for k, v in made.json().items() if k not in moving
        }
