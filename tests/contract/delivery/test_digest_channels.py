"""The channels of digests against a real endpoint: the contract of feeds, and what each answer means."""

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from starling_campaigns.digests.digest import Digest
from starling_campaigns.digests.slack import slack_message
from starling_campaigns.digests.teams import teams_message
from starling_common.http.outbound.sessions import GuardedSession
from starling_delivery.channel import Again, Answer, Channel, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.channels.digests import DigestChannel
from starling_delivery.channels.http import Http1Client
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.contract.delivery.feed_contract import FeedContract

DEADLINE_SECONDS = 2.0


def body_of(channel: str, digest_id: str) -> str:
    digest = Digest()
    digest.add({"segment_key": "vips", "segment_name": "VIPs", "status": "ENTERED", "user_id": "ada"}, 1_772_357_400_000)
    return {"slack": slack_message, "teams": teams_message}[channel](digest, "VIPs", digest_id)


def id_of(channel: str, body: bytes) -> str:
    """The idempotency key of a message: of a digest the id of its last block, of any other body of the contract its event id."""
    message: Any = json.loads(body)
    if "data" in message:
        return str(message["data"]["event_id"])
    if channel == "slack":
        return str(message["blocks"][-1]["block_id"])
    return str(message["attachments"][0]["content"]["body"][-1]["id"])


class OfDigests(FeedContract):
    name: ClassVar[str]
    endpoint: Endpoint

    @pytest.fixture(autouse=True)
    def _endpoint(self) -> Iterator[None]:
        self.endpoint = Endpoint()
        yield
        self.endpoint.close()

    def open(self, *, allow_private: bool = True) -> Channel:
        session = GuardedSession(lookup_seconds=DEADLINE_SECONDS, connections=16, allow_private=allow_private)
        return DigestChannel(self.name, Http1Client(session, allow_private=allow_private), DEADLINE_SECONDS)

    def open_broken(self) -> Channel:
        self.endpoint.close()
        return self.open()

    def message(self, delivery_id: str = "d1") -> Message:
        body = body_of(self.name, f"m-{delivery_id}")
        return Message("default", "", delivery_id, f"m-{delivery_id}", "sales", f"{self.endpoint.url}/services/x", body, 1)

    def received(self) -> list[str]:
        return [id_of(self.name, request.body) for request in self.endpoint.requests]

    def answer(self) -> Answer:
        [answer] = self.send(self.open, self.message())
        return answer

    @pytest.mark.parametrize(
        ("status", "headers", "expected"),
        [
            (200, {}, Delivered(200)),
            (202, {}, Delivered(202)),
            (400, {}, Impossible("the endpoint answered 400: no", 400)),
            (403, {}, Impossible("the endpoint answered 403: no", 403)),
            (302, {"Location": "http://127.0.0.1:9/"}, Impossible("the endpoint answered 302: no", 302)),
            (404, {}, Gone("the endpoint answered 404: no", 404)),
            (410, {}, Gone("the endpoint answered 410: no", 410)),
            (429, {"Retry_After": "7"}, Again("the endpoint answered 429: no", 429, 7.0)),
            (500, {}, Again("the endpoint answered 500: no", 500)),
            (503, {"Retry_After": "9999"}, Again("the endpoint answered 503: no", 503, 3600.0)),
        ],
    )
    def test_what_an_answer_means(self, status: int, headers: dict[str, str], expected: Answer) -> None:
        self.endpoint.respond = answering(status, b"no", **headers)
        assert self.answer() == expected
        assert len(self.endpoint.requests) == 1

    def test_a_lost_answer_is_unknown(self) -> None:
        self.endpoint.respond = self.endpoint.lose
        assert isinstance(self.answer(), Unknown)

    def test_a_late_answer_is_unknown(self) -> None:
        self.endpoint.respond = self.endpoint.hang
        assert isinstance(self.answer(), Unknown)

    def test_a_long_answer_is_not_read(self) -> None:
        self.endpoint.respond = self.endpoint.flood
        assert self.answer() == Delivered(200)
        assert self.endpoint.written_bytes < 100_000_000

    def test_no_connection_reaches_a_private_network(self) -> None:
        [answer] = self.send(lambda: self.open(allow_private=False), self.message())
        assert isinstance(answer, Impossible)
        assert self.endpoint.requests == []


class TestSlack(OfDigests):
    name = "slack"


class TestTeams(OfDigests):
    name = "teams"
