"""Computed traits on the whole platform: what is published, folded into profiles and asked for in segments."""

from typing import Any

from starling_cli.stream_clock import StreamClock, parse_point
from starling_local.stack.parts.jvm_registry import registry_url
from tests.system.conftest import Platform
from tests.system.live import members

BIG_SPENDERS = {"key": "big-spenders", "name": "Big spenders", "where": {"trait": "computed.spent_30d", "op": "gte", "value": 100}}
SPENT_30D = {"key": "spent_30d", "name": "Spent", "event": "buy", "measure": {"sum": "amount"}, "within": "30d"}
REFUNDS = {"key": "refunds", "name": "Refunds", "event": "refund"}


def define(platform: Platform, path: str, document: dict[str, Any]) -> None:
    answer = platform.api.post(path, json=document)
    assert answer.status_code == 201, answer.text


def track(platform: Platform, event: str, day: str, **properties: Any) -> None:
    item = {"userId": "a", "event": event, "timestamp": f"{day}T00:00:00Z", "properties": properties}
    assert platform.ingest.post("/v1/track", json=item).status_code == 200


def advance(platform: Platform, day: str) -> None:
    options = platform.instance.options()
    StreamClock(options.ports.address("kafka"), registry_url(options.ports)).advance(parse_point(f"{day}T00:00:00Z"))


def computed(platform: Platform) -> dict[str, Any]:
    answer = platform.api.get("/v1/users/a")
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()["traits"].get("computed", {})
    return values


def test_a_value_that_ends_while_another_trait_is_added_leaves_the_profile(history: Platform) -> None:
    define(history, "/v1/computed-traits", SPENT_30D)
    define(history, "/v1/segments", BIG_SPENDERS)
    track(history, "buy", "2024-01-01", amount=100)
    history.settle()
    assert (computed(history), members(history, "big-spenders")) == ({"spent_30d": 100}, {"a"})

    define(history, "/v1/computed-traits", REFUNDS)
    track(history, "seen", "2024-02-15")
    history.settle()
    advance(history, "2024-04-15")
    history.settle()
    assert (computed(history), members(history, "big-spenders")) == ({}, set())
