"""The segment API as an outside party sees it: the contract's calls, over HTTP, against real processes."""

import json
import threading
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from starling_api.http.not_implemented import PLANNED
from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topics import SEGMENT_DEFINITIONS, stage
from starling_common.testing import eventually
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.answers import faults, is_problem, published
from tests.contract.api.conftest import Client

EVERYONE = {"everyone": True}
BUYERS = {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed", "op": "gte", "value": 2, "within": "90d"}}


def tag_of(answer: httpx.Response) -> str:
    return f'"{answer.json()["revision"]}"'


def test_the_life_of_a_segment(client: Client, stack: Stack) -> None:
    made = client.call("POST", "/v1/segments", BUYERS, role="marketer", X_Correlation_Id="corr-1")
    assert (made.status_code, made.headers["etag"], made.headers["x-correlation-id"]) == (201, tag_of(made), "corr-1")
    assert made.json() | {"version": 1, "status": "backfilling", "timezone": "UTC", **BUYERS} == made.json()
    read = client.call("GET", "/v1/segments/buyers", role="viewer")
    assert (read.status_code, read.headers["etag"]) == (200, made.headers["etag"])
    assert read.json() == {**made.json(), "used_by": [], "as_of": read.json()["as_of"]}  # one reads one's own write, and as of when
    renamed = client.call("PUT", "/v1/segments/buyers", {**read.json(), "name": "Repeat buyers"}, If_Match=read.headers["etag"])
    assert (renamed.status_code, renamed.json()["version"], renamed.json()["name"]) == (200, 1, "Repeat buyers")
    assert renamed.headers["etag"] == tag_of(renamed) != made.headers["etag"]
    lost = client.call("PUT", "/v1/segments/buyers", {**BUYERS, "name": "Buyers again"}, If_Match=read.headers["etag"])
    assert is_problem(lost, 412, "version_conflict")
    everyone = {"name": "Buyers", "where": EVERYONE}
    changed = client.call("PUT", "/v1/segments/buyers", everyone, If_Match=renamed.headers["etag"])
    assert (changed.status_code, changed.headers["etag"], changed.json()["version"]) == (200, tag_of(changed), 2)
    assert changed.json()["created_at"] == made.json()["created_at"] < changed.json()["updated_at"]
    assert is_problem(client.call("PUT", "/v1/segments/buyers", BUYERS, If_Match=made.headers["etag"]), 412, "version_conflict")
    assert client.call("DELETE", "/v1/segments/buyers", If_Match=changed.headers["etag"]).status_code == 204
    assert client.call("DELETE", "/v1/segments/buyers").status_code == 204
    assert client.call("GET", "/v1/segments/buyers").json()["status"] == "archived"
    assert is_problem(client.call("PUT", "/v1/segments/buyers", BUYERS), 409, "archived")
    assert faults(client.call("POST", "/v1/segments", BUYERS)) == {("/key", "key_taken")}
    assert client.call("GET", "/v1/segments").json()["items"] == []
    assert [one["key"] for one in client.call("GET", "/v1/segments?include_archived=true").json()["items"]] == ["buyers"]
    expected = [("DEFINED", 1), ("REVISED", 1), ("REVISED", 2), ("ARCHIVED", 2)]
    records = published(stack, "segments.definitions", client.workspace)
    assert [(record["action"], record["version"]) for record in records] == expected
    assert records[0]["headers"]["correlation_id"] == b"corr-1"
    assert json.loads(records[2]["document"])["where"] == EVERYONE
    versions = client.call("GET", "/v1/segments/buyers/versions?limit=3").json()
    rest = client.call("GET", f"/v1/segments/buyers/versions?cursor={versions['next_cursor']}").json()
    assert [(one["action"], one["version"]) for one in versions["items"] + rest["items"]] == expected
    assert versions["items"][0]["actor"].startswith("marketer-")


def test_a_segment_is_paused_and_resumed(client: Client, stack: Stack) -> None:
    seen = client.call("POST", "/v1/segments", BUYERS).headers["etag"]
    assert is_problem(client.call("POST", "/v1/segments/buyers/pause", role="viewer"), 403, "forbidden")
    paused = client.call("POST", "/v1/segments/buyers/pause", role="marketer", If_Match=seen, Idempotency_Key="once")
    assert (paused.status_code, paused.headers["etag"], paused.json()["status"]) == (200, tag_of(paused), "paused")
    again = client.call("POST", "/v1/segments/buyers/pause", role="marketer", If_Match=seen, Idempotency_Key="once")
    assert again.content == paused.content
    assert client.call("GET", "/v1/segments/buyers").json()["status"] == "paused"
    revised = client.call("PUT", "/v1/segments/buyers", {"name": "Buyers", "where": EVERYONE})
    assert (revised.json()["status"], revised.json()["version"]) == ("paused", 2)
    assert is_problem(client.call("POST", "/v1/segments/buyers/resume", If_Match=seen), 412, "version_conflict")
    resumed = client.call("POST", "/v1/segments/buyers/resume")
    assert (resumed.status_code, resumed.json()["status"]) == (200, "backfilling")
    actions = [record["action"] for record in published(stack, "segments.definitions", client.workspace)]
    assert actions == ["DEFINED", "PAUSED", "PAUSED", "RESUMED"]
    assert is_problem(client.call("POST", "/v1/segments/unknown/pause"), 404, "unknown_segment")


def test_a_batch_is_applied_as_a_whole(client: Client, stack: Stack) -> None:
    client.call("POST", "/v1/segments", BUYERS)
    batch = {"segments": [{**BUYERS, "where": EVERYONE}, {"key": "built", "name": "Built", "where": {"segment": "buyers"}}]}
    broken = {"segments": [*batch["segments"], {"key": "x", "name": "X", "where": {"all": []}}]}
    assert is_problem(client.call("POST", "/v1/segments:batch", broken), 422, "invalid_definition")
    assert client.call("POST", "/v1/segments:batch?dry_run=true", batch).status_code == 200
    assert client.call("GET", "/v1/segments/built").status_code == 404
    applied = client.call("POST", "/v1/segments:batch", batch, role="marketer", Idempotency_Key="b1")
    assert [(one["key"], one["version"]) for one in applied.json()["items"]] == [("buyers", 2), ("built", 1)]
    assert client.call("POST", "/v1/segments:batch", batch, role="marketer", Idempotency_Key="b1").content == applied.content
    expected = [("buyers", 1), ("buyers", 2), ("built", 1)]
    assert [(one["key"], one["version"]) for one in published(stack, "segments.definitions", client.workspace)] == expected
    listed = client.call("GET", "/v1/segments?sort=-key&name=b").json()["items"]
    assert [(one["key"], one["size"], one["revision"]) for one in listed] == [
        (one["key"], 0, one["revision"]) for one in applied.json()["items"]
    ]


def test_lists_are_pages(client: Client) -> None:
    for key in ("c", "a", "b"):
        client.call("POST", "/v1/segments", {"key": key, "name": key, "where": EVERYONE})
    first = client.call("GET", "/v1/segments?limit=2").json()
    second = client.call("GET", f"/v1/segments?limit=2&cursor={first['next_cursor']}").json()
    assert [one["key"] for one in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None
    for query in ("limit=0", "limit=1001", "limit=x"):
        assert is_problem(client.call("GET", f"/v1/segments?{query}"), 400, "bad_parameter")
    nested = "W1tb" * 3000
    for cursor in ("x", first["next_cursor"] + "A", "%00", nested):
        assert is_problem(client.call("GET", f"/v1/segments?cursor={cursor}"), 400, "bad_cursor")
    assert is_problem(client.call("GET", f"/v1/segments/a/members?cursor={first['next_cursor']}"), 400, "bad_cursor")


BUY = {"event": "Buy"}
CONTAINS = {"op": "contains", "value": "a"}


def deep(levels: int) -> dict[str, Any]:
    where: dict[str, Any] = BUY
    for _ in range(levels):
        where = {"not": where}
    return where


@pytest.mark.parametrize(
    ("code", "pointer", "change"),
    [
        pytest.param("unknown_field", "/colour", {"colour": "red"}, id="unknown_field"),
        pytest.param("missing_field", "", {"name": None}, id="missing_field"),
        pytest.param("wrong_type", "/where", {"where": []}, id="wrong_type"),
        pytest.param("unknown_operator", "/where/op", {"where": {"trait": "a", "op": "like", "value": 1}}, id="unknown_operator"),
        pytest.param("operator_does_not_fit", "/where/op", {"where": {**BUY, **CONTAINS}}, id="operator_does_not_fit"),
        pytest.param("bad_duration", "/where/within", {"where": {**BUY, "within": "1.5d"}}, id="bad_duration"),
        pytest.param("bad_date", "/where/value", {"where": {"trait": "a", "op": "before", "value": "soon"}}, id="bad_date"),
        pytest.param("bad_timezone", "/timezone", {"timezone": "Mars/Olympus"}, id="bad_timezone"),
        pytest.param("bad_pattern", "/where/value", {"where": {"trait": "a", "op": "matches", "value": "a(b"}}, id="bad_pattern"),
        pytest.param("empty_group", "/where/all", {"where": {"all": []}}, id="empty_group"),
        pytest.param("too_deep", "/where" + "/not" * 16, {"where": deep(17)}, id="too_deep"),
        pytest.param("too_wide", "/where/all", {"where": {"all": [BUY] * 65}}, id="too_wide"),
        pytest.param("unknown_segment", "/where/segment", {"where": {"segment": "unknown"}}, id="unknown_segment"),
        pytest.param("unknown_trait", "/where/trait", {"where": {"trait": "computed.ltv", "op": "exists"}}, id="unknown_trait"),
        pytest.param("cycle", "/where/segment", {"where": {"segment": "mine"}}, id="cycle"),
        pytest.param("bad_key", "/key", {"key": "No Key"}, id="bad_key"),
        pytest.param("key_taken", "/key", {"key": "taken"}, id="key_taken"),
    ],
)
def test_each_error_of_a_definition_is_reported_and_nothing_is_stored(
    client: Client, code: str, pointer: str, change: dict[str, Any]
) -> None:
    client.call("POST", "/v1/segments", {"key": "taken", "name": "Taken", "where": EVERYONE})
    refused = client.call("POST", "/v1/segments", {"key": "mine", "name": "Mine", "where": EVERYONE, **change})
    assert (pointer, code) in faults(refused)
    assert [one["key"] for one in client.call("GET", "/v1/segments").json()["items"]] == ["taken"]


def test_all_errors_of_a_body_are_reported_together(client: Client) -> None:
    conditions = [{"trait": "a", "op": "like", "value": 1}, {"all": []}, {"list": "vips"}]
    bad = {"key": "X", "where": {"any": conditions}, "extra": 1}
    assert {code for _, code in faults(client.call("POST", "/v1/segments", bad))} >= {
        "bad_key", "missing_field", "unknown_field", "unknown_operator", "empty_group", "unknown_list",
    }  # fmt: skip


def test_a_cycle_through_another_segment_is_named(client: Client) -> None:
    client.call("POST", "/v1/segments", {"key": "a", "name": "A", "where": EVERYONE})
    client.call("POST", "/v1/segments", {"key": "b", "name": "B", "where": {"segment": "a"}})
    answer = client.call("PUT", "/v1/segments/a", {"name": "A", "where": {"segment": "b"}})
    assert ("/where/segment", "cycle") in faults(answer)
    assert "b" in answer.json()["errors"][0]["message"]
    refused = client.call("DELETE", "/v1/segments/a")
    assert is_problem(refused, 409, "in_use")
    assert refused.json()["used_by"] == ["b"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half"),
        pytest.param(b'{"key": NaN}', id="no number of JSON"),
        pytest.param(b'{"key": "\xff"}', id="not UTF-8"),
    ],
)
def test_a_body_without_json_is_refused(client: Client, body: bytes) -> None:
    assert is_problem(client.call("POST", "/v1/segments", body), 400, "not_json")


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        pytest.param(b'{"key": "\\ud800"}', "/key", "bad_text", id="half a character"),
        pytest.param(b"[" * 100_000, "", "too_deep", id="endlessly nested"),
        pytest.param(b'{"where": {"value": [%s, 0]}}' % (b"9" * 5_000), "/where/value/0", "out_of_range", id="5,000 digits"),
        pytest.param(b'{"where": {"value": 1e400}}', "/where/value", "out_of_range", id="no double"),
        pytest.param(b'{"where": {"value": "%s"}}' % (b"x" * 262_144), "", "too_large", id="large"),
    ],
)
def test_a_value_out_of_bounds_is_reported_with_its_pointer(client: Client, body: bytes, pointer: str, code: str) -> None:
    for path in ("/v1/segments", "/v1/segments/preview", "/v1/computed-traits", "/v1/webhooks"):
        assert faults(client.call("POST", path, body)) == {(pointer, code)}


