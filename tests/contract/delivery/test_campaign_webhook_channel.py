"""The webhook channel of campaigns, held to the contract of channels, with the verification of the published library."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.channels.campaign_webhook import CampaignWebhookChannel, body_of
from starling_delivery.policy import Schedule, after_repeatable
from tests.contract.delivery.channel_contract import HttpChannelContract
from tests.contract.delivery.endpoint import answering
from tests.unit.delivery.making import SECRET
from tests.unit.delivery.messages import mail_request


class TestCampaignWebhook(HttpChannelContract):
    channel = CampaignWebhookChannel
    uses_addresses = False

    def target(self) -> Mapping[str, Any]:
        return {"url": f"{self.endpoint.url}/hook?shop=1", "secret": SECRET}

    def message(self, delivery_id: str = "d1x", text: str = "Hello") -> Message:
        return self.rendered(delivery_id, {"body": text})

    def test_the_body_is_signed_and_the_id_is_that_of_the_message_at_every_attempt(self) -> None:
        message = self.message(text='{"greeting": "Hello Zoë"}')
        self.send(self.open, message)
        self.send(self.open, message)
        assert [request.path for request in self.endpoint.requests] == ["/hook?shop=1"] * 2
        for request in self.endpoint.requests:
            assert request.headers["webhook-id"] == message.delivery_id
            assert request.headers["content-type"] == "application/json"
            assert Webhook(SECRET).verify(request.body, dict(request.headers)) == {"greeting": "Hello Zoë"}

    def test_a_body_that_is_no_json_is_text(self) -> None:
        self.send(self.open, self.message(text="Hello"))
        assert self.endpoint.requests[0].headers["content-type"] == "text/plain; charset=utf-8"

    def test_a_test_is_marked(self) -> None:
        self.send(self.open, self.message(), replace(self.message(), is_test=True))
        assert sorted(request.headers.get("starling-test", "") for request in self.endpoint.requests) == ["", "true"]

    def test_410_is_gone(self) -> None:
        assert self.answer_to(answering(410)) == Gone("the endpoint answered 410 Gone", 410)

    @pytest.mark.parametrize("status", [302, 400, 404, 500, 503])
    def test_any_other_answer_is_tried_again(self, status: int) -> None:
        assert self.answer_to(answering(status)) == Again(f"the endpoint answered {status}", status)

    def test_a_message_of_an_archived_target_is_not_sent(self) -> None:
        assert self.send(self.open, replace(self.message(), target_key="gone")) == [Impossible("target_archived")]


@pytest.mark.parametrize(
    ("kind", "rendered", "body"),
    [
        ("standard", '{"a": 1}', '{"a": 1}'),
        (None, "plain", "plain"),
        ("segment-track", '{"a": 1}', {"type": "track", "event": "Campaign Message", "properties": {"a": 1}}),
        ("segment-track", "[1]", {"type": "track", "event": "Campaign Message", "properties": {"body": "[1]"}}),
        ("segment-identify", '{"a": 1}', {"type": "identify", "traits": {"a": 1}}),
    ],
)
def test_the_body_by_the_format_of_the_target(kind: str | None, rendered: str, body: Any) -> None:
    message = Message("default", "ada", "d1", "d1", "main", "", "", 1, {"body": rendered}, campaign="welcome")
    found = body_of(message, kind)
    if isinstance(body, str):
        assert found == body
        return
    common = {"messageId": "d1", "userId": "ada", "context": json.loads(found)["context"]}
    assert json.loads(found) == body | common
    assert common["context"]["campaign"] == {"name": "welcome"}


@pytest.mark.parametrize(
    ("answer", "outcome", "is_retried"),
    [
        (Delivered(204), "DELIVERED", False),
        (Unknown("lost"), "RETRYING", True),
        (Again("busy", 503), "RETRYING", True),
        (Gone("gone", 410), "FAILED", False),
    ],
)
def test_what_becomes_of_a_message_that_may_arrive_again(answer: Answer, outcome: str, is_retried: bool) -> None:
    step = after_repeatable(mail_request(channel="webhook"), answer, Schedule((5.0,), 3600.0), 0, 0.0)
    assert (step.outcome, step.retry is not None) == (outcome, is_retried)
    assert (step.disable, step.dead) == ((True, "gone") if isinstance(answer, Gone) else (False, None))
