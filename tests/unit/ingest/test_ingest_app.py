"""The edge's answers, and what it writes for them, with nothing real behind it."""

import asyncio
import base64
import gzip
import json
from typing import Any

import pytest

from starling_cli.dead_letters import repeated
from starling_common.http.rate_limits import Rate
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import INGEST_KINDS
from starling_common.wire import Batch, Item
from starling_ingest.limits import RateLimits, Rates
from starling_ingest.publishing.intake import QueueFull
from tests.unit.ingest.rig import NOW, UNLIMITED, Edge, Exchange, NeverSent, Request

FIELDS: dict[str, dict[str, Any]] = {
    "track": {"event": "Order Completed"},
    "alias": {"previousId": "old"},
    "group": {"groupId": "g"},
}
GOOD = {"type": "track", "event": "e", "userId": "u-1", "messageId": "m-1"}
BAD = {"type": "track", "userId": "u-2", "messageId": "m-2"}


@pytest.fixture
def edge() -> Edge:
    return Edge().open()


def is_problem(answer: Exchange, status: int, code: str) -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["success"], body["status"], body["code"]) == (False, status, code)
    assert isinstance(body["message"], str)
    assert body["message"]
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("kind", INGEST_KINDS)
@pytest.mark.parametrize("short", [False, True])
def test_each_path_writes_to_its_own_topic(edge: Edge, kind: str, short: bool) -> None:
    path = f"/v1/{kind[0] if short else kind}"
    answer = edge.ask("POST", path, {"userId": "u-1", "messageId": "m", **FIELDS.get(kind, {})})
    assert answer.status == 200
    correlation_id = answer.headers["x-correlation-id"]
    assert answer.json() == {"success": True, "correlationId": correlation_id}
    (record,) = edge.log.records
    assert (record.topic, record.key, record.timestamp_ms) == (f"ingest.{kind}", b"acme/u-1", NOW // 1000)
    (received,) = edge.received()
    assert received["kind"] == kind
    assert received["received_at"] == NOW
    assert received["correlation_id"] == correlation_id
    assert (received["edge"], received["remote_address"], received["imported"]) == ("edge-0", "10.1.2.3", False)


def test_a_batch_writes_its_items_in_order_each_later_than_the_one_before(edge: Edge) -> None:
    items = [{**GOOD, "messageId": f"m-{n}"} for n in range(5)]
    assert edge.ask("POST", "/v1/batch", {"batch": items}).status == 200
    assert edge.ask("POST", "/v1/b", {"batch": items[:1]}).status == 200
    assert [record["received_at"] for record in edge.received()] == [NOW + n for n in range(6)]
    assert [record["message_id"] for record in edge.received()] == ["m-0", "m-1", "m-2", "m-3", "m-4", "m-0"]


def test_history_is_marked(edge: Edge) -> None:
    assert edge.ask("POST", "/v1/import", {"batch": [GOOD]}).status == 200
    assert edge.received()[0]["imported"] is True


def test_the_key_falls_back_to_the_anonymous_id(edge: Edge) -> None:
    edge.ask("POST", "/v1/page", {"userId": "", "anonymousId": "a/1"})
    assert edge.log.records[0].key == b"acme/a/1"


def test_headers_are_those_of_the_request(edge: Edge) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = {"x-write-key": "key", "x-correlation-id": "mine-1", "traceparent": trace, "user-agent": "shop/1"}
    answer = edge.ask("POST", "/v1/track", GOOD, headers=headers)
    assert answer.json()["correlationId"] == "mine-1"
    assert edge.log.headers == [[("correlation_id", b"mine-1"), ("traceparent", trace.encode()), ("produced_by", b"ingest")]]
    assert edge.received()[0]["user_agent"] == "shop/1"


def test_a_long_user_agent_is_cut(edge: Edge) -> None:
    edge.ask("POST", "/v1/track", GOOD, headers={"x-write-key": "key", "user-agent": "x" * 60_000})
    edge.ask("POST", "/v1/track", GOOD)
    assert [found["user_agent"] for found in edge.received()] == ["x" * 512, None]


def test_a_partly_bad_batch_is_taken_and_its_rest_is_dead(edge: Edge) -> None:
    answer = edge.ask("POST", "/v1/batch", {"batch": [GOOD, BAD, 3]})
    assert answer.status == 200
    body = answer.json()
    assert (body["success"], body["accepted"]) == (False, 1)
    assert [(bad["index"], bad["messageId"], bad["code"]) for bad in body["rejected"]] == [
        (1, "m-2", "missing_event"),
        (2, None, "wrong_type"),
    ]
    assert [record["message_id"] for record in edge.received()] == ["m-1"]
    first, second = edge.dead()
    assert json.loads(first["value"]) == BAD
    assert (first["stage"], first["code"], first["origin_topic"], first["origin_offset"]) == (
        "ingest",
        "missing_event",
        "/v1/batch",
        -1,
    )
    assert (first["key"], second["key"]) == (b"acme/u-2", None)
    assert first["workspace"] == "acme"
    assert first["headers"]["correlation_id"] == answer.headers["x-correlation-id"].encode()
    assert [record.key for record in edge.log.records] == [b"acme/u-1", b"acme/u-2", None]


@pytest.mark.parametrize(("path", "body"), [("/v1/track", BAD), ("/v1/batch", {"batch": [BAD]})])
def test_a_lone_bad_item_is_400_with_its_own_code_and_dead(edge: Edge, path: str, body: Any) -> None:
    answer = edge.ask("POST", path, body)
    is_problem(answer, 400, "missing_event")
    assert answer.json()["rejected"][0]["messageId"] == "m-2"
    assert edge.received() == []
    assert [json.loads(letter["value"]) for letter in edge.dead()] == [BAD]


def test_a_batch_of_bad_items_only_is_400(edge: Edge) -> None:
    answer = edge.ask("POST", "/v1/batch", {"batch": [BAD, 1]})
    is_problem(answer, 400, "no_usable_item")
    assert [bad["index"] for bad in answer.json()["rejected"]] == [0, 1]
    assert len(edge.dead()) == 2


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"not json", {}, 400, "not_json"),
        (b"", {}, 400, "not_json"),
        (b'{"batch":[]}', {}, 400, "empty_batch"),
        (b"x" * 600_000, {}, 413, "body_too_large"),
        (b"x" * 6_000_000, {}, 413, "body_too_large"),
        (b'{"batch":[' + b",".join([b"1"] * 2501) + b"]}", {}, 413, "too_many_items"),
        (b"{}", {"content-encoding": "gzip"}, 400, "bad_gzip"),
        (gzip.compress(b"\0" * 1_000_000), {"content-encoding": "gzip"}, 413, "body_too_large"),
        (b'{"batch":[' + b",".join([b"{}"] * 2000) + b'],"context":{"a":"' + b"x" * 300 + b'"}}', {}, 413, "body_too_large"),
        (b"{}", {"content-encoding": "br"}, 400, "unsupported_encoding"),
        (b"\n\x05hello", {"content-type": "application/x-protobuf"}, 400, "bad_protobuf"),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_cannot_be_read_leaves_nothing(
    edge: Edge, body: bytes, headers: dict[str, str], status: int, code: str, chunked: bool
) -> None:
    is_problem(edge.ask("POST", "/v1/batch", body, chunked=chunked, headers={"x-write-key": "key", **headers}), status, code)
    assert edge.log.records == []


