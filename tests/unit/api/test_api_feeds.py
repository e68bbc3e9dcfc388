"""Targets of feeds over HTTP: segments, topics, disabling and the test call, with stores in memory."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.ports import TopicCheck, no_topic
from starling_api.webhooks.sender import WebhookSender
from starling_common.kafka.clusters import TopicUnusable
from starling_common.telemetry.metrics import Metrics
from tests.campaign_documents import campaign
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.unit.api.calls import call
from tests.unit.api.campaign_world import world
from tests.unit.api.memory import World

SLACK: dict[str, Any] = {
    "key": "sales",
    "channel": "slack",
    "url": "https://hooks.example.com/x",
    "segments": ["vips"],
    "title": "VIPs",
}
KAFKA: dict[str, Any] = {"key": "warehouse", "channel": "kafka", "topic": "audience.changes", "segments": ["vips"]}


def refused(shop: World, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    answer = call(shop, "POST", "/v1/targets", json=document)
    assert answer.status_code == 422, answer.text
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def with_targets(**changed: Any) -> World:
    shop = world()
    for document in ({**SLACK, **changed}, KAFKA):
        assert call(shop, "POST", "/v1/targets", json=document).status_code == 201
    return shop


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def answer_of_test(shop: World, key: str, check: TopicCheck = no_topic) -> dict[str, Any]:
    """The answer to a test call of a process that may connect to this machine."""

    async def ask() -> httpx.Response:
        sender = WebhookSender(allow_private=True)
        app = build_app(replace(shop.services, webhook_sender=sender, check_topic=check), Metrics(CollectorRegistry()), dict)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            answer = await client.post(f"/v1/targets/{key}/test", headers={"Authorization": "Bearer rule"})
        await sender.close()
        return answer

    answer = asyncio.run(ask())
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_feed_is_created_and_changed_and_its_address_is_never_shown() -> None:
    shop = with_targets()
    shown = call(shop, "GET", "/v1/targets/sales", role="see").json()
    assert (shown["url"], shown["segments"], shown["status"]) == ("***", ["vips"], "active")
    changed = call(shop, "PUT", "/v1/targets/sales", json={**shown, "segments": ["vips", "lapsing-vips"], "interval_seconds": 10})
    assert (changed.status_code, changed.json()["version"], changed.json()["url"]) == (200, 2, "***")
    assert SLACK["url"] not in json.dumps([dict(one.document) for one in shop.published])


def test_an_unknown_or_archived_segment_is_refused_with_its_place() -> None:
    shop = with_targets()
    wrong = {**SLACK, "key": "b", "segments": ["vips", "none", "old"]}
    assert refused(shop, wrong) == [("/segments/1", "unknown_segment"), ("/segments/2", "unknown_segment")]
    answer = call(shop, "PUT", "/v1/targets/sales", json={**SLACK, "segments": ["old"]})
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/segments/0"]


@pytest.mark.parametrize("topic", ["segments.membership", "delivery.dlq", "segmenter-state-changelog", "__consumer_offsets"])
def test_no_record_goes_to_a_topic_of_the_platform(topic: str) -> None:
    for more in ({}, {"bootstrap_servers": "kafka.example.com:9092"}):
        assert refused(world(), {**KAFKA, "topic": topic, **more}) == [("/topic", "wrong_type")]


def test_no_campaign_uses_a_feed() -> None:
    answer = call(with_targets(), "POST", "/v1/campaigns", json=campaign(target="sales"), role="make")
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, ["/target"])


def test_a_feed_is_disabled_and_enabled_again() -> None:
    shop = with_targets()
    for _ in range(2):
        off = call(shop, "POST", "/v1/targets/sales/disable")
        assert (off.status_code, off.json()["status"], off.json()["version"]) == (200, "disabled", 1)
    assert off.json()["disabled_because"].startswith("disabled by ")
    assert [change.action for change in shop.published if change.key == "sales"] == ["DEFINED", "DISABLED"]
    on = call(shop, "POST", "/v1/targets/sales/enable")
    assert (on.json()["status"], on.json()["version"], on.json().get("disabled")) == ("active", 1, None)
    assert call(shop, "POST", "/v1/targets/sales/disable", role="make").status_code == 403


def test_a_target_of_campaigns_has_no_test_call() -> None:
    answer = call(world(), "POST", "/v1/targets/main-smtp/test")
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, ["/channel"])


@pytest.mark.parametrize("channel", ["slack", "teams"])
def test_a_test_sends_one_example_digest_and_changes_nothing(endpoint: Endpoint, channel: str) -> None:
    shop = with_targets(channel=channel, url=f"{endpoint.url}/x")
    count = len(shop.published)
    result = answer_of_test(shop, "sales")
    assert (result["delivered"], result["status"], result["reason"], result["message"]) == (True, 200, None, None)
    [request] = endpoint.requests
    assert request.headers["content-type"].startswith("application/json")
    assert "webhook-signature" not in request.headers
    body = request.body.decode()
    assert all(text in body for text in ("[Test] VIPs", "vips", "1 entered", "1 exited", result["message_id"]))
    assert len(shop.published) == count


@pytest.mark.parametrize(
    ("status", "advice"),
    [(404, "disable"), (410, "disable"), (429, "part of the next"), (500, "part of the next"), (400, "dropped")],
)
def test_a_test_explains_the_answer(endpoint: Endpoint, status: int, advice: str) -> None:
    endpoint.respond = answering(status, b"no_service")
    result = answer_of_test(with_targets(url=f"{endpoint.url}/x"), "sales")
    assert (result["delivered"], result["status"], result["answer"], result["reason"]) == (False, status, "no_service", "status")
    assert advice in result["message"]


def test_a_test_of_kafka_checks_the_topic() -> None:
    asked: list[Mapping[str, Any]] = []

    def check(target: Mapping[str, Any]) -> int:
        asked.append(target)
        if len(asked) > 1:
            raise TopicUnusable("topic_missing", "there is no topic 'audience.changes' in the cluster: create it")
        return 8

    shop = with_targets()
    found = answer_of_test(shop, "warehouse", check)
    assert (found["delivered"], found["reason"], found["answer"]) == (True, None, "the topic audience.changes has 8 partitions")
    missing = answer_of_test(shop, "warehouse", check)
    assert (missing["delivered"], missing["reason"]) == (False, "topic_missing")
    assert "create it" in missing["message"]
    assert [target["topic"] for target in asked] == ["audience.changes"] * 2