def test_a_definition_from_elsewhere_that_cannot_be_read_hides_no_other(client: Client, stack: Stack) -> None:
    codec = Registry(stack.registry_url).codec(SEGMENT_DEFINITIONS, "DefinitionChanged")
    producer = Producer(producer_config(stack.brokers))
    for number, value in enumerate(("1e400", "9" * 5_000, '"\\ud800"', "[" * 5_000 + "]" * 5_000)):
        key = f"huge-{number}"
        document = f'{{"key": "{key}", "name": "Huge", "where": {{"trait": "v", "op": "eq", "value": {value}}}}}'
        fields = {"kind": "segment", "workspace": client.workspace, "key": key, "version": 1, "action": "DEFINED", "actor": "test"}
        more = {"event_id": key, "correlation_id": key, "recorded_at": wall_clock_micros(), "document": document}
        producer.produce(SEGMENT_DEFINITIONS, codec.encode({**fields, **more}), record_key(client.workspace, key))
    assert producer.flush(30) == 0
    assert client.call("POST", "/v1/segments", BUYERS).status_code == 201
    assert client.call("GET", "/v1/segments/buyers").status_code == 200  # written after the others, and shown
    assert [one["key"] for one in client.call("GET", "/v1/segments").json()["items"]] == ["buyers"]
    assert is_problem(client.call("GET", "/v1/segments/huge-0"), 404, "unknown_segment")


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b"5", b"{}"])
def test_json_without_a_definition_is_refused(client: Client, body: bytes) -> None:
    for path in ("/v1/segments", "/v1/computed-traits", "/v1/webhooks"):
        assert faults(client.call("POST", path, body))


