"""The example change of a test call has the form of the webhook's messages and is marked as a test."""

import json
from typing import Any

import pytest

from starling_api.webhooks.example import Request, example_request
from starling_common.records.membership_json import membership_json
from tests.unit.delivery.making import SECRET, change
from tests.unit.ingest.rig import Edge

NOW_MS = 1_772_357_400_000


def example(**document: Any) -> Request:
    return example_request("acme", {"url": "https://shop.example/hook", "secret": SECRET, **document}, "7", NOW_MS)


def test_the_example_has_the_fields_of_a_change_and_another_type() -> None:
    request = example(segments=["vip", "new"], headers={"X-Team": "a"})
    body = json.loads(request.body)
    assert (body["type"], body["timestamp"]) == ("webhook.test", "2026-03-01T09:30:00.000Z")
    assert body["data"].keys() == membership_json(change()).keys()
    assert (body["data"]["workspace"], body["data"]["segment_key"], body["data"]["event_id"]) == ("acme", "vip", "test-7")
    assert request[:4] == ("https://shop.example/hook", {"X-Team": "a"}, (SECRET,), "test-7")


def test_the_example_of_a_webhook_with_batches_is_a_batch() -> None:
    body = json.loads(example(batch={"max_items": 10, "max_wait_ms": 0}).body)
    assert (body["type"], [one["type"] for one in body["data"]]) == ("segment.changes", ["webhook.test"])


@pytest.mark.parametrize("format_", ["segment-track", "segment-identify"])
@pytest.mark.parametrize("batch", [None, {"max_items": 10, "max_wait_ms": 0}])
def test_the_edge_accepts_the_example_of_a_call(format_: str, batch: dict[str, int] | None) -> None:
    edge, kind = Edge().open(), format_.removeprefix("segment-")
    request = example(format=format_, batch=batch)
    answer = edge.ask("POST", "/v1/batch" if batch else f"/v1/{kind}", json.loads(request.body))
    assert (answer.status, answer.json()["success"]) == (200, True)
    [received] = edge.received()
    assert (received["kind"], received["user_id"], received["message_id"]) == (kind, "starling-webhook-test", "test-7")


@pytest.mark.parametrize(("until_ms", "secrets"), [(NOW_MS + 1, (SECRET, "whsec_old")), (NOW_MS, (SECRET,))])
def test_the_previous_secret_signs_until_its_end(until_ms: int, secrets: tuple[str, ...]) -> None:
    assert example(previous_secret="whsec_old", previous_secret_until_ms=until_ms).secrets == secrets