def test_a_huge_body_is_not_read_to_its_end(edge: Edge) -> None:
    answer = edge.ask("POST", "/v1/batch", b"x" * 50_000_000)
    is_problem(answer, 413, "body_too_large")
    assert answer.bytes_read < 5_000_000


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded", "application/x-protobuf"])
def test_json_is_json_under_any_name(edge: Edge, kind: str) -> None:
    assert edge.ask("POST", "/v1/track", GOOD, headers={"x-write-key": "key", "content-type": kind}).status == 200


PACKED = {"x-write-key": "key", "content-type": "application/x-protobuf"}
MESSAGE = Item(type="track", event="Buy", user_id="u-1", message_id="m-1")


@pytest.mark.parametrize("content_type", ["application/x-protobuf", "application/x-protobuf; messageType=Item"])
def test_a_message_is_taken_as_it_came(edge: Edge, content_type: str) -> None:
    assert edge.ask("POST", "/v1/t", MESSAGE.SerializeToString(), headers=PACKED | {"content-type": content_type}).status == 200
    batch = Batch(batch=[MESSAGE]).SerializeToString()
    assert edge.ask("POST", "/v1/batch", gzip.compress(batch), headers=PACKED | {"content-encoding": "gzip"}).status == 200
    assert [(found["item"], found["item_protobuf"]) for found in edge.received()] == [("", MESSAGE.SerializeToString())] * 2
    assert [record.key for record in edge.log.records] == [b"acme/u-1"] * 2


