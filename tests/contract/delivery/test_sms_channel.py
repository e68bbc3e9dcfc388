"""The SMS channel, held to the contract of channels with a server that answers as Twilio does."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from starling_delivery.channel import Again, Answer, Bounced, Delivered, Impossible, Message, Unknown
from starling_delivery.channels.sms import SmsChannel, StatusCallbacks
from starling_delivery.policy import Schedule, after_message
from starling_messages.links import Links
from starling_policy import address_digest
from tests.contract.delivery.channel_contract import HttpChannelContract
from tests.contract.delivery.endpoint import answering
from tests.unit.delivery.messages import mail_request

QUEUED = json.dumps({"sid": "SM0123456789", "status": "queued"}).encode()


def refused(status: int, code: int) -> Callable[[Any], None]:
    body = {"code": code, "message": "Refused\nfor a reason", "more_info": "https://example.com", "status": status}
    return answering(status, json.dumps(body).encode(), Content_Type="application/json")


class TestSms(HttpChannelContract):
    channel = SmsChannel

    def target(self) -> Mapping[str, Any]:
        return {"base_url": f"{self.endpoint.url}/twilio/", "account_sid": "AC1", "auth_token": "tökén:1", "from": "+15005550006"}

    def taken(self) -> Callable[[Any], None]:
        return answering(201, QUEUED, Content_Type="application/json")

    def message(self, delivery_id: str = "d1x", text: str = "Hello") -> Message:
        return self.rendered(delivery_id, {"text": text}, address="+4915112345678")

    def received(self) -> list[str]:
        return [self.form(n)["Body"][0] for n in range(len(self.endpoint.requests))]

    def form(self, number: int) -> dict[str, list[str]]:
        return parse_qs(self.endpoint.requests[number].body.decode(), strict_parsing=True)

    def test_the_request_is_that_of_the_api_of_twilio(self) -> None:
        text = "10 € off & more: +1\n¡Olé! 🐦"
        assert self.send(self.open, self.message(text=text)) == [Delivered(201)]
        [request] = self.endpoint.requests
        assert request.path == "/twilio/2010-04-01/Accounts/AC1/Messages.json"
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"
        assert base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode() == "AC1:tökén:1"
        assert self.form(0) == {"To": ["+4915112345678"], "From": ["+15005550006"], "Body": [text]}

    def test_the_provider_is_asked_to_report_to_the_tracker_what_becomes_of_a_message(self) -> None:
        links = Links({"k": b"k" * 32})

        def opened() -> SmsChannel:
            channel = self.open()
            assert isinstance(channel, SmsChannel)
            channel.callbacks = StatusCallbacks("https://links.example.com", links)
            return channel

        message = replace(self.message(), campaign="news", purpose="marketing")
        assert self.send(opened, message, replace(message, is_test=True)) == [Delivered(201)] * 2
        addresses = sorted(self.form(number)["StatusCallback"][0] for number in range(2))
        begin = f"https://links.example.com/p/{message.workspace}/{message.target_key}?starling="
        assert addresses[1] == f"{begin}test"
        found = links.read_callback(addresses[0].removeprefix(begin))
        assert found is not None
        assert (found.link.delivery_id, found.link.channel, found.link.campaign) == (message.delivery_id, "sms", "news")
        assert found.digest == address_digest(message.address)
        assert "/p/a%2Fb/" in StatusCallbacks("https://links.example.com", links).url(replace(message, workspace="a/b"))

    @pytest.mark.parametrize("code", [21211, 21214, 21612, 21614, 21617])
    def test_what_concerns_the_number_or_the_text_is_impossible(self, code: int) -> None:
        assert self.answer_to(refused(400, code)) == Impossible(f"{code} Refused for a reason", 400)

    def test_stop_suppresses_the_number(self) -> None:
        answer = self.answer_to(refused(400, 21610))
        assert answer == Bounced("21610 Refused for a reason", 400, by_person=True)
        step = after_message(mail_request(channel="sms"), answer, Schedule((5.0,), 3600.0), 0, 0.0)
        assert (step.outcome, step.suppress) == ("BOUNCED", "stop")

    @pytest.mark.parametrize(
        ("status", "code", "answer"),
        [
            pytest.param(401, 20003, Again("20003 Refused for a reason", 401), id="credentials"),
            pytest.param(404, 20404, Again("20404 Refused for a reason", 404), id="account"),
            pytest.param(400, 21606, Again("21606 Refused for a reason", 400, is_of_target=False), id="sender"),
            pytest.param(400, 21611, Again("21611 Refused for a reason", 429), id="full queue"),
            pytest.param(503, 20503, Again("20503 Refused for a reason", 503), id="not taken"),
            pytest.param(500, 20500, Unknown("20500 Refused for a reason"), id="maybe taken"),
        ],
    )
    def test_what_another_attempt_may_change(self, status: int, code: int, answer: Answer) -> None:
        assert self.answer_to(refused(status, code)) == answer

    def test_ten_segments_are_sent_and_eleven_are_not(self) -> None:
        ten = self.message("ten7x", "a" * 153 * 10)
        eleven = self.message("eleven7x", "a" * (153 * 10 + 1))
        assert self.send(self.open, ten, eleven) == [Delivered(201), Impossible("the SMS has 11 segments: at most 10")]
        assert len(self.endpoint.requests) == 1

    def test_a_message_of_an_archived_target_is_not_sent(self) -> None:
        assert self.send(self.open, replace(self.message(), target_key="gone")) == [Impossible("target_archived")]
        assert self.endpoint.requests == []