def test_a_body_has_a_maximum_size(client: Client) -> None:
    assert is_problem(client.call("POST", "/v1/segments", b" " * 1_048_577), 413, "too_large")


def test_the_content_type_does_not_matter(client: Client) -> None:
    body = json.dumps(BUYERS).encode()
    assert client.call("POST", "/v1/segments", body, Content_Type="text/plain").status_code == 201


def test_tokens_and_roles(client: Client, http: httpx.Client) -> None:
    for headers in ({}, {"Authorization": "Bearer nope"}, {"Authorization": f"Basic admin-{client.workspace}"}):
        answer = http.get("/v1/segments", headers=headers)
        assert is_problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert is_problem(client.call("POST", "/v1/segments", BUYERS, role="viewer"), 403, "forbidden")
    assert is_problem(client.call("POST", "/v1/webhooks", {}, role="marketer"), 403, "forbidden")


def test_workspaces_do_not_see_one_another(client: Client, another: Client) -> None:
    assert client.call("POST", "/v1/segments", BUYERS).status_code == 201
    assert is_problem(another.call("GET", "/v1/segments/buyers"), 404, "unknown_segment")
    assert another.call("POST", "/v1/segments", BUYERS).status_code == 201


def test_an_idempotency_key_has_one_response(client: Client, stack: Stack) -> None:
    first = client.call("POST", "/v1/segments", BUYERS, Idempotency_Key="k1")
    again = client.call("POST", "/v1/segments", BUYERS, Idempotency_Key="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert (first.content, first.headers["etag"]) == (again.content, again.headers["etag"])
    assert len(published(stack, "segments.definitions", client.workspace)) == 1
    other = client.call("POST", "/v1/segments", {**BUYERS, "name": "Other"}, Idempotency_Key="k1")
    assert is_problem(other, 422, "idempotency_key_reused")
    assert client.call("DELETE", "/v1/segments/buyers", Idempotency_Key="k2").status_code == 204
    assert client.call("DELETE", "/v1/segments/buyers", Idempotency_Key="k2").status_code == 204
    webhook = {"key": "w", "url": "https://a.example"}
    secrets = {client.call("POST", "/v1/webhooks", webhook, Idempotency_Key="k3").json()["secret"] for _ in range(2)}
    assert len(secrets) == 1


def test_of_concurrent_writes_one_gets_each_version(client: Client, stack: Stack) -> None:
    seen = client.call("POST", "/v1/segments", BUYERS).headers["etag"]
    answers: list[httpx.Response] = []

    def write(number: int) -> None:
        where = {"event": "Order Completed", "op": "gte", "value": number + 10}
        answers.append(client.call("PUT", "/v1/segments/buyers", {"name": "Buyers", "where": where}, If_Match=seen))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7
    assert [record["version"] for record in published(stack, "segments.definitions", client.workspace)] == [1, 2]


def test_of_concurrent_creations_of_a_key_one_succeeds(client: Client) -> None:
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda n=number: answers.append(client.call("POST", "/v1/segments", {**BUYERS, "name": f"{n}"})))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 5


