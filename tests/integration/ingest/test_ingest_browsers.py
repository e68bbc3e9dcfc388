"""The requests of published browser clients against a real edge, broker and registry.

`browser_clients.json` holds what the clients sent, in their order: headers of their own and bodies byte for byte. They were
recorded between an edge and the packages: RudderStack's and Segment's in jsdom, whose requests obey CORS; Jitsu's in Node.
"""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from starling_common.kafka.topics import INGEST_KINDS
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, records, running

CLIENTS: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "browser_clients.json").read_text())


@pytest.fixture(scope="module")
def workspace() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def edge(stack: Stack, workspace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeProcess]:
    settings = {"STARLING_WRITE_KEYS": f"the-write-key={workspace},id:secret={workspace}"}
    with running(stack.environment() | settings, tmp_path_factory.mktemp("edge")) as found:
        yield found


def names(value: str) -> set[str]:
    return {name.strip().lower() for name in value.split(",")}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_request_of_a_client_is_answered_as_its_browser_demands(
    stack: Stack, edge: EdgeProcess, workspace: str, client: str
) -> None:
    sent: set[tuple[str, str]] = set()
    with httpx.Client(base_url=edge.url, timeout=30) as http:
        for request in CLIENTS[client]:
            answer = http.request(request["method"], request["path"], headers=request["headers"], content=request["body"])
            assert answer.is_success, (request["path"], answer.text)
            assert answer.headers["access-control-allow-origin"] == "*"
            if request["method"] == "OPTIONS":
                asked = request["headers"]
                assert names(asked["Access-Control-Request-Headers"]) <= names(answer.headers["access-control-allow-headers"])
                assert asked["Access-Control-Request-Method"] in answer.headers["access-control-allow-methods"].split(", ")
            else:
                assert {"retry-after", "ratelimit-remaining", "x-correlation-id"} <= names(
                    answer.headers["access-control-expose-headers"]
                )
            if request["method"] == "POST" and request["path"] != "/v1/m":
                assert answer.json()["success"] is True
                body = json.loads(request["body"])
                sent |= {(kind_of(item, request["path"]), item["messageId"]) for item in body.get("batch", [body])}
    assert sent
    assert sent <= arrived(stack, workspace)


def kind_of(item: dict[str, Any], path: str) -> str:
    named = path.rpartition("/")[2]
    return next((kind for kind in INGEST_KINDS if named in (kind, kind[0])), None) or item["type"]


def arrived(stack: Stack, workspace: str) -> set[tuple[str, str]]:
    registry = Registry(stack.registry_url)
    found: set[tuple[str, str]] = set()
    for kind in INGEST_KINDS:
        codec = registry.codec(f"ingest.{kind}", "IngestReceived")
        messages = records(stack.brokers, f"ingest.{kind}", workspace)
        found |= {(kind, codec.decode(message.value() or b"")["message_id"]) for message in messages}
    return found


def test_the_configuration_of_rudderstacks_client_is_what_it_takes_for_one(edge: EdgeProcess) -> None:
    source = httpx.get(f"{edge.url}/sourceConfig/?writeKey=the-write-key").json()["source"]
    assert source["id"] is not None
    assert source["enabled"] is True
    assert source["destinations"] == []
    assert source["config"]["statsCollection"] == {"errors": {"enabled": False}, "metrics": {"enabled": False}}


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/sourceConfig"), ("POST", "/api/s/track"), ("POST", "/api/s/s2s/track"), ("POST", "/beacon/v1/batch")],
)
def test_an_unknown_key_is_refused_at_every_path(edge: EdgeProcess, method: str, path: str) -> None:
    for key in ("id", "id:***", "id:other", "wrong"):
        answer = httpx.request(method, edge.url + path, headers={"X-Write-Key": key})
        assert (answer.status_code, answer.json()["code"]) == (401, "unknown_write_key")