def test_the_key_may_stand_in_a_message(edge: Edge) -> None:
    without = {"content-type": "application/x-protobuf"}
    keyed = Batch(batch=[MESSAGE], write_key="key").SerializeToString()
    assert edge.ask("POST", "/v1/batch", keyed, headers=without).status == 200
    is_problem(edge.ask("POST", "/v1/track", MESSAGE.SerializeToString(), headers=without), 401, "unknown_write_key")


@pytest.mark.parametrize("path", ["/v1/track", "/v1/batch"])
def test_a_bad_message_can_be_repeated_from_its_dead_letter(edge: Edge, path: str) -> None:
    bad = Item(type="track", user_id="u-1", message_id="m-2")
    body = bad.SerializeToString() if path == "/v1/track" else Batch(batch=[bad]).SerializeToString()
    is_problem(edge.ask("POST", path, body, headers=PACKED), 400, "missing_event")
    (letter,) = edge.dead()
    assert (letter["value"], letter["key"], letter["code"]) == (bad.SerializeToString(), b"acme/u-1", "missing_event")
    again, headers = repeated(letter)
    assert (again, headers) == (body, {"Content-Type": "application/x-protobuf"})


@pytest.mark.parametrize("chunked", [False, True])
def test_a_packed_body_is_unpacked(edge: Edge, chunked: bool) -> None:
    packed = gzip.compress(json.dumps(GOOD).encode())
    headers = {"x-write-key": "key", "content-encoding": "gzip"}
    assert edge.ask("POST", "/v1/track", packed, chunked=chunked, headers=headers).status == 200


@pytest.mark.parametrize(
    ("headers", "query", "body", "status"),
    [
        ({}, "", GOOD, 401),
        ({"x-write-key": "wrong"}, "", GOOD, 401),
        ({"x-write-key": "wrong"}, "writeKey=key", {**GOOD, "writeKey": "key"}, 401),
        ({"authorization": "Basic " + base64.b64encode(b"unknown:").decode(), "x-write-key": "key"}, "", GOOD, 401),
        ({"authorization": "Basic " + base64.b64encode(b"key:").decode(), "x-write-key": "wrong"}, "", GOOD, 200),
        ({"x-write-key": "id:secret"}, "", {**GOOD, "writeKey": "id:***"}, 200),
        ({"authorization": "Basic " + base64.b64encode(b"id:secret").decode()}, "", {**GOOD, "writeKey": "id:***"}, 200),
        ({"authorization": "Basic " + base64.b64encode(b"key:secret").decode()}, "", GOOD, 200),
        ({"x-write-key": "key:secret"}, "", GOOD, 401),
        ({"x-write-key": "id"}, "", GOOD, 401),
        ({}, "", {**GOOD, "writeKey": "id:***"}, 401),
        ({}, "writeKey=key", {**GOOD, "writeKey": "wrong"}, 200),
        ({}, "", {**GOOD, "writeKey": "key"}, 200),
        ({}, "", {**GOOD, "writeKey": None}, 401),
        ({}, "", {**BAD, "writeKey": "wrong"}, 401),
    ],
)
def test_only_a_known_key_comes_in(edge: Edge, headers: dict[str, str], query: str, body: Any, status: int) -> None:
    for path, sent in (("/v1/track", body), ("/v1/batch", {"batch": [GOOD], "writeKey": body.get("writeKey")})):
        answer = edge.ask("POST", path, sent, headers=headers, query_string=query)
        if status == 401:
            is_problem(answer, 401, "unknown_write_key")
        assert answer.status == status
    assert len(edge.log.records) == (0 if status == 401 else 2)


