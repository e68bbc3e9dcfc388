"""What `/openapi.json` promises is what the API answers; and the pages that need no token."""

import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from starling_common.testing import Service, eventually, running
from starling_segments import json_schema
from tests.contract.api.conftest import Client

CONTRACT_CALLS = """
POST /v1/segments · GET /v1/segments · GET /v1/segments/{key} · PUT /v1/segments/{key} · DELETE /v1/segments/{key}
POST /v1/segments/{key}/pause · POST /v1/segments/{key}/resume · GET /v1/segments/{key}/versions · POST /v1/segments/preview
POST /v1/segments/{key}/diff · GET /v1/segments/{key}/members · GET /v1/segments/{key}/size · GET /v1/segments/{key}/history
GET /v1/users/{user_id} · GET /v1/users/{user_id}/segments · GET /v1/users/{user_id}/events
GET /v1/users/{user_id}/explain/{key} · POST /v1/memberships/lookup · GET /v1/feed
PUT /v1/lists/{key} · GET /v1/lists/{key} · DELETE /v1/lists/{key} · GET /v1/lists/{key}/members · PUT /v1/lists/{key}/members
POST /v1/lists/{key}/members · DELETE /v1/lists/{key}/members
POST /v1/computed-traits · GET /v1/computed-traits · GET /v1/computed-traits/{key} · PUT /v1/computed-traits/{key}
DELETE /v1/computed-traits/{key} · POST /v1/computed-traits/{key}/run
POST /v1/webhooks · GET /v1/webhooks · GET /v1/webhooks/{key} · PUT /v1/webhooks/{key} · DELETE /v1/webhooks/{key}
POST /v1/webhooks/{key}/rotate-secret · POST /v1/webhooks/{key}/enable · POST /v1/webhooks/{key}/test
POST /v1/campaigns · GET /v1/campaigns · GET /v1/campaigns/{key} · PUT /v1/campaigns/{key} · DELETE /v1/campaigns/{key}
GET /v1/campaigns/{key}/versions · POST /v1/campaigns/{key}/activate · POST /v1/campaigns/{key}/pause
POST /v1/campaigns/{key}/resume · POST /v1/campaigns/{key}/preview · POST /v1/campaigns/{key}/dry-run
GET /v1/campaigns/{key}/report · POST /v1/campaigns/{key}/test
POST /v1/targets · GET /v1/targets · GET /v1/targets/{key} · PUT /v1/targets/{key} · DELETE /v1/targets/{key}
POST /v1/targets/{key}/test · POST /v1/targets/{key}/disable · POST /v1/targets/{key}/enable
GET /v1/policy · PUT /v1/policy
DELETE /v1/users/{user_id} · GET /v1/users/{user_id}/export
POST /v1/event-types · GET /v1/event-types · GET /v1/event-types/{key} · PUT /v1/event-types/{key} · DELETE /v1/event-types/{key}
POST /v1/views · GET /v1/views · GET /v1/views/{key} · PUT /v1/views/{key} · DELETE /v1/views/{key} · POST /v1/views/{key}/run
GET /v1/reports/audience · GET /v1/backfills · POST /v1/backfills/{run}/{action}
GET /v1/lists · POST /v1/segments:batch · POST /v1/policy/check · GET /v1/outcomes
POST /v1/tokens · GET /v1/tokens · GET /v1/tokens/{id} · DELETE /v1/tokens/{id} · POST /v1/tokens/{id}/rotate
POST /v1/write-keys · GET /v1/write-keys · GET /v1/write-keys/{id} · DELETE /v1/write-keys/{id} · POST /v1/write-keys/{id}/rotate
POST /v1/imports · GET /v1/imports · GET /v1/imports/{key} · DELETE /v1/imports/{key}
POST /v1/imports/{key}/run · PUT /v1/imports/{key}/schedule · GET /v1/imports/{key}/rejects
GET /v1/audit · POST /v1/secrets/rotate
GET /v1/users/{user_id}/messages · GET /v1/users/{user_id}/consent · PUT /v1/users/{user_id}/consent
POST /v1/suppressions/{channel}
"""

RETURN_RATE = {"key": "r", "measure": {"ratio": {"of": {"event": "Return"}, "to": {"event": "Buy"}}}, "calendar": "last_month"}

