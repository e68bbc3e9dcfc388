"""The HTTP edge on stores in memory: what it does when we crash, when a store is away, and for a browser elsewhere."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio.to_thread
import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from starling_api.app import build_app
from starling_api.definitions.definition import Author
from starling_api.definitions.kinds.kinds import WEBHOOKS
from starling_api.http.openapi.reference import reference_page
from starling_api.ports import ComputedProgress, Day, EventRow, MemberRow, Membership, ReportedProgress
from starling_api.webhooks.sender import WebhookSender
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.telemetry.metrics import Metrics
from starling_common.values import Workspace
from starling_demo.receiver import Receiver
from tests.unit.api.calls import SEGMENT, call, defined
from tests.unit.api.memory import World
from tests.unit.delivery.making import SECRET


def test_a_failure_reveals_only_its_correlation_id() -> None:
    world = World()
    world.audience.progress = lambda: 1 / 0  # type: ignore[method-assign,return-value,assignment]
    with capture_logs() as logged:
        answer = call(world, "GET", "/v1/segments", headers={"X-Correlation-Id": "abc-1"})
    assert [entry["event"] for entry in logged] == ["request_failed", "request_answered"]
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.headers["x-correlation-id"] == "abc-1"
    assert "abc-1" in answer.json()["message"]
    assert "ZeroDivision" not in answer.text


def test_an_unavailable_store_is_503_with_retry_after() -> None:
    world = World()

    def away(*_: object) -> None:
        raise DatabaseUnavailable("no node answers")

    world.reader.definition = away  # type: ignore[assignment]
    answer = call(world, "GET", "/v1/segments/vip")
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "unavailable", "1")


def test_an_unavailable_broker_refuses_writes_only() -> None:
    world = World(broker_is_down=True)
    assert call(world, "POST", "/v1/segments", json=SEGMENT).status_code == 503
    assert call(world, "GET", "/v1/segments").status_code == 200


def test_other_origins_are_accepted_only_if_configured() -> None:
    elsewhere = {"Origin": "https://console.example", "Access-Control-Request-Method": "GET"}
    assert "access-control-allow-origin" not in call(World(), "OPTIONS", "/v1/segments", headers=elsewhere).headers
    answer = call(World(), "OPTIONS", "/v1/segments", headers=elsewhere, origins=["https://console.example"])
    assert answer.headers["access-control-allow-origin"] == "https://console.example"
    assert (
        call(World(), "GET", "/", headers={"Origin": "https://evil.example"}, origins=["https://console.example"]).headers.get(
            "access-control-allow-origin"
        )
        is None
    )


def test_a_repetition_after_a_lost_response_gets_the_same_one() -> None:
    world = World()
    answers = [call(world, "POST", "/v1/segments", json=SEGMENT, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
    assert answers[0].headers["etag"] == answers[1].headers["etag"] == f'"{answers[0].json()["revision"]}"'
    assert len(world.published) == 1


@pytest.mark.parametrize(
    ("role", "method", "path", "status"),
    [
        ("see", "GET", "/v1/segments", 200),
        ("see", "POST", "/v1/segments", 403),
        ("make", "POST", "/v1/segments", 201),
        ("make", "POST", "/v1/webhooks", 403),
        ("see", "GET", "/v1/webhooks", 200),
        ("make", "DELETE", "/v1/users/ada", 403),
        ("rule", "DELETE", "/v1/users/ada", 501),
        ("unknown", "GET", "/v1/segments", 401),
        ("unknown", "GET", "/v1/feed", 401),
    ],
)
def test_roles(role: str, method: str, path: str, status: int) -> None:
    body: dict[str, Any] = {"json": SEGMENT} if method == "POST" else {}
    assert call(World(), method, path, role=role, **body).status_code == status


HUGE = {
    "400 digits": ("1" + "0" * 400, "out_of_range"),
    "5,000 digits": ("9" * 5_000, "out_of_range"),
    "2^53": (str(2**53), "out_of_range"),
    "no double": ("-1e400", "out_of_range"),
    "half a character": ('"\\ud800"', "bad_text"),
}


@pytest.mark.parametrize(("value", "code"), HUGE.values(), ids=HUGE)
@pytest.mark.parametrize(
    ("method", "path", "document", "pointer"),
    [
        (
            "POST",
            "/v1/segments",
            '{"key": "s", "name": "S", "where": {"trait": "v", "op": "in", "value": [0, %s]}}',
            "/where/value/1",
        ),
        ("PUT", "/v1/segments/vip", '{"name": "S", "where": {"trait": "v", "op": "mod", "value": [%s, 0]}}', "/where/value/0"),
        ("POST", "/v1/segments/preview", '{"where": {"bucket": {"salt": "s", "from": 0, "to": %s}}}', "/where/bucket/to"),
        ("POST", "/v1/segments/vip/diff", '{"where": {"event": "Buy", "op": "gte", "value": %s}}', "/where/value"),
        ("POST", "/v1/computed-traits", '{"key": "t", "event": "Buy", "measure": {"percentile": "v", "q": %s}}', "/measure/q"),
        ("POST", "/v1/webhooks", '{"key": "w", "url": "https://crm.example", "segments": [%s]}', "/segments/0"),
        ("PUT", "/v1/lists/l", '{"name": %s}', "/name"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_pointer_and_cure(
    method: str, path: str, document: str, pointer: str, value: str, code: str
) -> None:
    world = defined()
    answer = call(world, method, path, content=document.replace("%s", value))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_definition")
    (fault,) = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == (pointer, code)
    assert fault["expected"]
    assert [change.version for change in world.published] == [1]
    assert len(world.claims.newest_claims) == 1


def test_the_size_limit_of_a_definition_includes_the_defaults() -> None:
    world = World()

    def document(room: int) -> dict[str, Any]:
        return {"key": "s", "name": "S", "where": {"trait": "v", "op": "in", "value": ["x" * 100_000, "y" * 100_000, "é" * room]}}

    empty = len(json.dumps({**document(0), "description": "", "timezone": "UTC"}, separators=(",", ":")))
    most = (262_144 - empty) // 2
    for room in (31_500, most + 1):
        refused = call(world, "POST", "/v1/segments", json=document(room))
        assert (refused.status_code, [fault["code"] for fault in refused.json()["errors"]]) == (422, ["too_large"])
    assert (world.published, world.claims.newest_claims) == ([], {})
    assert call(world, "POST", "/v1/segments", json=document(most)).status_code == 201


@pytest.mark.parametrize(("path", "document"), [("/v1/segments/vip", SEGMENT), ("/v1/lists/l", {})])
def test_a_name_and_a_description_have_a_maximum_length(path: str, document: dict[str, Any]) -> None:
    world = defined()
    for more, pointer in (({"name": "x" * 201}, "/name"), ({"description": "é" * 2_049}, "/description")):
        refused = call(world, "PUT", path, json={**document, **more})
        assert [fault["pointer"] for fault in refused.json()["errors"]] == [pointer]
    longest = {**document, "name": "x" * 200, "description": "é" * 2_048}
    assert call(world, "PUT", path, json=longest).status_code in {200, 201}


def test_the_status_and_as_of_follow_the_slowest_partition() -> None:
    world = defined()
    assert call(world, "GET", "/v1/segments/vip").json()["status"] == "backfilling"
    world.audience.reported = {0: ReportedProgress(5_000, {"acme/vip": 1}), 1: ReportedProgress(3_000, {"acme/vip": 1})}
    assert call(world, "GET", "/v1/segments/vip").json()["status"] == "active"
    assert call(world, "GET", "/v1/segments").json()["as_of"] == "1970-01-01T00:00:03.000Z"
    world.audience.reported[0] = ReportedProgress(0, {})  # nothing has come there yet
    assert call(world, "GET", "/v1/segments").json()["as_of"] == "1970-01-01T00:00:03.000Z"


def test_members_come_in_pages() -> None:
    world = defined()
    world.audience.member_rows = [MemberRow(bucket, f"u{bucket}", 1_000, 1) for bucket in range(5)]
    seen, cursor = [], None
    for _ in range(3):
        parameters: dict[str, Any] = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = call(world, "GET", "/v1/segments/vip/members", params=parameters).json()
        seen += page["items"]
        cursor = page["next_cursor"]
    assert cursor is None
    assert seen[0] == {"user_id": "u0", "entered_at": "1970-01-01T00:00:01.000Z", "sequence": 1}
    assert [item["user_id"] for item in seen] == ["u0", "u1", "u2", "u3", "u4"]


def test_the_size_over_time_adds_up() -> None:
    world = defined()
    world.audience.day_rows = [Day(0, 3, 0), Day(2, 1, 2), Day(3, 0, 2)]
    page = call(world, "GET", "/v1/segments/vip/history", params={"limit": 2}).json()
    assert [(item["day"], item["size"]) for item in page["items"]] == [("1970-01-01", 3), ("1970-01-03", 2)]
    rest = call(world, "GET", "/v1/segments/vip/history", params={"cursor": page["next_cursor"]}).json()
    assert [(item["day"], item["size"]) for item in rest["items"]] == [("1970-01-04", 0)]
    assert call(world, "GET", "/v1/segments/vip/size").json() == {"key": "vip", "size": 0, "entered": 4, "exited": 4, "as_of": None}


def test_many_users_are_looked_up_at_once() -> None:
    world = World()
    world.audience.user_rows = {"ada": [Membership("a", 1, 0, 1), Membership("b", 1, 0, 1)]}
    body = {"users": ["ada", "bob"], "segments": ["b", "c"]}
    assert call(world, "POST", "/v1/memberships/lookup", json=body).json()["memberships"] == {"ada": ["b"], "bob": []}
    everything = call(world, "POST", "/v1/memberships/lookup", json={"users": ["ada"]}).json()
    assert everything["memberships"] == {"ada": ["a", "b"]}


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ([], [""]),
        ({}, ["/users"]),
        ({"users": []}, ["/users"]),
        ({"users": "ada"}, ["/users"]),
        ({"users": [1]}, ["/users"]),
        ({"users": ["u"] * 1001}, ["/users"]),
        ({"users": ["u"], "segments": "a"}, ["/segments"]),
        ({"user": ["u"]}, ["/user", "/users"]),
    ],
)
def test_an_invalid_look_up_is_refused_with_its_pointers(body: Any, pointers: list[str]) -> None:
    answer = call(World(), "POST", "/v1/memberships/lookup", json=body)
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == pointers


def test_a_user_id_may_have_slashes_and_any_other_character() -> None:
    world = World()
    world.audience.user_rows = {"a/b ü": [Membership("vip", 1, 0, 1)]}
    page = call(world, "GET", "/v1/users/a%2Fb%20%C3%BC/segments").json()
    assert [item["segment"] for item in page["items"]] == ["vip"]


def test_events_come_the_newest_first_and_in_pages() -> None:
    world = World()
    details = {"properties": {"n": 1}, "context": {}}
    times = [(1, "a"), (3, "a"), (3, "b"), (2, "x")]
    world.audience.event_rows["a/b"] = [EventRow(time, name, "track", "Buy", "m", details, 5_000, "c") for time, name in times]
    first = call(world, "GET", "/v1/users/a%2Fb/events", params={"limit": 3}).json()
    assert [one["event_id"] for one in first["items"]] == ["b", "a", "x"]
    assert first["items"][0]["properties"] == {"n": 1}
    assert (first["items"][0]["time"], first["items"][0]["received_at"]) == ("1970-01-01T00:00:00.003Z", "1970-01-01T00:00:00.005Z")
    rest = call(world, "GET", "/v1/users/a%2Fb/events", params={"cursor": first["next_cursor"]}).json()
    assert [one["event_id"] for one in rest["items"]] == ["a"]
    assert rest["next_cursor"] is None
    assert call(world, "GET", "/v1/users/unknown/events").json()["items"] == []


def test_an_installation_without_history_refuses_to_list_events() -> None:
    world = World()
    world.history_days = 0
    answer = call(world, "GET", "/v1/users/ada/events")
    assert (answer.status_code, answer.json()["code"]) == (409, "history_off")
    assert "STARLING_HISTORY_DAYS" in answer.json()["message"]


def test_the_reference_has_every_operation_and_escapes_its_texts() -> None:
    operation = {"tags": ["<t>"], "summary": "<script>", "responses": {"200": {"description": "&"}}}
    page = reference_page({"paths": {"/x/<y>": {"get": operation}}})
    assert "<script>" not in page
    assert "/x/&lt;y&gt;" in page
    assert "http" not in page.replace("application", "")  # it works where there is no internet


def test_a_definition_states_the_stream_time_of_its_status() -> None:
    world = World()
    made = call(world, "POST", "/v1/segments", json=SEGMENT).json()
    path = f"/v1/segments/{made['key']}"
    assert call(world, "GET", path).json() == {**made, "used_by": [], "as_of": None}
    world.audience.reported = {0: ReportedProgress(5_000, {}), 1: ReportedProgress(6_000, {})}
    read = call(world, "GET", path).json()
    assert read["as_of"] == "1970-01-01T00:00:05.000Z"
    assert call(world, "PUT", path, json=read).json() == made  # what is read can be sent back


def test_a_trait_that_is_not_yet_published_over_all_history_is_bootstrapping() -> None:
    world = World()
    for key in ("old", "new"):
        world.micros += 1_000_000
        call(world, "POST", "/v1/computed-traits", json={"key": key, "event": "Buy"})
    assert call(world, "GET", "/v1/computed-traits/new").json()["status"] == "active"  # how far the job is is not known
    world.computed = ComputedProgress(world.micros, 30, 120)
    new = call(world, "GET", "/v1/computed-traits/new").json()
    assert (new["status"], new["progress"]) == ("bootstrapping", {"percent": 25.0, "records_done": 30, "records_total": 120})
    assert call(world, "PUT", "/v1/computed-traits/new", json=new).status_code == 200  # what is read can be sent back
    old = call(world, "GET", "/v1/computed-traits/old").json()
    assert (old["status"], "progress" in old, old["as_of"]) == ("active", False, None)
    world.audience.reported = {0: ReportedProgress(9_000, {})}  # that of the segmenter, which may be ahead of the job
    world.computed = ComputedProgress(world.micros, 30, 120, 5_000)
    assert call(world, "GET", "/v1/computed-traits/old").json()["as_of"] == "1970-01-01T00:00:05.000Z"
    listed = call(world, "GET", "/v1/computed-traits?status=bootstrapping").json()["items"]
    assert [one["key"] for one in listed] == ["new"]
    world.computed = ComputedProgress(world.micros + 1, 0, 0)
    assert call(world, "GET", "/v1/computed-traits/new").json()["status"] == "active"
    call(world, "DELETE", "/v1/computed-traits/new")
    world.computed = ComputedProgress(0, 0, 0)
    assert call(world, "GET", "/v1/computed-traits/new").json()["status"] == "archived"


def test_a_definition_lists_the_segments_that_use_it() -> None:
    world = World()
    call(world, "POST", "/v1/segments", json=SEGMENT)
    call(world, "POST", "/v1/computed-traits", json={"key": "ltv", "event": "Buy"})
    for key in ("b", "a"):
        where = {"all": [{"segment": "vip"}, {"trait": "computed.ltv", "op": "gt", "value": 1}]}
        assert call(world, "POST", "/v1/segments", json={"key": key, "name": key, "where": where}).status_code == 201
    assert call(world, "GET", "/v1/segments/vip").json()["used_by"] == ["a", "b"]
    assert call(world, "GET", "/v1/computed-traits/ltv").json()["used_by"] == ["a", "b"]
    assert call(world, "DELETE", "/v1/segments/b").status_code == 204
    assert call(world, "GET", "/v1/segments/vip").json()["used_by"] == ["a"]
    assert call(world, "GET", "/v1/segments/a").json()["used_by"] == []


def test_liveness_is_answered_while_every_thread_waits_for_a_store() -> None:
    world, release, waiting = World(), threading.Event(), threading.Event()
    alive: dict[str, str | None] = {"sweep": None}

    def wait() -> dict[str, str | None]:
        waiting.set()
        release.wait(30)
        return {}

    app = build_app(world.services, Metrics(CollectorRegistry()), wait, alive=lambda: alive)

    async def ask() -> list[tuple[int, str]]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            held = [asyncio.ensure_future(client.get("/readyz")) for _ in range(3)]
            await asyncio.to_thread(waiting.wait, 30)
            first = await client.get("/healthz")
            alive["sweep"] = "the thread has ended"
            second = await client.get("/healthz")
            release.set()
            await asyncio.gather(*held)
        return [(answer.status_code, answer.json()["checks"]["sweep"]) for answer in (first, second)]

    assert asyncio.run(ask()) == [(200, "ok"), (503, "the thread has ended")]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.close()


def answers_of(world: World, paths: list[str], role: str = "rule") -> list[httpx.Response]:
    """Answers to these requests, one after another, of one process that may connect to this machine."""

    async def ask() -> list[httpx.Response]:
        sender = WebhookSender(allow_private=True)
        app = build_app(replace(world.services, webhook_sender=sender), Metrics(CollectorRegistry()), dict)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            answers = [await client.post(path, headers={"Authorization": f"Bearer {role}"}) for path in paths]
        await sender.close()
        return answers

    return asyncio.run(ask())


def with_webhook(url: str) -> World:
    world = World()
    world.commands.define(WEBHOOKS, Author(Workspace("acme"), "rule", "c"), {"key": "shop", "url": url, "secret": SECRET})
    return world


def test_a_test_of_a_webhook_sends_one_example_and_changes_nothing(receiver: Receiver) -> None:
    world = with_webhook(receiver.url)
    [answer] = answers_of(world, ["/v1/webhooks/shop/test"])
    assert answer.status_code == 200
    result = answer.json()
    assert (result["delivered"], result["status"], result["reason"]) == (True, 204, None)
    assert [(call["id"], call["type"]) for call in receiver.calls] == [(result["message_id"], "webhook.test")]
    assert [change.action for change in world.published] == ["DEFINED"]


def test_a_disabled_webhook_is_tested_and_stays_disabled(receiver: Receiver) -> None:
    receiver.failures, receiver.failure_status = 1, 410
    world = with_webhook(receiver.url)
    shown = world.reader.shown[Workspace("acme"), "webhook", "shop"]
    disabled = replace(shown, status="disabled", document={**shown.document, "disabled": True}, recorded_at_micros=2**62)
    world.reader.shown[Workspace("acme"), "webhook", "shop"] = disabled
    gone, taken = answers_of(world, ["/v1/webhooks/shop/test"] * 2)
    assert (gone.json()["status"], taken.json()["status"]) == (410, 204)
    assert world.reader.shown[Workspace("acme"), "webhook", "shop"] == disabled
    assert [change.action for change in world.published] == ["DEFINED"]


def test_a_workspace_tests_ten_times_at_once(receiver: Receiver) -> None:
    answers = answers_of(with_webhook(receiver.url), ["/v1/webhooks/shop/test"] * 11)
    assert [answer.status_code for answer in answers] == [200] * 10 + [429]
    assert answers[-1].json()["code"] == "too_many_requests"
    assert len(receiver.calls) == 10


@pytest.mark.parametrize(
    ("role", "key", "status", "code"),
    [("make", "shop", 403, "forbidden"), ("rule", "none", 404, "unknown_webhook"), ("rule", "old", 409, "archived")],
)
def test_a_test_needs_an_admin_and_a_webhook(receiver: Receiver, role: str, key: str, status: int, code: str) -> None:
    world, author = with_webhook(receiver.url), Author(Workspace("acme"), "rule", "c")
    world.commands.define(WEBHOOKS, author, {"key": "old", "url": receiver.url, "secret": SECRET})
    world.commands.archive(WEBHOOKS, author, "old", None)
    [answer] = answers_of(world, [f"/v1/webhooks/{key}/test"], role)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert receiver.calls == []
