"""Paths: an id in them can hold anything, no route takes over another one's paths, and errors name what is allowed."""

import pytest

from starling_api.http.pagination import make_cursor
from starling_api.ports import Membership
from tests.unit.api.calls import SEGMENT, call, defined
from tests.unit.api.memory import World


@pytest.mark.parametrize("path", ["/v1/users/ada/segments", "/v1/users/ada/events", "/v1/users/ada/export"])
def test_only_a_user_is_deleted(path: str) -> None:
    refused = call(World(), "DELETE", path)
    assert (refused.status_code, refused.json()["code"], refused.headers["allow"]) == (405, "method_not_allowed", "GET")
    assert call(World(), "DELETE", "/v1/users/ada").status_code == 501


@pytest.mark.parametrize("path", ["/v1/users/ada/segments/vip", "/v1/users/ada/x", "/v1/users/", "/v2", "/v1/segments/"])
def test_an_unknown_path_is_a_problem_for_every_method(path: str) -> None:
    for method in ("GET", "DELETE", "POST", "PATCH"):
        answer = call(World(), method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/segments", "GET, POST"),
        ("/v1/segments/vip", "GET, PUT, DELETE"),
        ("/v1/lists/vips/members", "GET, PUT, POST, DELETE"),
        ("/v1/users/ada", "GET, DELETE"),
        ("/healthz", "GET"),
    ],
)
def test_allow_names_every_method_of_a_path(path: str, allowed: str) -> None:
    answer = call(World(), "PATCH", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("user", ["a/b", "a/segments", "50%", "%2F", "%252F", "a b ü", "a?b", "a#b"])
def test_a_user_id_may_have_any_character(user: str) -> None:
    world = World()
    world.audience.user_rows = {user: [Membership("vip", 1, 0, 1)]}
    encoded = "".join(chr(byte) if byte < 128 and chr(byte).isalnum() else f"%{byte:02X}" for byte in user.encode())
    page = call(world, "GET", f"/v1/users/{encoded}/segments").json()
    assert [item["segment"] for item in page["items"]] == ["vip"]


NESTED = "W1tb" * 3000
"""`[[[[…`: deeper than a decoder goes."""


@pytest.mark.parametrize(
    ("path", "name", "positions"),
    [
        ("/v1/segments", "segment", [(1,)]),
        ("/v1/segments/vip/versions", "versions of vip", [(2**31, 0), (0, 2**63), (-(2**31) - 1, 0)]),
        ("/v1/segments/vip/members", "members of vip", [(2**31, "a"), (-(2**31) - 1, "a")]),
        ("/v1/segments/vip/history", "history of vip", [(2**63,)]),
        ("/v1/users/ada/events", "events of ada", [(2**63, "a"), (-(2**63) - 1, "a")]),
        ("/v1/users/ada/segments", "segments of ada", [(1,)]),
        ("/v1/lists", "list", [(1,)]),
        ("/v1/feed", "feed", [(2**63, 0), (-1, 0)]),
    ],
)
def test_a_foreign_cursor_is_a_bad_request(path: str, name: str, positions: list[tuple[object, ...]]) -> None:
    world = defined()
    for cursor in (NESTED, *(make_cursor(name, position) for position in positions)):
        answer = call(world, "GET", path, params={"cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")


def test_a_cursor_at_the_end_of_its_range_is_valid() -> None:
    world = defined()
    position = (2**31 - 1, 2**63 - 1)
    assert call(world, "GET", "/v1/segments/vip/versions", params={"cursor": make_cursor("versions of vip", position)}).is_success


def test_failures_and_refusals_are_problems() -> None:
    refused = call(World(), "POST", "/v1/segments", json={**SEGMENT, "where": {"all": []}})
    assert refused.json().keys() >= {"type", "title", "status", "detail", "code", "message", "success", "errors"}
