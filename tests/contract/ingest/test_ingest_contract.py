"""The answers of the ingest API as the platform's contract lists them, from a real edge over a real socket."""

import base64
import gzip
import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf.struct_pb2 import Struct

from starling_common.wire import Batch, Item, Registry
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, records, running

WORKSPACE = f"t{uuid.uuid4().hex[:12]}"
GOOD = {"type": "track", "event": "e", "userId": "u-1"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
BAD = {"type": "track", "userId": "u-1"}


def struct(**members: Any) -> Struct:
    made = Struct()
    made.update(members)
    return made


@pytest.fixture(scope="module")
def edge(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeProcess]:
    settings = stack.environment() | {"STARLING_WRITE_KEYS": f"key={WORKSPACE}"}
    with running(settings, tmp_path_factory.mktemp("edge")) as found:
        yield found


@pytest.fixture
def client(edge: EdgeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=edge.url, timeout=30) as found:
        yield found


def post(client: httpx.Client, path: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=content, headers={"X-Write-Key": "key", **headers})


@pytest.mark.parametrize("path", ["/v1/track", "/v1/t"])
def test_everything_taken_is_exactly_200(client: httpx.Client, path: str) -> None:
    answer = post(client, path, GOOD)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"success": True, "correlationId": answer.headers["x-correlation-id"]}


def test_a_partly_bad_batch(stack: Stack, client: httpx.Client) -> None:
    mark = uuid.uuid4().hex
    answer = post(client, "/v1/batch", {"batch": [{**GOOD, "messageId": f"good-{mark}"}, {**BAD, "messageId": f"bad-{mark}"}]})
    assert answer.status_code == 200
    (rejected,) = answer.json().pop("rejected")
    assert {name: answer.json()[name] for name in ("success", "accepted")} == {"success": False, "accepted": 1}
    assert (rejected["index"], rejected["messageId"]) == (1, f"bad-{mark}")
    assert set(rejected) == {"index", "messageId", "code", "message"}
    dead = Registry(stack.registry_url).codec("ingest.dlq", "DeadLetter")
    letters = [dead.decode(message.value() or b"") for message in records(stack.brokers, "ingest.dlq", WORKSPACE)]
    assert [letter["code"] for letter in letters if mark.encode() in letter["value"]] == ["missing_event"]
    received = Registry(stack.registry_url).codec("ingest.track", "IngestReceived")
    items = [received.decode(message.value() or b"") for message in records(stack.brokers, "ingest.track", WORKSPACE)]
    assert [item["message_id"] for item in items if mark in item["message_id"]] == [f"good-{mark}"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("/v1/track", b"no json", {}, 400, "not_json"),
        ("/v1/batch", b"no json", {}, 400, "not_json"),
        ("/v1/track", BAD, {}, 400, "missing_event"),
        ("/v1/track", {"event": "e"}, {}, 400, "missing_id"),
        ("/v1/batch", {"batch": [{"userId": "u"}]}, {}, 400, "missing_type"),
        ("/v1/batch", {"batch": [BAD, BAD]}, {}, 400, "no_usable_item"),
        ("/v1/batch", b"\x1f\x8b\x00", {"Content-Encoding": "gzip"}, 400, "bad_gzip"),
        ("/v1/track", GOOD, {"X-Write-Key": "wrong"}, 401, "unknown_write_key"),
        ("/v1/batch", b'{"a":"' + b"x" * 700_000 + b'"}', {}, 413, "body_too_large"),
        ("/v1/batch", gzip.compress(b" " * 700_000), {"Content-Encoding": "gzip"}, 413, "body_too_large"),
        ("/v1/batch", {"batch": [GOOD] * 2501}, {}, 413, "too_many_items"),
        ("/v1/batch", {"batch": [GOOD] * 2000, "context": {"a": "x" * 300}}, {}, 413, "body_too_large"),
        ("/v1/batch", {"batch": [], "writeKey": "key"}, {"X-Write-Key": "wrong"}, 401, "unknown_write_key"),
        ("/v1/batch", b"x" * 700_000, {"X-Write-Key": "wrong"}, 401, "unknown_write_key"),
        ("/v1/batch", b"no gzip", {"X-Write-Key": "wrong", "Content-Encoding": "gzip"}, 401, "unknown_write_key"),
        ("/v1/track", {**GOOD, "properties": {"a": "x" * 33_000}}, {}, 400, "item_too_large"),
        ("/v1/track", {**GOOD, "userId": "é" * 257}, {}, 400, "id_too_long"),
        ("/v1/track", {**GOOD, "anonymousId": "a" * 513}, {}, 400, "id_too_long"),
        ("/v1/group", {"userId": "u", "groupId": "g" * 513}, {}, 400, "id_too_long"),
        ("/v1/alias", {"userId": "u", "previousId": "p" * 513}, {}, 400, "id_too_long"),
        ("/v1/track", {**GOOD, "event": "e" * 513}, {}, 400, "event_too_long"),
        ("/v1/batch", Batch(batch=[Item(type="page", user_id="u" * 513)]).SerializeToString(), PROTOBUF, 400, "id_too_long"),
        ("/v1/track", b"\n\x09abc", {"Content-Type": "application/x-protobuf"}, 400, "bad_protobuf"),
        ("/v1/batch", b"\n\x03abc", {"Content-Type": "application/x-protobuf"}, 400, "bad_protobuf"),
        ("/v1/track", b"\n\x03abc", {"Content-Type": "application/x-protobuf"}, 400, "missing_id"),
        ("/v1/merge", GOOD, {}, 404, "no_such_path"),
    ],
)
def test_every_error_is_a_problem_that_clients_can_read(
    client: httpx.Client, path: str, body: Any, headers: dict[str, str], status: int, code: str
) -> None:
    answer = post(client, path, body, **headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["success"], problem["code"], problem["status"]) == (False, code, status)
    assert problem["message"]
    assert post(client, "/v1/track", GOOD).status_code == 200