UNREADABLE = [
    b"not json",
    b"x" * 600_000,
    b'{"batch":5}',
    b'{"batch":[],"writeKey":"key"}',
    gzip.compress(b"{}", mtime=0)[:-1],
]


@pytest.mark.parametrize("body", UNREADABLE)
@pytest.mark.parametrize("content_type", ["application/json", "application/x-protobuf"])
@pytest.mark.parametrize("chunked", [False, True])
def test_an_unknown_key_is_refused_before_the_body_is_validated(edge: Edge, body: bytes, content_type: str, chunked: bool) -> None:
    headers = {"content-encoding": "gzip", "content-type": content_type}
    answer = edge.ask("POST", "/v1/batch", body, chunked=chunked, headers=headers, query_string="writeKey=wrong")
    is_problem(answer, 401, "unknown_write_key")
    assert answer.bytes_read == len(body)


def test_a_huge_body_with_an_unknown_key_is_not_read_to_its_end(edge: Edge) -> None:
    answer = edge.ask("POST", "/v1/batch", b"x" * 50_000_000, headers={"x-write-key": "wrong"})
    is_problem(answer, 401, "unknown_write_key")
    assert answer.bytes_read < 5_000_000


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"batch":5}', 401, "unknown_write_key"),
        (b'{"batch":[]}', 401, "unknown_write_key"),
        (b'{"batch":[' + b",".join([b"1"] * 2501) + b'],"writeKey":"wrong"}', 401, "unknown_write_key"),
        (b'{"batch":[],"writeKey":"key"}', 400, "empty_batch"),
        (b'{"writeKey":5}', 400, "wrong_type"),
        (b"not json", 400, "not_json"),
        (b"x" * 600_000, 413, "body_too_large"),
    ],
)
def test_of_a_body_that_must_name_the_key_only_the_key_is_validated_first(edge: Edge, body: bytes, status: int, code: str) -> None:
    is_problem(edge.ask("POST", "/v1/batch", body, headers={}), status, code)


def test_the_rate_limit_is_429_with_the_time_to_wait() -> None:
    edge = Edge(limits=RateLimits(UNLIMITED, Rates(UNLIMITED.requests, UNLIMITED.bytes, Rate(1, 3)))).open()
    assert edge.ask("POST", "/v1/batch", {"batch": [GOOD] * 3}).status == 200
    answer = edge.ask("POST", "/v1/batch", {"batch": [GOOD] * 3})
    is_problem(answer, 429, "rate_limited")
    assert answer.headers["retry-after"] == "3"
    assert len(edge.log.records) == 3
    assert edge.registry.get_sample_value("starling_ingest_rate_limited_total", {"limit": "workspace_items"}) == 1


def quota(answer: Exchange) -> tuple[str | None, ...]:
    return tuple(answer.headers.get(f"ratelimit-{name}") for name in ("limit", "remaining", "reset"))


def test_every_answer_to_a_known_key_has_its_quota() -> None:
    slow = Rate(0.001, 5)
    edge = Edge(limits=RateLimits(Rates(slow, UNLIMITED.bytes), UNLIMITED)).open()
    assert quota(edge.ask("POST", "/v1/track", GOOD)) == ("5", "4", "1000")
    assert quota(edge.ask("POST", "/v1/batch", {"batch": [GOOD, BAD]})) == ("5", "3", "2000")
    assert quota(edge.ask("POST", "/v1/track", {**GOOD, "writeKey": "key"}, headers={})) == ("5", "2", "3000")
    assert quota(edge.ask("POST", "/v1/track", b"{")) == ("5", "1", "4000")
    assert quota(edge.ask("POST", "/v1/track", GOOD)) == ("5", "0", "5000")
    for _ in range(2):
        refused = edge.ask("POST", "/v1/track", GOOD)
        is_problem(refused, 429, "rate_limited")
        assert (refused.headers["retry-after"], quota(refused)) == ("1000", ("5", "0", "1000"))
    assert edge.registry.get_sample_value("starling_ingest_rate_limited_total", {"limit": "key_requests"}) == 2
    assert quota(edge.ask("POST", "/v1/track", GOOD, headers={"x-write-key": "id:secret"})) == ("5", "4", "1000")


