"""The real process of the channels of campaigns, with the real broker, sends notifications to a push service, FCM and APNs."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from starling_common.time.instants import wall_clock_ms
from tests.campaign_documents import campaign
from tests.conftest import Stack
from tests.contract.delivery.endpoint import answering
from tests.contract.delivery.push_services import (
    APP,
    KEY_ID,
    PROJECT,
    TEAM,
    Browser,
    Certificates,
    FakeApns,
    FakeGoogle,
    TlsEndpoint,
    fcm_error,
    pem,
    raw_key,
)
from tests.integration.delivery.mail_world import MailWorld
from tests.integration.delivery.world import wait_for

ANDROID, IPHONE = "dGVzdA:APA91b" + "x" * 130, "0a" * 32


@pytest.fixture
def world(stack: Stack) -> Iterator[MailWorld]:
    made = MailWorld(stack, f"push{uuid.uuid4().hex[:10]}")
    topics = made.make_topics()
    yield made
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for pending in admin.delete_topics(topics).values():
        pending.result()


def pushing(target: str) -> dict[str, Any]:
    """A campaign that pushes through a target."""
    content = {"title": "Hello {{ traits.name }}", "body": "News", "url": "https://shop.example/{{ user_id }}"}
    return campaign("push", key=f"by-{target}", target=target, variants=[{"key": "a", "weight": 100, "content": content}])


def test_browsers_and_phones_get_notifications_and_those_that_are_gone_bounce(world: MailWorld, tmp_path: Path) -> None:
    certificates, browser = Certificates(tmp_path), Browser()
    ec_key, rsa_key = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65_537, 2_048)
    service, google = TlsEndpoint(certificates), FakeGoogle(certificates, rsa_key.public_key())
    apns = FakeApns(certificates, ec_key.public_key())
    service.respond = lambda handler: answering(410 if handler.path == "/gone" else 201)(handler)
    apns.answers["0b" * 32] = 400, "BadDeviceToken"
    world.define("target", {"key": "web", "channel": "webpush", "subject": "mailto:a@b.example", "private_key": raw_key(ec_key)})
    account = {"project_id": PROJECT, "client_email": f"sender@{PROJECT}.example", "private_key": pem(rsa_key)}
    world.define("target", {"key": "app", "channel": "fcm", **account})
    apple = {"team_id": TEAM, "key_id": KEY_ID, "topic": APP, "environment": "production", "private_key": pem(ec_key)}
    world.define("target", {"key": "ios", "channel": "apns", **apple})
    for target in ("web", "app", "ios"):
        world.define("campaign", pushing(target), "ACTIVATED")

    def ask(user: str, target: str, address: str) -> None:
        world.ask([user], "push", address=address, device=address, campaign=f"by-{target}", expires_at=wall_clock_ms() + 600_000)

    ask("ada", "web", browser.subscription(f"{service.url}/1"))
    ask("gone", "web", browser.subscription(f"{service.url}/gone"))
    ask("grace", "app", ANDROID)
    ask("ina", "ios", IPHONE)
    ask("bad", "ios", "0b" * 32)
    settings = {
        "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
        "STARLING_CHANNELS": '["push"]',
        "STARLING_PUSH__CA_FILE": certificates.ca_file,
        "STARLING_PUSH__FCM_URL": google.url,
        "STARLING_PUSH__FCM_TOKEN_URL": f"{google.url}/token",
        "STARLING_PUSH__APNS_URL": apns.url,
    }
    try:
        with world.process(**settings):
            wait_for(lambda: len(world.outcomes()) == 5 and all(len(found) == 2 for found in world.outcomes().values()))
            google.of_message = fcm_error(404, "NOT_FOUND", "Requested entity was not found.", "UNREGISTERED")
            ask("left", "app", ANDROID)
            wait_for(lambda: len(world.outcomes("left").get("left", [])) == 2)
    finally:
        for server in (service, google, apns):
            server.close()
    sent, bounced = ["SENDING", "SENT"], ["SENDING", "BOUNCED"]
    assert world.outcomes() == {"ada": sent, "grace": sent, "ina": sent, "gone": bounced, "bad": bounced, "left": bounced}
    assert world.records("suppressions") == []
    assert world.records("dead_letter") == []
    [first] = [request for request in service.requests if request.path == "/1"]
    payload = json.loads(browser.decrypted(first.body))
    assert (payload["title"], payload["url"]) == ("Hello Ada", "https://shop.example/ada")
    assert json.loads(google.messages[0].body)["message"]["notification"]["title"] == "Hello Grace"
    assert {json.loads(request.body)["aps"]["alert"]["title"] for request in apns.requests} == {"Hello Ina", "Hello Bad"}
