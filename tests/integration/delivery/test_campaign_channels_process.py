"""The real process of the channels of campaigns, with the real broker and a server for each channel."""

import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest
from confluent_kafka.admin import AdminClient
from standardwebhooks.webhooks import Webhook

from starling_policy import address_digest
from tests.campaign_documents import campaign
from tests.conftest import Stack
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.integration.delivery.mail_world import MailWorld
from tests.integration.delivery.smtp_sink import SmtpSink
from tests.integration.delivery.world import wait_for
from tests.unit.delivery.making import SECRET

PRIVATE = {"STARLING_ALLOW_PRIVATE_ADDRESSES": "true"}


@pytest.fixture
def world(stack: Stack) -> Iterator[MailWorld]:
    made = MailWorld(stack, f"channels{uuid.uuid4().hex[:10]}")
    topics = made.make_topics()
    yield made
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for pending in admin.delete_topics(topics).values():
        pending.result()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def one_variant(channel: str, target: str, **content: str) -> dict[str, Any]:
    """The document of a campaign with one variant."""
    return campaign(channel, key=f"by-{channel}", target=target, variants=[{"key": "a", "weight": 100, "content": content}])


def test_sms_and_mails_of_one_process(world: MailWorld, endpoint: Endpoint) -> None:
    sink = SmtpSink()
    stopped = "+4915100000001"
    refusal = json.dumps({"code": 21610, "message": "unsubscribed", "status": 400}).encode()
    taken = answering(201, b'{"sid": "SM1"}')

    def respond(handler: Any) -> None:
        form = parse_qs(endpoint.requests[-1].body.decode())
        (answering(400, refusal) if form["To"] == [stopped] else taken)(handler)

    endpoint.respond = respond
    world.define_all(sink.port)
    world.define(
        "target",
        {"key": "texts", "channel": "sms", "base_url": endpoint.url, "account_sid": "AC1", "auth_token": "t", "from": "Shop"},
    )
    world.define("campaign", one_variant("sms", "texts", text="Hello {{ traits.name }}"), "ACTIVATED")
    try:
        world.ask(["grace"])
        world.ask(["ada"], "sms", address="+4915112345678", campaign="by-sms")
        world.ask(["sue"], "sms", address=stopped, campaign="by-sms")
        with world.process(**PRIVATE):
            wait_for(lambda: len(world.outcomes()) == 3 and all(len(found) == 2 for found in world.outcomes().values()))
            world.ask(["sue"], "sms", address=stopped, campaign="by-sms", delivery_id="another")
            wait_for(lambda: len(world.outcomes("sue")["sue"]) == 3)
    finally:
        sink.close()
    assert world.outcomes() == {
        "grace": ["SENDING", "SENT"],
        "ada": ["SENDING", "SENT"],
        "sue": ["SENDING", "BOUNCED", "SUPPRESSED suppressed"],
    }
    bodies = [parse_qs(request.body.decode())["Body"] for request in endpoint.requests]
    assert sorted(bodies) == [["Hello Ada"], ["Hello Sue"]]
    assert len(sink.mails) == 1
    [suppressed] = world.records("suppressions")
    assert (suppressed["channel"], suppressed["digest"]) == ("sms", address_digest(stopped))


def test_a_webhook_of_a_campaign_arrives_signed_also_after_a_retry(world: MailWorld, endpoint: Endpoint) -> None:
    def respond(handler: Any) -> None:
        answering(503 if len(endpoint.requests) == 1 else 204, b"")(handler)

    endpoint.respond = respond
    world.define("target", {"key": "hook", "channel": "webhook", "url": f"{endpoint.url}/campaigns", "secret": SECRET})
    body = '{"user": {{ user_id|tojson }}}'
    world.define("campaign", one_variant("webhook", "hook", body=body), "ACTIVATED")
    world.ask(["ada"], "webhook", address="", campaign="by-webhook")
    with world.process(**PRIVATE):
        wait_for(lambda: world.outcomes() == {"ada": ["RETRYING", "DELIVERED"]})
    assert len(endpoint.requests) == 2
    for request in endpoint.requests:
        assert Webhook(SECRET).verify(request.body, dict(request.headers)) == {"user": "ada"}
        assert request.headers["webhook-id"] == "delivery-of-ada"


@pytest.mark.long
def test_a_410_disables_the_target_until_it_is_enabled(world: MailWorld, endpoint: Endpoint) -> None:
    def respond(handler: Any) -> None:
        answering(410 if len(endpoint.requests) == 1 else 204, b"")(handler)

    endpoint.respond = respond
    hook = {"key": "hook", "channel": "webhook", "url": f"{endpoint.url}/campaigns", "secret": SECRET}
    world.define("target", hook)
    world.define("campaign", one_variant("webhook", "hook", body="{}"), "ACTIVATED")
    world.ask(["ada"], "webhook", address="", campaign="by-webhook")
    with world.process(**PRIVATE):
        wait_for(lambda: world.outcomes() == {"ada": ["FAILED the endpoint answered 410 Gone"]})
        world.ask(["bob"], "webhook", address="", campaign="by-webhook")
        wait_for(lambda: world.outcomes("bob") == {"bob": ["FAILED target_disabled"]})
        assert len(endpoint.requests) == 1
        world.define("target", hook, "REVISED")
        wait_for(lambda: _is_delivered(world))
    with world.process(**PRIVATE):  # the definitions are read again, the disabled one among them
        world.ask(["eve"], "webhook", address="", campaign="by-webhook")
        wait_for(lambda: world.outcomes("eve") == {"eve": ["DELIVERED"]})
    [disabled] = [record for record in world.records("definitions") if record["action"] == "DISABLED"]
    assert (disabled["kind"], disabled["key"], disabled["version"], disabled["actor"]) == ("target", "hook", 1, "delivery")
    assert json.loads(disabled["document"]) == {
        **hook, "disabled": True, "disabled_because": "the endpoint answered 410 Gone",
    }  # fmt: skip
    [letter] = world.records("dead_letter")
    assert "410 Gone" in letter["message"]


def _is_delivered(world: MailWorld) -> bool:
    """Request a message, and return whether one was delivered: the process may not have read the new definition yet."""
    user = f"user-{uuid.uuid4().hex}"
    world.ask([user], "webhook", address="", campaign="by-webhook")
    wait_for(lambda: user in world.outcomes(user))
    return world.outcomes(user)[user] == ["DELIVERED"]
