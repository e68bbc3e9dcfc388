"""Who is in which segment, over HTTP: from membership records in the topic to the answer."""

from typing import Any

import pytest

from starling_common.testing import eventually
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.answers import pages
from tests.contract.api.conftest import Client
from tests.integration.projector.feed import Log

DAY_MS = 86_400_000
USERS = [f"user-{number}" for number in range(25)]


@pytest.fixture
def log(stack: Stack, client: Client) -> Log:
    return Log(stack.brokers, Registry(stack.registry_url), client.workspace)


@pytest.fixture
def vip(client: Client) -> dict[str, Any]:
    answer = client.call("POST", "/v1/segments", {"key": "vip", "name": "VIP", "where": {"everyone": True}})
    made: dict[str, Any] = answer.json()
    return made


def test_members_size_and_history_follow_the_feed(client: Client, log: Log, vip: dict[str, Any]) -> None:
    for user in USERS:
        log.change(user, "vip", 1, effective_at=10 * DAY_MS)
    log.change(USERS[0], "vip", 2, effective_at=12 * DAY_MS)
    log.change(USERS[1], "vip", 2, effective_at=12 * DAY_MS)
    log.change(USERS[1], "vip", 3, effective_at=13 * DAY_MS)
    eventually(lambda: client.call("GET", "/v1/segments/vip/size").json()["size"] == 24)
    eventually(lambda: client.call("GET", "/v1/segments/vip/history").json()["items"][-1:] == [HISTORY[-1]])
    size = client.call("GET", "/v1/segments/vip/size").json()
    assert (size["key"], size["entered"], size["exited"]) == ("vip", 26, 2)
    for limit in (1, 7, 1000):
        members = pages(client, "/v1/segments/vip/members", limit)
        assert sorted(member["user_id"] for member in members) == sorted(USERS[1:])
    (again,) = [member for member in members if member["user_id"] == USERS[1]]
    assert again == {"user_id": USERS[1], "entered_at": "1970-01-14T00:00:00.000Z", "sequence": 3}
    assert pages(client, "/v1/segments/vip/history", 2) == HISTORY


HISTORY = [
    {"day": "1970-01-11", "entered": 25, "exited": 0, "size": 25},
    {"day": "1970-01-13", "entered": 0, "exited": 2, "size": 23},
    {"day": "1970-01-14", "entered": 1, "exited": 0, "size": 24},
]


def test_a_user_has_a_profile_and_segments(client: Client, log: Log) -> None:
    user = "a/b c@ü"
    log.profile(user, {"plan": "pro", "computed": {"ltv": 5}})
    for segment, sequence in (("a", 1), ("b", 1), ("b", 2), ("c", 5)):
        log.change(user, segment, sequence)
    path = "/v1/users/a%2Fb%20c%40%C3%BC"
    profile = eventually(lambda: _ok(client, path))
    assert profile["traits"] == {"plan": "pro", "computed": {"ltv": 5}}
    assert (profile["user_id"], profile["anonymous_ids"], profile["group_id"]) == (user, ["cookie-1"], None)
    eventually(lambda: [one["segment"] for one in pages(client, f"{path}/segments", 1)] == ["a", "c"])
    assert pages(client, f"{path}/segments", 1)[1]["sequence"] == 5
    body = {"users": [user, "unknown"], "segments": ["a", "b"]}
    found = client.call("POST", "/v1/memberships/lookup", body).json()
    assert found["memberships"] == {user: ["a"], "unknown": []}


def test_a_segment_becomes_active_once_every_partition_applies_it(client: Client, log: Log, vip: dict[str, Any]) -> None:
    assert vip["status"] == "backfilling"
    log.change("ada", "vip", 1)
    log.progress({"vip": 1}, stream_time_ms=5_000)
    eventually(lambda: client.call("GET", "/v1/segments/vip").json()["status"] == "active")
    # A segment is active only after its members are readable.
    assert [member["user_id"] for member in pages(client, "/v1/segments/vip/members", 10)] == ["ada"]
    for path in ("", "/vip", "/vip/members", "/vip/size"):
        assert client.call("GET", f"/v1/segments{path}").json()["as_of"] == "1970-01-01T00:00:05.000Z"
    changed = client.call("PUT", "/v1/segments/vip", {"name": "VIP", "where": {"event": "Buy"}})
    assert (changed.json()["version"], changed.json()["status"]) == (2, "backfilling")
    log.progress({"vip": 2}, stream_time_ms=6_000)
    eventually(lambda: client.call("GET", "/v1/segments").json()["items"][0]["status"] == "active")
    assert client.call("GET", "/v1/segments").json()["as_of"] == "1970-01-01T00:00:06.000Z"


def test_a_users_latest_events_are_the_newest_first_and_each_once(client: Client, log: Log) -> None:
    for number in range(5):
        log.event("a/b", f"Event {number}", f"e{number}", 1_000 + number)
    log.event("a/b", "Event 2", "e2", 1_002)  # read twice
    log.event("eve", "Event 9", "e9", 9_000)
    log.delivery("a/b", "DELIVERED", "d1", 1_002)
    log.event("a/b", "Last", "last", 500)
    path = "/v1/users/a%2Fb/events"
    eventually(lambda: len(pages(client, path, 100)) == 7)
    for limit in (1, 3, 100):
        found = pages(client, path, limit)
        assert [one["event_id"] for one in found] == ["e4", "e3", "e2", "d1", "e1", "e0", "last"]
    assert found[0] | {"name": "Event 4", "kind": "track", "properties": {"ü": ["Event 4"]}, "message_id": "m-e4"} == found[0]
    assert found[3] | {"name": "Message Delivered", "kind": "delivery", "message_id": None} == found[3]
    assert found[3]["properties"]["channel"] == "webhook"


def _ok(client: Client, path: str) -> dict[str, Any] | None:
    answer = client.call("GET", path)
    found: dict[str, Any] = answer.json()
    return found if answer.status_code == 200 else None