def test_an_answer_without_a_key_and_health_have_no_quota(edge: Edge) -> None:
    assert quota(edge.ask("POST", "/v1/track", GOOD, headers={"x-write-key": "unknown"})) == (None, None, None)
    for path in ("/healthz", "/readyz", "/metrics"):
        assert quota(edge.ask("GET", path)) == (None, None, None)


@pytest.mark.parametrize(("full", "away"), [(QueueFull("full"), None), (None, BrokerUnavailable("gone"))])
def test_an_answer_with_retry_after_names_the_same_instant_twice(
    edge: Edge, full: Exception | None, away: Exception | None
) -> None:
    edge.log.full, edge.log.away = full, away
    answer = edge.ask("POST", "/v1/track", GOOD)
    assert quota(answer)[1:] == ("0", answer.headers["retry-after"])


def test_a_full_queue_is_429(edge: Edge) -> None:
    edge.log.full = QueueFull("full")
    answer = edge.ask("POST", "/v1/track", GOOD)
    is_problem(answer, 429, "queue_full")
    assert int(answer.headers["retry-after"]) >= 1
    assert edge.registry.get_sample_value("starling_ingest_rate_limited_total", {"limit": "queue"}) == 1


def test_without_a_watermark_in_force_nothing_is_written() -> None:
    edge = Edge(lapsed=BrokerUnavailable("no watermark")).open()
    answer = edge.ask("POST", "/v1/track", {"userId": "u", "event": "E"})
    assert (answer.status, edge.log.records) == (503, [])
    edge.lapsed = None
    assert edge.ask("POST", "/v1/track", {"userId": "u", "event": "E"}).status == 200


