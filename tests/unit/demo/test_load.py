"""The purchases arrive in order, also if the edge refuses a batch for the moment."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from starling_demo.dataset import Purchase
from starling_demo.load import LoadFailed, send_purchases
from tests.contract.delivery.endpoint import Endpoint, answering

COUNT = 250


@pytest.fixture
def edge() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def purchases() -> list[Purchase]:
    return [Purchase(line, f"u{line % 30}", 883_612_800_000 + line, 1, 9.5) for line in range(COUNT)]


def test_a_batch_that_is_refused_for_the_moment_arrives_before_the_next_one(edge: Endpoint) -> None:
    accepted: list[str] = []

    def respond(handler: BaseHTTPRequestHandler) -> None:
        if len(edge.requests) == 1:
            answering(503, Retry_After="0")(handler)
            return
        batch = json.loads(edge.requests[-1].body)["batch"]
        accepted.extend(item["messageId"] for item in batch if item["type"] == "track")
        answering(200)(handler)

    edge.respond = respond
    sent: list[int] = []
    send_purchases(edge.url, "key", purchases(), sent.append)
    assert accepted == [f"cdnow-{line}" for line in range(COUNT)]
    assert (sent[-1], len(edge.requests)) == (COUNT, 4)


def test_a_refusal_that_lasts_is_reported_at_once(edge: Endpoint) -> None:
    edge.respond = answering(401, b'{"code":"unauthorized","message":"the write key is unknown"}')
    with pytest.raises(LoadFailed, match="the write key is unknown"):
        send_purchases(edge.url, "key", purchases(), lambda _: None)
    assert len(edge.requests) == 1