EVENT_TYPE = {"key": "order", "event": "Order Completed", "properties": [{"name": "revenue", "type": "number"}]}
VIEW = {
    "key": "orders",
    "sql": "SELECT user_id, sum(revenue) AS revenue FROM event_order GROUP BY user_id",
    "schedule": "0 4 * * *",
}
TARGET = {
    "key": "texts",
    "channel": "sms",
    "base_url": "https://sms.example.com",
    "account_sid": "A",
    "auth_token": "t",
    "from": "Shop",
}
CAMPAIGN = {
    "key": "win-back",
    "name": "Win back",
    "trigger": {"enter": "vip"},
    "channel": "sms",
    "target": "texts",
    "variants": [{"key": "a", "weight": 100, "content": {"text": "Hello {{ user_id }}"}}],
}
IMPORT = {
    "key": "orders",
    "uri": "s3://shop/orders",
    "format": "csv",
    "kind": "events",
    "user_column": "customer",
    "event": "Order",
}
IMPORT_DATABASE = {
    "key": "crm",
    "uri": "jdbc:postgresql://db.example.com/crm",
    "format": "jdbc",
    "kind": "traits",
    "user_column": "id",
    "id_column": "id",
    "jdbc": {"user": "reader", "table": "customers"},
}
POLICY_CHECK = {"user": "ada", "channel": "email", "policy": {"quiet_hours": {"from": "21:00", "to": "08:00"}}, "traits": {}}