def _trait_with_status(client: Client, status: str) -> dict[str, Any] | None:
    found: dict[str, Any] = client.call("GET", "/v1/computed-traits/ltv").json()
    return found if found["status"] == status else None


def test_the_life_of_a_computed_trait(client: Client, stack: Stack) -> None:
    trait = {"key": "ltv", "event": "Order Completed", "measure": {"sum": "revenue"}, "within": "365d"}
    made = client.call("POST", "/v1/computed-traits", trait, role="marketer")
    assert made.status_code == 201
    assert made.json() | {**trait, "version": 1} == made.json()
    # No job runs. What it commits, once the trait is published over all history, makes the trait active.
    read = eventually(lambda: _trait_with_status(client, "bootstrapping"))
    assert read["progress"]["records_done"] == 0
    group = Consumer(consumer_config(stack.brokers, stage("profiles").group))
    place = TopicPartition("computed-traits.definitions", 0)
    group.commit(offsets=[TopicPartition(place.topic, 0, group.get_watermark_offsets(place, 10)[1])], asynchronous=False)
    group.close()
    assert "progress" not in eventually(lambda: _trait_with_status(client, "active"))
    rich = {"key": "rich", "name": "Rich", "where": {"trait": "computed.ltv", "op": "gt", "value": 500}}
    assert client.call("POST", "/v1/segments", rich).status_code == 201
    refused = client.call("DELETE", "/v1/computed-traits/ltv")
    assert is_problem(refused, 409, "in_use")
    assert refused.json()["used_by"] == ["rich"]
    named = client.call("PUT", "/v1/computed-traits/ltv", {**trait, "name": "Life-time value"})
    assert named.json()["version"] == 1
    assert client.call("PUT", "/v1/computed-traits/ltv", {**trait, "within": "30d"}).json()["version"] == 2
    client.call("DELETE", "/v1/segments/rich")
    assert client.call("DELETE", "/v1/computed-traits/ltv").status_code == 204
    actions = [record["action"] for record in published(stack, "computed-traits.definitions", client.workspace)]
    assert actions == ["DEFINED", "REVISED", "REVISED", "ARCHIVED"]
    assert is_problem(client.call("GET", "/v1/computed-traits/nothing"), 404, "unknown_computed_trait")


