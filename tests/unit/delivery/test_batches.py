"""A batch has the bodies of its changes unchanged, an id of its own, and one change cannot hold up the others."""

import json
from typing import Any

import pytest

from starling_delivery.batches import after_batch, batch_message, is_refusal
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible
from starling_delivery.policy import requests_for
from starling_delivery.targets import Batching
from tests.unit.delivery.making import change, definition, request, targets
from tests.unit.ingest.rig import Edge


def requests(users: str = "abc", **document: Any) -> list[dict[str, Any]]:
    known = targets(definition(**document))
    return [requests_for(change(user), known, "webhook", 0)[0] for user in users]


def test_a_batch_has_the_bodies_of_its_changes_and_their_latest_time() -> None:
    made = requests()
    late = json.loads(made[1]["payload"]) | {"timestamp": "2026-01-01T00:00:00.000Z"}
    made[1]["payload"] = json.dumps(late)
    body = json.loads(batch_message(made).payload)
    assert body == {
        "type": "segment.changes",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "data": [json.loads(one["payload"]) for one in made],
    }
    assert [one["data"]["event_id"] for one in body["data"]] == [change(user)["event_id"] for user in "abc"]


def test_one_change_of_a_webhook_with_batches_has_the_same_form() -> None:
    made = requests("a")
    body = json.loads(batch_message(made).payload)
    assert (body["type"], body["data"]) == ("segment.changes", [json.loads(made[0]["payload"])])


def test_the_same_changes_in_the_same_order_have_the_same_id_and_body() -> None:
    first, again = batch_message(requests()), batch_message([one | {"attempt": 7, "not_before": 9} for one in requests()])
    assert (first.message_id, first.payload) == (again.message_id, again.payload)
    others = [batch_message(requests("acb")), batch_message(requests("ab")), batch_message(requests(key="other"))]
    assert len({first.message_id, *(one.message_id for one in others)}) == 4


@pytest.mark.parametrize(("name", "kind"), [("segment-track", "track"), ("segment-identify", "identify")])
def test_the_edge_accepts_a_batch_of_calls(name: str, kind: str) -> None:
    edge = Edge().open()
    answer = edge.ask("POST", "/v1/batch", json.loads(batch_message(requests(format=name)).payload))
    assert (answer.status, answer.json()["success"]) == (200, True)
    received = edge.received()
    assert [(one["kind"], one["user_id"], one["message_id"]) for one in received] == [
        (kind, user, change(user)["event_id"]) for user in "abc"
    ]


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (Again("", 400), True), (Again("", 413), True), (Again("", 422), True), (Again("", 499), True),
        (Again("", 408), False), (Again("", 425), False), (Again("", 429, 3.0), False), (Again("", 500), False),
        (Again("", 302), False), (Again("no answer"), False), (Delivered(200), False), (Gone("", 410), False),
        (Impossible("a private network"), False),
    ],
)  # fmt: skip
def test_a_client_error_may_be_about_one_change(answer: Answer, refusal: bool) -> None:
    assert is_refusal(answer) is refusal


@pytest.mark.parametrize(
    ("answer", "before", "size", "after"),
    [
        (Again("", 503), None, 100, 25), (Again("", 503), 25, 25, 6), (Again("", 503), 6, 6, 1), (Again("", 503), 1, 1, 1),
        (Again("no answer"), None, 8, 2), (Again("", 503), 3, 100, 3), (Again("", 400), None, 1, 1),
        (Again("", 429, 5.0), None, 100, None), (Again("", 408), 25, 25, 25), (Delivered(200), None, 100, None),
    ],
)  # fmt: skip
def test_a_change_is_alone_after_at_most_four_failures(answer: Answer, before: int | None, size: int, after: int | None) -> None:
    assert after_batch(request(batch_limit=before), answer, size)["batch_limit"] == after


def test_a_stored_batch_is_kept_within_the_limits_of_the_release() -> None:
    [target] = targets(definition(batch={"max_items": 1_000_000, "max_wait_ms": 3_600_000})).of("default")
    assert target.batching == Batching(100, 1000)
    with pytest.raises(ValueError, match="webhook default/hook: 'max_wait_ms' is missing"):
        targets(definition(batch={"max_items": 5}))
