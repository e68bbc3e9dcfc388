"""The inputs of a channel: which messages are bulk, and wait for others."""

import json
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import Message

from starling_common.wire import Record
from starling_delivery.agents import RetryInput
from starling_delivery.messages.inputs import MessageRetryInput, RequestInput
from tests.unit.delivery.messages import definition, definitions, mail_campaign, mail_request

BROADCAST = mail_campaign(key="sale", trigger={"broadcast": "vips", "at": "2026-12-01T09:00:00Z"})


@dataclass
class Found:
    """A message as the Kafka client returns it."""

    read_from: str
    request: dict[str, Any]

    def topic(self) -> str:
        return self.read_from

    def value(self) -> bytes:
        return json.dumps(self.request).encode()


def decode(data: bytes) -> Record:
    found: Record = json.loads(data)
    return found


@pytest.mark.parametrize(("topic", "is_bulk"), [("delivery.requests.email", False), ("delivery.bulk.email", True)])
def test_requests_of_the_bulk_topic_are_bulk_and_test_messages_of_a_broadcast_are_not(topic: str, is_bulk: bool) -> None:
    source = RequestInput(
        [], decode, {"email"}, definitions(definition("campaign", BROADCAST, "ACTIVATED")), {"delivery.bulk.email"}
    )
    [due] = source.requests(cast("Message", Found(topic, mail_request(campaign="sale"))))
    assert due.bulk is is_bulk
    assert source.requests(cast("Message", Found(topic, mail_request(channel="sms")))) == []


def test_retries_of_a_broadcast_are_bulk() -> None:
    known = definitions(definition("campaign", BROADCAST, "ACTIVATED"), definition("campaign", mail_campaign(), "ACTIVATED"))
    source = MessageRetryInput(RetryInput([], decode, lambda _request: True, {"delivery.retry.5s": 0}, lambda _tier: 0), known)
    for campaign, is_bulk in (("sale", True), ("win-back", False), ("unknown", False), (None, False)):
        [due] = source.requests(cast("Message", Found("delivery.retry.5s", mail_request(campaign=campaign))))
        assert (due.bulk, due.tier) == (is_bulk, 0)
