"""The export of all data of one user."""

from typing import Any

from starling_api.ports import EventRow, PastMembership, Profile
from tests.unit.api.calls import call
from tests.unit.api.memory import World
from tests.unit.api.shop import BUYERS, shop


def export(world: World, user: str, status: int = 200, role: str = "rule") -> Any:
    answer = call(world, "GET", f"/v1/users/{user}/export", role=role)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_an_export_has_the_data_of_every_store() -> None:
    world = shop(buyers=BUYERS).world
    world.audience.profiles["u1"] = Profile("u1", ["anon"], {"plan": "pro"}, "acme-inc", 1_000)
    world.audience.past_rows["u1"] = [
        PastMembership("buyers", 1, "ENTERED", 2_000, 1),
        PastMembership("old", 3, "EXITED", 3_000, 2),
    ]
    details = {"properties": {"price": 1}, "context": {}}
    world.audience.event_rows["u1"] = [EventRow(at, f"e{at}", "track", "Buy", "m", details, at, "c") for at in range(2_500)]
    for key in ("vips", "others"):
        call(world, "PUT", f"/v1/lists/{key}", json={})
    call(world, "PUT", "/v1/lists/vips/members", json={"users": ["u1"]})
    found = export(world, "u1")
    assert found["profile"]["traits"] == {"plan": "pro"}
    assert [(one["segment"], one["status"]) for one in found["segments"]] == [("buyers", "ENTERED"), ("old", "EXITED")]
    assert found["lists"] == ["vips"]
    assert found["state"]["memberships"] == {"buyers": True}
    assert len(found["state"]["kept"]) == 1
    assert [one["event_id"] for one in found["events"]] == [f"e{at}" for at in reversed(range(2_500))]
    other = export(world, "u2")
    assert (other["profile"], other["segments"], other["lists"], other["events"]) == (None, [], [], [])
    assert other["state"]["memberships"] == {"buyers": True}


def test_an_export_needs_an_admin_and_a_known_user() -> None:
    world = shop().world
    assert export(world, "u1", 403, role="make")["code"] == "forbidden"
    assert export(world, "unknown", 404)["code"] == "unknown_user"