def test_the_life_of_an_event_type(client: Client, stack: Stack) -> None:
    order = {"key": "order", "event": "Order Completed", "properties": [{"name": "revenue", "type": "number"}]}
    made = client.call("POST", "/v1/event-types", order, role="marketer")
    assert (made.status_code, made.json() | order) == (201, made.json())
    sql = "SELECT user_id, sum(revenue) AS value FROM event_order GROUP BY user_id"
    spent = {"key": "spent", "sql": sql, "schedule": "0 * * * *"}
    assert client.call("POST", "/v1/computed-traits", spent).status_code == 201
    assert client.call("GET", "/v1/event-types/order").json()["used_by"] == ["spent"]
    assert is_problem(client.call("DELETE", "/v1/event-types/order"), 409, "in_use")
    client.call("DELETE", "/v1/computed-traits/spent")
    assert client.call("DELETE", "/v1/event-types/order").status_code == 204
    records = published(stack, "lake.definitions", client.workspace)
    assert [(one["kind"], one["action"]) for one in records] == [("event_type", "DEFINED"), ("event_type", "ARCHIVED")]


def test_the_life_of_a_view(client: Client, stack: Stack) -> None:
    view = {"key": "events_by_name", "sql": "SELECT name, count(*) AS events FROM events GROUP BY name", "schedule": "0 * * * *"}
    assert client.call("POST", "/v1/views", view, role="marketer").status_code == 201
    assert client.call("POST", "/v1/views/events_by_name/run").json()["status"] == "waiting"
    shown = client.call("GET", "/v1/views/events_by_name").json()
    assert (shown | view, shown["last_run"]["rows"]) == (shown, None)
    assert [one["key"] for one in client.call("GET", "/v1/views").json()["items"]] == ["events_by_name"]
    assert client.call("DELETE", "/v1/views/events_by_name").status_code == 204
    assert is_problem(client.call("POST", "/v1/views/events_by_name/run"), 409, "archived")
    records = published(stack, "lake.definitions", client.workspace)
    assert [(one["kind"], one["action"]) for one in records] == [("view", "DEFINED"), ("view", "ARCHIVED")]