def test_a_broker_that_does_not_take_it_is_503(edge: Edge) -> None:
    edge.log.away = BrokerUnavailable("gone")
    answer = edge.ask("POST", "/v1/track", GOOD)
    is_problem(answer, 503, "broker_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_fault_of_ours_is_500_and_the_next_request_is_served(edge: Edge) -> None:
    edge.log.away = RuntimeError("a bug")
    is_problem(edge.ask("POST", "/v1/track", GOOD), 500, "internal_error")
    edge.log.away = None
    assert edge.ask("POST", "/v1/track", GOOD).status == 200


def test_before_it_is_open_and_after_it_is_closed_it_takes_nothing() -> None:
    edge = Edge()
    is_problem(edge.ask("POST", "/v1/track", GOOD), 503, "not_ready")
    edge.open()
    assert edge.ask("POST", "/v1/track", GOOD).status == 200
    asyncio.run(edge.app.close())
    answer = edge.ask("POST", "/v1/track", GOOD)
    is_problem(answer, 503, "not_ready")
    assert "retry-after" in answer.headers
    assert len(edge.log.records) == 1


def test_closing_waits_for_open_requests() -> None:
    async def story() -> tuple[Exchange, bool]:
        edge = Edge().open()
        edge.log.held = asyncio.Event()
        asking = asyncio.create_task(edge.answer("POST", "/v1/track", GOOD))
        await asyncio.sleep(0)
        closing = asyncio.create_task(edge.app.close())
        for _ in range(10):
            await asyncio.sleep(0)
        waited = not closing.done()
        edge.log.held.set()
        await closing
        return await asking, waited

    answer, waited = asyncio.run(story())
    assert waited
    assert answer.status == 200


@pytest.mark.parametrize("path", ["/v1/track", "/v1/b", "/v1/import"])
def test_a_browser_may_ask_first(edge: Edge, path: str) -> None:
    answer = edge.ask("OPTIONS", path, headers={"origin": "https://shop.example"})
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert {"Authorization", "Content-Type", "X-Write-Key"} <= set(answer.headers["access-control-allow-headers"].split(", "))


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/track", "POST, OPTIONS"),
        ("PUT", "/v1/b", "POST, OPTIONS"),
        ("POST", "/readyz", "GET, HEAD, OPTIONS"),
        ("GET", "/v1/m", "POST, OPTIONS"),
        ("POST", "/sourceConfig", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_wrong_method_gets_the_allowed_ones(edge: Edge, method: str, path: str, allow: str) -> None:
    answer = edge.ask(method, path)
    is_problem(answer, 405, "wrong_method")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/merge", "/v1/track/", "/v2/track", "/v1/projects//settings"])
def test_any_other_path_is_404(edge: Edge, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        is_problem(edge.ask(method, path), 404, "no_such_path")


def test_a_preflight_allows_what_it_asks_for(edge: Edge) -> None:
    asked = {"access-control-request-headers": "anonymousid,authorization,sentat"}
    answer = edge.ask("OPTIONS", "/v1/track", headers=asked)
    assert answer.headers["access-control-allow-headers"] == "anonymousid,authorization,sentat"
    assert answer.headers["vary"] == "Access-Control-Request-Headers"
    other = edge.ask("OPTIONS", "/v1/track", headers={"access-control-request-headers": "no names"})
    assert "Authorization" in other.headers["access-control-allow-headers"]


def test_every_answer_lets_browsers_read_when_to_come_back(edge: Edge) -> None:
    requests = [
        ("POST", "/v1/track", GOOD), ("POST", "/v1/batch", {"batch": [GOOD, BAD]}), ("POST", "/v1/track", BAD),
        ("POST", "/v1/m", {}), ("GET", "/sourceConfig", b""), ("GET", "/v1/projects/key/settings", b""),
        ("GET", "/nowhere", b""), ("GET", "/v1/track", b""),
    ]  # fmt: skip
    answers = [edge.ask(*request) for request in requests]
    answers.append(edge.ask("POST", "/v1/track", GOOD, headers={}))
    edge.log.full = QueueFull("full")
    answers.append(edge.ask("POST", "/v1/track", GOOD))
    edge.log.full, edge.log.away = None, BrokerUnavailable("gone")
    answers.append(edge.ask("POST", "/v1/track", GOOD))
    edge.log.away = RuntimeError("a bug")
    answers.append(edge.ask("POST", "/v1/track", GOOD))
    assert [answer.status for answer in answers] == [200, 200, 400, 200, 200, 200, 404, 405, 401, 429, 503, 500]
    exposed = {"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-Correlation-Id"}
    assert all(exposed == set(answer.headers["access-control-expose-headers"].split(", ")) for answer in answers)
    assert all(answer.headers["access-control-allow-origin"] == "*" for answer in answers)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/sourceConfig", "/sourceConfig/"])
def test_rudderstacks_client_gets_its_configuration(edge: Edge, method: str, path: str) -> None:
    answer = edge.ask(method, path, headers={}, query_string="p=npm&writeKey=key")
    assert answer.json() == {
        "source": {
            "id": "key",
            "name": "starling",
            "enabled": True,
            "config": {"statsCollection": {"errors": {"enabled": False}, "metrics": {"enabled": False}}},
            "destinations": [],
        }
    }
    is_problem(edge.ask(method, path, headers={}), 401, "unknown_write_key")
    is_problem(edge.ask(method, path, headers={"x-write-key": "wrong"}), 401, "unknown_write_key")


@pytest.mark.parametrize(("kind", "fields"), [("track", GOOD), ("page", {"userId": "u-1"}), ("identify", {"anonymousId": "a-1"})])
def test_jitsus_paths_are_those_of_the_kinds(edge: Edge, kind: str, fields: dict[str, Any]) -> None:
    for path in (f"/api/s/{kind}", f"/api/s/s2s/{kind}"):
        assert edge.ask("POST", path, fields, headers={"x-write-key": "id:secret"}).status == 200
    assert [record.topic for record in edge.log.records] == [f"ingest.{kind}"] * 2


@pytest.mark.parametrize("path", ["/api/s/track", "/beacon/v1/batch"])
def test_a_bad_item_of_such_a_path_can_be_repeated_from_its_dead_letter(edge: Edge, path: str) -> None:
    body = {"batch": [BAD]} if path == "/beacon/v1/batch" else BAD
    is_problem(edge.ask("POST", path, body, headers={}, query_string="writeKey=key"), 400, "missing_event")
    (letter,) = edge.dead()
    again, _ = repeated(letter)
    is_problem(edge.ask("POST", letter["origin_topic"], again), 400, "missing_event")
    assert edge.dead()[1]["value"] == letter["value"]


def test_metrics_of_a_client_are_counted_and_dropped(edge: Edge) -> None:
    answer = edge.ask("POST", "/v1/m", b'{"series":[{"type":"Counter"}]}', headers={"content-type": "text/plain"})
    assert answer.status == 200
    assert answer.bytes_read == 31
    assert edge.log.records == []
    assert edge.ask("POST", "/v1/m", b"x" * 50_000_000, headers={}).bytes_read < 5_000_000
    assert edge.registry.get_sample_value("starling_ingest_requests_total", {"path": "/v1/m", "status": "200"}) == 2


def test_the_browser_client_gets_its_settings(edge: Edge) -> None:
    answer = edge.ask("GET", "/v1/projects/key/settings")
    assert answer.status == 200
    assert answer.json()["integrations"]["Segment.io"] == {"apiKey": "key", "apiHost": "edge.example/v1", "protocol": "http"}
    assert answer.json()["metrics"] == {"host": "edge.example/v1"}
    secure = edge.ask("GET", "/v1/projects/key/settings", headers={"host": "e:1", "x-forwarded-proto": "https"})
    assert secure.json()["integrations"]["Segment.io"]["protocol"] == "https"
    is_problem(edge.ask("GET", "/v1/projects/unknown/settings"), 401, "unknown_write_key")
    is_problem(edge.ask("GET", "/v1/projects/key/settings", headers={"host": "<script>"}), 400, "bad_host")


def test_health_names_the_failed_checks() -> None:
    edge = Edge(ready={"start": "no topic ingest.track"}).open()
    assert edge.ask("GET", "/healthz").status == 200
    answer = edge.ask("GET", "/readyz")
    assert answer.status == 503
    assert "ingest.track" in answer.answer.decode()


def test_everything_is_counted(edge: Edge) -> None:
    edge.ask("POST", "/v1/batch", {"batch": [GOOD, GOOD, {"type": "page", "userId": "u"}, BAD]})
    edge.ask("POST", "/v1/t", GOOD)
    edge.ask("POST", "/v1/t", b"x")
    edge.ask("GET", "/nowhere")
    answer = edge.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")

    def value(name: str, **labels: str) -> float | None:
        return edge.registry.get_sample_value(name, labels)

    assert value("starling_ingest_items_total", kind="track", outcome="accepted") == 3
    assert value("starling_ingest_items_total", kind="page", outcome="accepted") == 1
    assert value("starling_ingest_items_total", kind="unknown", outcome="rejected") == 1
    assert value("starling_ingest_requests_total", path="/v1/track", status="200") == 1
    assert value("starling_ingest_requests_total", path="/v1/track", status="400") == 1
    assert value("starling_ingest_requests_total", path="other", status="404") == 1
    assert value("starling_ingest_request_seconds_count", path="/v1/track") == 2
    assert value("starling_ingest_request_seconds_bucket", path="/v1/track", le="+Inf") == 2
    assert value("starling_ingest_queue_records") == 5


def test_closing_does_not_wait_for_those_who_come_too_late() -> None:
    async def story() -> bool:
        edge = Edge().open()
        edge.log.held = asyncio.Event()
        early = asyncio.create_task(edge.answer("POST", "/v1/track", GOOD))
        await asyncio.sleep(0)
        closing = asyncio.create_task(edge.app.close())
        await asyncio.sleep(0)
        endless = asyncio.create_task(edge.app.__rsgi__(Request("POST", "/v1/track"), NeverSent()))
        await asyncio.sleep(0)
        edge.log.held.set()
        await asyncio.wait_for(closing, 30)
        endless.cancel()
        return (await early).status == 200

    assert asyncio.run(story())