def test_an_id_that_is_too_long_is_a_rejected_item_whose_dead_letter_has_a_small_key(stack: Stack, client: httpx.Client) -> None:
    mark = f"{WORKSPACE}/{uuid.uuid4().hex}"
    batch = [{**GOOD, "userId": "u" * 512}, {**GOOD, "userId": "u" * 30_000, "messageId": mark}]
    answer = post(client, "/v1/batch", {"batch": batch}).json()
    assert (answer["accepted"], [bad["code"] for bad in answer["rejected"]]) == (1, ["id_too_long"])
    assert answer["rejected"][0]["message"].startswith("/batch/1/userId: 30000 bytes of UTF-8, at most 512 fit")
    dead = Registry(stack.registry_url).codec("ingest.dlq", "DeadLetter")
    letters = [(message.key(), dead.decode(message.value() or b"")) for message in records(stack.brokers, "ingest.dlq", WORKSPACE)]
    assert [(key, letter["key"]) for key, letter in letters if mark.encode() in letter["value"]] == [(None, None)]


WIDE = Batch(batch=[Item()] * 2_400, context=struct(**{f"k{number}": None for number in range(30_000)})).SerializeToString()


@pytest.mark.parametrize(
    ("headers", "status", "code"), [({}, 401, "unknown_write_key"), ({"X-Write-Key": "key"}, 413, "body_too_large")]
)
def test_the_context_of_a_batch_is_not_copied_into_its_items_before_they_are_counted(
    edge: EdgeProcess, client: httpx.Client, headers: dict[str, str], status: int, code: str
) -> None:
    client.post("/v1/batch", content=b"\n\x00", headers={"X-Write-Key": "key", "Content-Type": "application/x-protobuf"})
    before = edge.peak_memory_bytes()
    answer = client.post("/v1/batch", content=WIDE, headers={"Content-Type": "application/x-protobuf", **headers})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert edge.peak_memory_bytes() - before < 32 * len(WIDE)


