"""Write keys over HTTP, with the API and the edge as processes: the edge follows every change, without a restart."""

from collections.abc import Iterator

import httpx
import pytest

from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import WRITE_KEYS
from starling_common.testing import Service, eventually, running
from tests.conftest import Stack
from tests.contract.api.answers import faults, is_problem
from tests.contract.api.conftest import Client

ITEM = {"userId": "ada", "event": "Buy"}


@pytest.fixture(scope="module")
def edge(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = stack.environment() | {"STARLING_WRITE_KEYS": "of-the-settings=w"}
    with running("starling_ingest", settings, tmp_path_factory.mktemp("edge") / "log") as service:
        yield service


def send(edge: Service, key: str, path: str = "/v1/track") -> httpx.Response:
    body = {"batch": [ITEM | {"type": "track"}]} if path == "/v1/import" else ITEM
    return httpx.post(f"{edge.url}{path}", json=body, headers={"X-Write-Key": key}, trust_env=False, timeout=30)


def test_the_edge_follows_a_write_key(edge: Service, client: Client, stack: Stack) -> None:
    made = client.call("POST", "/v1/write-keys", {"name": "web", "scopes": ["track", "page"]})
    assert made.status_code == 201, made.text
    assert made.json()["scopes"] == ["track", "page"]
    first = made.json()["secret"]
    eventually(lambda: send(edge, first).status_code == 200, 5)
    assert is_problem(send(edge, first, "/v1/import"), 403, "scope_missing")

    path = f"/v1/write-keys/{made.json()['id']}"
    second = client.call("POST", f"{path}/rotate", {"overlap": "1h"}).json()["secret"]
    eventually(lambda: [send(edge, key).status_code for key in (first, second)] == [200, 200], 5)
    third = client.call("POST", f"{path}/rotate", {"overlap": "0s"}).json()["secret"]
    eventually(lambda: [send(edge, key).status_code for key in (first, second, third)] == [401, 401, 200], 5)
    assert client.call("DELETE", path).status_code == 204
    eventually(lambda: send(edge, third).status_code == 401, 5)
    assert send(edge, "of-the-settings").status_code == 200

    listed = client.call("GET", "/v1/write-keys")
    assert [(one["id"], one["revoked"]) for one in listed.json()["items"]] == [(made.json()["id"], True)]
    written = b"".join(
        message.value() or b"" for name in (WRITE_KEYS, "ingest.track") for message in read_topic(stack.brokers, name)
    )
    assert client.workspace.encode() in written
    for secret in (first, second, third):
        assert secret.encode() not in written
        assert secret not in edge.log.read_text() + listed.text


def test_a_key_has_every_scope_but_import_unless_it_names_them(client: Client) -> None:
    made = client.call("POST", "/v1/write-keys", {"name": "web"}).json()
    assert made["scopes"] == ["track", "identify", "page", "screen", "group", "alias", "batch"]
    for scopes in ([], ["delete"], "track", [1]):
        refused = client.call("POST", "/v1/write-keys", {"name": "web", "scopes": scopes})
        assert faults(refused) == {("/scopes", "wrong_type")}
    assert is_problem(client.call("GET", "/v1/write-keys", role="marketer"), 403, "forbidden")