@pytest.fixture(scope="session")
def openapi(http: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = http.get("/openapi.json").json()
    return document


def test_every_operation_of_the_contract_exists_and_needs_a_token(openapi: dict[str, Any]) -> None:
    assert openapi["openapi"].startswith("3.1")
    promised = set(re.findall(r"(GET|POST|PUT|DELETE) (\S+)", CONTRACT_CALLS))
    found = {(verb.upper(), path) for path, item in openapi["paths"].items() for verb in item}
    assert found == promised
    for path, item in openapi["paths"].items():
        for verb, operation in item.items():
            assert operation["security"], f"{verb} {path}"
            assert operation["summary"], f"{verb} {path}"


def answer_schema(openapi: dict[str, Any], method: str, path: str, status: int) -> dict[str, Any]:
    answer = openapi["paths"][path][method.lower()]["responses"][str(status)]
    if status >= 400:
        answer = openapi["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    (content,) = [one for kind, one in answer["content"].items() if kind.endswith("json")]
    return {**content["schema"], "components": openapi["components"]}


def test_responses_match_their_schemas(client: Client, openapi: dict[str, Any]) -> None:
    segment = {"key": "vip", "name": "VIP", "where": {"everyone": True}}
    calls: list[tuple[str, str, str, Any, int | tuple[int, ...]]] = [
        ("POST", "/v1/segments", "/v1/segments", segment, 201),
        ("GET", "/v1/segments", "/v1/segments", None, 200),
        ("GET", "/v1/segments/{key}", "/v1/segments/vip", None, 200),
        ("PUT", "/v1/segments/{key}", "/v1/segments/vip", {**segment, "name": "V"}, 200),
        ("POST", "/v1/segments/{key}/pause", "/v1/segments/vip/pause", None, 200),
        ("POST", "/v1/segments/{key}/resume", "/v1/segments/vip/resume", None, 200),
        ("GET", "/v1/segments/{key}/versions", "/v1/segments/vip/versions", None, 200),
        ("GET", "/v1/segments/{key}/members", "/v1/segments/vip/members", None, 200),
        ("GET", "/v1/segments/{key}/size", "/v1/segments/vip/size", None, 200),
        ("GET", "/v1/segments/{key}/history", "/v1/segments/vip/history", None, 200),
        ("POST", "/v1/segments/preview", "/v1/segments/preview", {"where": {"everyone": True}}, 200),
        ("POST", "/v1/segments/preview", "/v1/segments/preview", {"where": {"event": "A", "op": "nope"}}, 422),
        ("POST", "/v1/segments/{key}/diff", "/v1/segments/vip/diff", {"where": {"event": "Buy"}}, 200),
        ("POST", "/v1/segments/{key}/diff", "/v1/segments/unknown/diff", {"where": {"event": "Buy"}}, 404),
        ("GET", "/v1/users/{user_id}/explain/{key}", "/v1/users/ada/explain/vip", None, 404),
        ("GET", "/v1/users/{user_id}/export", "/v1/users/ada/export", None, 200),
        ("GET", "/v1/users/{user_id}/segments", "/v1/users/ada/segments", None, 200),
        ("GET", "/v1/users/{user_id}/events", "/v1/users/ada/events", None, 200),
        ("GET", "/v1/feed", "/v1/feed?limit=3", None, 200),
        ("GET", "/v1/outcomes", "/v1/outcomes?user_id=ada", None, 200),
        ("GET", "/v1/outcomes", "/v1/outcomes?since=yesterday", None, 400),
        ("GET", "/v1/backfills", "/v1/backfills", None, 200),
        ("POST", "/v1/backfills/{run}/{action}", "/v1/backfills/unknown/pause", None, 404),
        ("POST", "/v1/imports", "/v1/imports", IMPORT, 201),
        ("POST", "/v1/imports", "/v1/imports", IMPORT, 409),
        ("POST", "/v1/imports", "/v1/imports", {**IMPORT, "uri": "s3://"}, 400),
        ("GET", "/v1/imports", "/v1/imports", None, 200),
        ("GET", "/v1/imports/{key}", "/v1/imports/orders", None, 200),
        ("GET", "/v1/imports/{key}/rejects", "/v1/imports/orders/rejects", None, 200),
        ("POST", "/v1/imports", "/v1/imports", {**IMPORT_DATABASE, "schedule": "15 * * * *"}, 201),
        (
            "PUT",
            "/v1/imports/{key}/schedule",
            "/v1/imports/crm/schedule",
            {"schedule": "0 3 * * *", "timezone": "Europe/Berlin"},
            200,
        ),
        ("PUT", "/v1/imports/{key}/schedule", "/v1/imports/crm/schedule", {"schedule": "0 0 30 2 *"}, 400),
        ("DELETE", "/v1/imports/{key}", "/v1/imports/orders", None, 200),
        ("DELETE", "/v1/imports/{key}", "/v1/imports/orders", None, 409),
        ("POST", "/v1/memberships/lookup", "/v1/memberships/lookup", {"users": ["ada"]}, 200),
        ("POST", "/v1/computed-traits", "/v1/computed-traits", {"key": "n", "event": "Buy"}, 201),
        ("POST", "/v1/computed-traits", "/v1/computed-traits", RETURN_RATE, 201),
        ("GET", "/v1/computed-traits", "/v1/computed-traits", None, 200),
        ("POST", "/v1/webhooks", "/v1/webhooks", {"key": "w", "url": "http://a.example"}, 201),
        ("GET", "/v1/webhooks", "/v1/webhooks", None, 200),
        ("POST", "/v1/segments", "/v1/segments", segment, 422),
        ("GET", "/v1/segments/{key}", "/v1/segments/unknown", None, 404),
        ("POST", "/v1/event-types", "/v1/event-types", EVENT_TYPE, 201),
        ("GET", "/v1/event-types", "/v1/event-types", None, 200),
        ("POST", "/v1/views", "/v1/views", VIEW, 201),
        ("GET", "/v1/views", "/v1/views", None, 200),
        ("GET", "/v1/views/{key}", "/v1/views/orders", None, 200),
        ("GET", "/v1/views/{key}", "/v1/views/nothing", None, 404),
        ("POST", "/v1/policy/check", "/v1/policy/check", {**POLICY_CHECK, "at": "2100-01-01T00:00:00Z"}, 200),
        ("POST", "/v1/policy/check", "/v1/policy/check", {"user": "ada", "policy": {}}, 422),
        (
            "POST",
            "/v1/policy/check",
            "/v1/policy/check",
            {"user": "ada", "channel": "email", "traits": {}, "at": "2100-01-01T00:00:00Z"},
            200,
        ),
        ("POST", "/v1/targets", "/v1/targets", TARGET, 201),
        ("POST", "/v1/targets/{key}/enable", "/v1/targets/texts/enable", None, 200),
        ("POST", "/v1/campaigns", "/v1/campaigns", CAMPAIGN, 201),
        ("GET", "/v1/campaigns", "/v1/campaigns", None, 200),
        ("GET", "/v1/campaigns/{key}/versions", "/v1/campaigns/win-back/versions", None, 200),
        ("POST", "/v1/campaigns/{key}/preview", "/v1/campaigns/win-back/preview", {"user": "ada"}, 404),
        ("GET", "/v1/campaigns/{key}/report", "/v1/campaigns/win-back/report", None, 200),
        ("POST", "/v1/campaigns/{key}/test", "/v1/campaigns/win-back/test", {"user": "ada", "to": ["+4915112345678"]}, 404),
        ("POST", "/v1/campaigns/{key}/dry-run", "/v1/campaigns/win-back/dry-run", None, 200),
        ("POST", "/v1/campaigns/{key}/activate", "/v1/campaigns/win-back/activate", None, (501, 503)),
        ("PUT", "/v1/policy", "/v1/policy", {"consent": {"email": "opt_out"}}, 200),
        ("GET", "/v1/policy", "/v1/policy", None, 200),
        ("PUT", "/v1/lists/{key}", "/v1/lists/fair-2026", {}, 201),
        ("PUT", "/v1/lists/{key}", "/v1/lists/fair-2026", {}, 200),
        ("POST", "/v1/tokens", "/v1/tokens", {"name": "ci", "role": "editor"}, 201),
        ("POST", "/v1/tokens", "/v1/tokens", {"name": "ci", "role": "owner"}, 422),
        ("GET", "/v1/tokens", "/v1/tokens", None, 200),
        ("POST", "/v1/write-keys", "/v1/write-keys", {"name": "web", "scopes": ["track"]}, 201),
        ("GET", "/v1/write-keys", "/v1/write-keys", None, 200),
        ("GET", "/v1/audit", "/v1/audit?limit=5", None, 200),
        ("GET", "/v1/tokens/{id}", "/v1/tokens/unknown", None, 404),
    ]
    client.call("PUT", "/v1/lists/vips")
    client.call("PUT", "/v1/lists/vips/members", {"users": ["ada"]})
    for method, template, path, body, status in calls:
        answer = client.call(method, path, body)
        # Whether a messenger was ever there depends on the tests before.
        assert answer.status_code in (status if isinstance(status, tuple) else (status,)), answer.text
        jsonschema.Draft202012Validator(answer_schema(openapi, method, template, answer.status_code)).validate(answer.json())


def test_the_schema_of_a_segment_refuses_an_invalid_one(openapi: dict[str, Any]) -> None:
    schema = openapi["paths"]["/v1/segments"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    check = jsonschema.Draft202012Validator({**schema, "components": openapi["components"]})
    assert check.is_valid({"key": "vip", "name": "VIP", "where": {"event": "Buy", "within": "30d"}})
    assert not check.is_valid({"key": "vip", "name": "VIP", "where": {"all": []}})


def test_the_schema_of_the_language_is_served(http: httpx.Client) -> None:
    answer = http.get("/v1/segment-schema.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/schema+json")
    assert answer.json() == json_schema()
    check = jsonschema.Draft202012Validator(answer.json())
    assert check.is_valid({"key": "vip", "name": "VIP", "where": {"event": "Buy", "within": "30d"}})
    assert not check.is_valid({"key": "vip", "name": "VIP", "where": {"event": "Buy", "within": "30 days"}})


def test_pages_without_a_token(http: httpx.Client) -> None:
    assert "/docs" in http.get("/").text
    reference = http.get("/docs")
    assert reference.headers["content-type"].startswith("text/html")
    assert "/v1/segments/{key}/members" in reference.text
    alive = http.get("/healthz").json()
    assert (alive["status"], alive["checks"]["sweep"]) == ("pass", "ok")
    assert http.get("/readyz").json() == {"status": "pass", "checks": {"database": "ok", "tokens": "ok"}}
    http.get("/v1/segments")
    assert 'starling_api_requests_total{method="GET",route="/v1/segments",status="401"}' in http.get("/metrics").text


def test_it_stops_on_sigterm_and_refuses_invalid_tokens(api_environment: dict[str, str], log_path: Path) -> None:
    with running("starling_api", api_environment, log_path) as service:
        assert service.stop() == 0
    with running("starling_api", {**api_environment, "STARLING_TOKENS": "a=boss:acme"}, log_path, ready=False) as broken:
        assert broken.process.wait(30) != 0
    assert "token 1: expected" in log_path.read_text()


def test_without_its_stores_it_runs_and_names_the_missing_ones(api_environment: dict[str, str], log_path: Path) -> None:
    environment = {**api_environment, "STARLING_CASSANDRA__PORT": "9", "STARLING_KAFKA__BROKERS": "127.0.0.1:9"}
    with running("starling_api", environment, log_path, ready=False) as service:
        eventually(lambda: _is_alive(service))
        ready = httpx.get(f"{service.url}/readyz", trust_env=False)
        assert ready.status_code == 503
        assert "Cassandra" in ready.json()["checks"]["database"]


def _is_alive(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/healthz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