def test_a_packed_batch_with_a_common_context_is_bounded_by_what_it_becomes(client: httpx.Client) -> None:
    packed = gzip.compress(json.dumps({"batch": [GOOD] * 2_400, "context": {"a": "x" * 28_000}}).encode())
    assert len(packed) < 14_000
    answer = post(client, "/v1/batch", packed, **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert "put less into the batch's context or send fewer items" in answer.json()["message"]
    assert post(client, "/v1/batch", {"batch": [GOOD] * 100, "context": {"a": "x" * 1_000}}).status_code == 200


MESSAGES = {
    "track": Item(user_id="u-1", event="Buy"),
    "identify": Item(user_id="u-1", traits=struct(plan="pro")),
    "page": Item(anonymous_id="a-1", name="Home"),
    "screen": Item(anonymous_id="a-1", name="Cart", properties=struct(items=2)),
    "group": Item(user_id="u-1", group_id="g-1"),
    "alias": Item(user_id="u-1", previous_id="u-0"),
}
BULK = ("/v1/batch", "/v1/b", "/v1/import")


@pytest.mark.parametrize("path", [*(f"/v1/{kind}" for kind in MESSAGES), *(f"/v1/{kind[0]}" for kind in MESSAGES), *BULK])
def test_every_endpoint_takes_protocol_buffers(stack: Stack, client: httpx.Client, path: str) -> None:
    mark = uuid.uuid4().hex
    kinds = list(MESSAGES) if path in BULK else [kind for kind in MESSAGES if kind.startswith(path.removeprefix("/v1/"))]
    sent = {kind: Item(type=kind, message_id=f"{mark}-{kind}") for kind in kinds}
    for kind in kinds:
        sent[kind].MergeFrom(MESSAGES[kind])
    body = Batch(batch=sent.values()) if path in BULK else sent[kinds[0]]
    answer = post(client, path, body.SerializeToString(), **{"Content-Type": "application/x-protobuf"})
    assert answer.status_code == 200
    assert answer.json() == {"success": True, "correlationId": answer.headers["x-correlation-id"]}
    for kind in kinds:
        codec = Registry(stack.registry_url).codec(f"ingest.{kind}", "IngestReceived")
        found = [codec.decode(message.value() or b"") for message in records(stack.brokers, f"ingest.{kind}", WORKSPACE)]
        (received,) = [record for record in found if record["message_id"] == f"{mark}-{kind}"]
        assert (received["kind"], received["imported"], received["item"]) == (kind, path == "/v1/import", "")
        assert Item.FromString(received["item_protobuf"]) == sent[kind]


def test_the_four_places_of_the_key_in_their_order(client: httpx.Client) -> None:
    basic = {"Authorization": "Basic " + base64.b64encode(b"key:").decode()}
    wrong = {"X-Write-Key": "wrong"}
    for headers, query, body in [
        ({**basic, **wrong}, "?writeKey=wrong", {**GOOD, "writeKey": "wrong"}),
        ({"X-Write-Key": "key"}, "?writeKey=wrong", {**GOOD, "writeKey": "wrong"}),
        ({}, "?writeKey=key", {**GOOD, "writeKey": "wrong"}),
        ({}, "", {**GOOD, "writeKey": "key"}),
    ]:
        assert client.post(f"/v1/track{query}", json=body, headers=headers).status_code == 200
    assert client.post("/v1/track?writeKey=key", json={**GOOD, "writeKey": "key"}, headers=wrong).status_code == 401


def test_a_chunked_body_and_a_packed_one(client: httpx.Client) -> None:
    raw = json.dumps(GOOD).encode()
    chunked = client.post("/v1/track", content=iter([raw[:10], raw[10:]]), headers={"X-Write-Key": "key"})
    assert chunked.status_code == 200
    packed = post(
        client, "/v1/track", gzip.compress(raw), **{"Content-Encoding": "gzip", "Content-Type": "application/x-www-form-urlencoded"}
    )
    assert packed.status_code == 200


def test_what_a_browser_asks_for(edge: EdgeProcess, client: httpx.Client) -> None:
    settings = client.get("/v1/projects/key/settings").json()["integrations"]["Segment.io"]
    assert settings == {"apiKey": "key", "apiHost": f"{edge.url.removeprefix('http://')}/v1", "protocol": "http"}
    preflight = client.options("/v1/t", headers={"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"})
    assert preflight.is_success
    assert preflight.headers["access-control-allow-origin"] == "*"
    asked = client.options("/v1/t", headers={"Access-Control-Request-Headers": "anonymousid,rsa-retry-attempt,sentat"})
    assert asked.headers["access-control-allow-headers"] == "anonymousid,rsa-retry-attempt,sentat"
    assert asked.headers["vary"] == "Access-Control-Request-Headers"
    head = client.head("/sourceConfig/?view=ad", headers={"X-Write-Key": "key"})
    assert (head.status_code, head.content) == (200, b"")
    assert client.post("/v1/m", content=b'{"series":[]}').json()["success"] is True
    wrong = client.get("/v1/track")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, OPTIONS")


def test_a_rate_limited_workspace_gets_retry_after(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {
        "STARLING_WRITE_KEYS": f"key={WORKSPACE}",
        "STARLING_RATE_ITEMS_PER_SECOND": "0.1",
        "STARLING_RATE_BURST_ITEMS": "2500",
    }
    with running(stack.environment() | settings, tmp_path_factory.mktemp("edge")) as limited:
        with httpx.Client(base_url=limited.url, timeout=60) as client:
            taken = post(client, "/v1/batch", {"batch": [{"type": "page", "userId": "u"}] * 2500})
            assert (taken.status_code, taken.headers["ratelimit-limit"]) == (200, "100000")
            assert int(taken.headers["ratelimit-remaining"]) > 0
            answer = post(client, "/v1/track", GOOD)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 11
        assert (answer.headers["ratelimit-remaining"], answer.headers["ratelimit-reset"]) == ("0", answer.headers["retry-after"])
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert answer.json()["code"] == "rate_limited"
