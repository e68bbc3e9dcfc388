"""The outcomes of items over HTTP, from records in the real topic."""

import uuid

import pytest

from starling_common.time.instants import format_instant, wall_clock_ms
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.answers import is_problem
from tests.contract.api.conftest import Client
from tests.integration.projector.feed import Log


@pytest.fixture
def log(stack: Stack, client: Client) -> Log:
    return Log(stack.brokers, Registry(stack.registry_url), client.workspace)


def write(log: Log, user: str, message_id: str, *, accepted: bool) -> None:
    now_ms = wall_clock_ms()
    record = {
        "received_at": now_ms * 1000,
        "workspace": log.workspace,
        "user_id": user,
        "message_id": message_id,
        "outcome": "ACCEPTED" if accepted else "REFUSED",
        "event_id": str(uuid.uuid4()) if accepted else None,
        "event_topic": "events.behaviour" if accepted else None,
        "code": None if accepted else "bad_timestamp",
        "message": None if accepted else "timestamp: 'yesterday' is no time",
        "origin_topic": "ingest.track",
        "origin_partition": 0,
        "origin_offset": 1,
        "decided_at": now_ms,
        "correlation_id": "test",
    }
    log.write("ingest.outcomes", user, record)


def test_what_became_of_an_item(client: Client, another: Client, log: Log) -> None:
    for user in ("ada", "grace"):
        for number in range(3):
            write(log, user, f"{user}-{number}", accepted=number > 0)
    log.write_raw("ingest.outcomes", "ada", b"no Avro, but ada-1")  # is left out, and the others are found

    def found(query: str) -> list[str]:
        answer = client.call("GET", f"/v1/outcomes{query}", role="viewer")
        assert answer.status_code == 200, answer.text
        assert answer.json()["next_cursor"] is None
        return sorted(one["message_id"] for one in answer.json()["items"])

    everything = [f"{user}-{number}" for user in ("ada", "grace") for number in range(3)]
    assert found("") == everything
    assert found("?user_id=ada") == everything[:3]
    assert found("?message_id=ada-1") == ["ada-1"]
    assert found("?outcome=REFUSED") == ["ada-0", "grace-0"]
    assert found("?user_id=grace&message_id=ada-1") == []
    assert found(f"?since={format_instant(wall_clock_ms() - 60_000)}") == everything
    assert found(f"?since={format_instant(wall_clock_ms() + 60_000)}") == []
    assert another.call("GET", "/v1/outcomes").json()["items"] == []  # each workspace has its own

    first = client.call("GET", "/v1/outcomes?user_id=ada&limit=2").json()
    assert [one["message_id"] for one in first["items"]] == ["ada-0", "ada-1"]
    assert first["items"][0]["code"] == "bad_timestamp"
    second = client.call("GET", f"/v1/outcomes?user_id=ada&limit=2&cursor={first['next_cursor']}").json()
    assert [one["message_id"] for one in second["items"]] == ["ada-2"]


def test_bad_input(client: Client) -> None:
    assert is_problem(client.call("GET", "/v1/outcomes?since=yesterday"), 400, "bad_instant")
    assert is_problem(client.call("GET", "/v1/outcomes?cursor=nonsense"), 400, "bad_cursor")
    assert is_problem(client.call("GET", "/v1/outcomes?outcome=maybe"), 400, "bad_parameter")
    assert is_problem(client.call("GET", "/v1/outcomes", role="unknown"), 401, "unauthorized")
