"""The audit log over HTTP, through the real topic, projector and table."""

from starling_common.testing import eventually
from tests.contract.api.answers import is_problem
from tests.contract.api.conftest import Client


def test_writes_are_listed_with_their_actor(client: Client, another: Client) -> None:
    segment = {"key": "vip", "name": "VIP", "where": {"everyone": True}}
    made = client.call("POST", "/v1/segments", segment, role="marketer", X_Correlation_Id="audit-1").json()
    token = client.call("POST", "/v1/tokens", {"name": "ci", "role": "viewer"}).json()
    another.call("PUT", "/v1/lists/fair", {})
    eventually(lambda: len(client.call("GET", "/v1/audit").json()["items"]) == 2)
    eventually(lambda: another.call("GET", "/v1/audit").json()["items"] != [])
    found = client.call("GET", "/v1/audit").json()
    first, second = found["items"]
    assert (first["actor"][:9], first["role"], first["key"], first["revision_after"]) == (
        "marketer-",
        "editor",
        "vip",
        made["revision"],
    )
    assert (first["correlation_id"], first["revision_before"]) == ("audit-1", None)
    assert (second["resource"], second["key"]) == ("tokens", token["id"])
    assert token["secret"] not in str(found)
    assert found["next_cursor"] is None
    assert [one["key"] for one in another.call("GET", "/v1/audit?resource=lists").json()["items"]] == ["fair"]
    assert client.call("GET", "/v1/audit?method=DELETE").json()["items"] == []
    page = client.call("GET", "/v1/audit?limit=1").json()
    assert client.call("GET", f"/v1/audit?limit=1&cursor={page['next_cursor']}").json()["items"] == [second]
    assert is_problem(client.call("GET", "/v1/audit", role="marketer"), 403, "forbidden")
    assert is_problem(client.call("GET", "/v1/audit?cursor=nonsense"), 400, "bad_cursor")