def test_the_life_of_a_webhook(client: Client, stack: Stack) -> None:
    client.call("POST", "/v1/segments", BUYERS)
    made = client.call("POST", "/v1/webhooks", {"key": "shop", "url": "https://shop.example/hook", "segments": ["buyers"]})
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret.startswith("whsec_")
    read = client.call("GET", "/v1/webhooks/shop", role="viewer").json()
    shown = {field: value for field, value in made.json().items() if field != "secret"}
    assert read == {**shown, "as_of": read["as_of"]}
    assert secret not in client.call("GET", "/v1/webhooks").text
    sent_back = {**read, "events": ["entered"]}
    assert client.call("PUT", "/v1/webhooks/shop", sent_back).json()["version"] == 2
    records = published(stack, "webhooks.definitions", client.workspace)
    stored = [json.loads(record["document"])["secret"] for record in records]
    assert stored[0].startswith("sealed:v1:first:")
    assert stored == [stored[0]] * 2
    rotated = client.call("POST", "/v1/webhooks/shop/rotate-secret").json()
    assert rotated["secret"] not in {None, secret}
    assert rotated["previous_secret_expires_at"] > rotated["updated_at"]
    enabled = client.call("POST", "/v1/webhooks/shop/enable")
    assert (enabled.status_code, "secret" in enabled.json()) == (200, False)
    assert is_problem(client.call("POST", "/v1/webhooks/shop/rotate-secret", role="marketer"), 403, "forbidden")
    assert is_problem(client.call("POST", "/v1/webhooks/none/enable"), 404, "unknown_webhook")
    refused = client.call("POST", "/v1/webhooks", {"key": "b", "url": "https://a..b/"})
    assert refused.status_code == 422
    assert faults(refused) == {("/url", "wrong_type")}
    assert "'a..b' is no host name" in refused.text
    assert faults(client.call("POST", "/v1/webhooks", {"key": "b", "url": "ftp://x", "segments": ["no"]})) == {
        ("/url", "wrong_type"),
        ("/segments/0", "unknown_segment"),
    }
    assert client.call("DELETE", "/v1/webhooks/shop").status_code == 204


@pytest.mark.parametrize("later", PLANNED, ids=lambda one: f"{one.method} {one.path}")
def test_a_planned_operation_returns_501(client: Client, later: Any) -> None:
    path = later.path.replace("{key}", "vip").replace("{user_id:id}", "ada")
    answer = client.call(later.method, path, {} if later.method in {"POST", "PUT"} else None)
    assert is_problem(answer, 501, "not_yet")
    assert answer.json()["message"].startswith(f"{later.method} {later.path.replace(':id', '')} ")


def test_other_paths_and_methods_are_problems_too(client: Client) -> None:
    assert is_problem(client.call("GET", "/v2/segments"), 404, "not_found")
    wrong = client.call("PATCH", "/v1/segments/vip", {})
    assert is_problem(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, PUT, DELETE"
    assert is_problem(client.call("DELETE", "/v1/users/ada/segments"), 405, "method_not_allowed")
    assert is_problem(client.call("DELETE", "/v1/users/a%2Fsegments"), 501, "not_yet")
    for path in ("", "/size", "/members", "/versions", "/history"):
        assert is_problem(client.call("GET", f"/v1/segments/unknown{path}"), 404, "unknown_segment")
    assert is_problem(client.call("GET", "/v1/users/unknown"), 404, "unknown_user")
    assert is_problem(client.call("PUT", "/v1/segments/unknown", BUYERS | {"key": "unknown"}), 404, "unknown_segment")
    assert is_problem(client.call("DELETE", "/v1/segments/unknown"), 404, "unknown_segment")
    assert is_problem(client.call("DELETE", "/v1/segments/unknown", If_Match="latest"), 400, "bad_if_match")
