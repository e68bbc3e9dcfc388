"""The tracker as a process on a real broker: what waits for it, what does not, and what a stop leaves behind."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from starling_cli.dead_letters import DeadLetters, ReplayFailed
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import CONSENT, DELIVERY, DELIVERY_DEFINITIONS, SUPPRESSIONS
from starling_common.security.sealing import Place, Sealer, new_key, parse_keys
from starling_common.testing import Service, eventually, running
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_messages.links import Callback, Link, LinkKind, Links
from starling_policy import address_digest
from tests.conftest import Stack
from tests.unit.delivery.messages import definition, smtp_target
from tests.unit.tracker.providers import (
    DIGEST,
    PUBLIC_KEY,
    SECRET,
    notification,
    sendgrid_event,
    sendgrid_headers,
    twilio_signature,
)

LINK_KEYS, OTHER_KEYS, SECRET_KEYS = new_key("a"), new_key("b"), new_key("s")
LINKS = Links(parse_keys(LINK_KEYS, "test"))
URL = "https://shop.example.com/offer"
DEAD_LETTERS = "tracker.dlq"


@contextmanager
def tracker(stack: Stack, home: Path, **more: str) -> Iterator[Service]:
    ready = more.pop("ready", "true") == "true"
    own = {"STARLING_LINKS__KEYS": LINK_KEYS, "STARLING_SECRETS__KEYS": SECRET_KEYS}
    with running("starling_tracker", stack.environment() | own | more, home / "tracker.log", ready=ready) as service:
        yield service


def link(workspace: str, **more: str) -> Link:
    return Link(workspace, "ada", "d-1", "email", "mails", "win-back", "marketing", **more)


def mark(workspace: str, target: str = "mails", channel: str = "email") -> str:
    return LINKS.callback_token(Callback(link(workspace)._replace(target_key=target, channel=channel), DIGEST))


def written(stack: Stack, topic: str, workspace: str, schema: str) -> list[Mapping[str, Any]]:
    """Return the records of a workspace on a topic."""
    codec = Registry(stack.registry_url).codec(topic, schema)
    found = [codec.decode(message.value() or b"") for message in read_topic(stack.brokers, topic)]
    return [record for record in found if record["workspace"] == workspace]


def define(stack: Stack, workspace: str, *targets: Mapping[str, Any]) -> None:
    codec, producer = (
        Registry(stack.registry_url).codec(DELIVERY_DEFINITIONS, "DefinitionChanged"),
        Producer(producer_config(stack.brokers)),
    )
    for target in targets:
        record = definition("target", dict(target)) | {"workspace": workspace}
        key = record_key(workspace, target["key"])
        produce_and_wait(producer, DELIVERY_DEFINITIONS, key=key, value=codec.encode(record), headers=[])


@contextmanager
def unacknowledged(stack: Stack, *topics: str) -> Iterator[None]:
    """The broker takes no record of these topics: each is larger than they allow."""
    admin = AdminClient({"bootstrap.servers": stack.brokers})

    def limit(operation: AlterConfigOpType) -> None:
        for topic in topics:
            place = ConfigResource(ConfigResource.Type.TOPIC, topic)
            place.add_incremental_config(ConfigEntry("max.message.bytes", "1", incremental_operation=operation))
            admin.incremental_alter_configs([place])[place].result()

    limit(AlterConfigOpType.SET)
    try:
        yield
    finally:
        limit(AlterConfigOpType.DELETE)


def test_without_a_broker_clicks_lead_on_and_no_one_is_confirmed_to_be_unsubscribed(tmp_path: Path, workspace: str) -> None:
    nowhere = {"STARLING_KAFKA__BROKERS": "127.0.0.1:9", "STARLING_REGISTRY__URL": "http://127.0.0.1:9"}
    with running("starling_tracker", nowhere | {"STARLING_LINKS__KEYS": LINK_KEYS}, tmp_path / "log", ready=False) as service:
        eventually(partial(_answers, service))
        click = httpx.get(f"{service.url}/c/{LINKS.token(LinkKind.CLICK, link(workspace, url=URL))}", follow_redirects=False)
        assert (click.status_code, click.headers["location"]) == (302, URL)
        refusal = httpx.post(f"{service.url}/u/{LINKS.token(LinkKind.UNSUBSCRIBE, link(workspace))}")
        assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "5")
        assert "still subscribed" in refusal.text
        callback = httpx.post(f"{service.url}/p/{workspace}/mails", content=notification(mark(workspace)))
        assert callback.status_code == 503
        assert httpx.get(f"{service.url}/readyz").status_code == 503
        assert service.stop() == 0


def _answers(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_what_the_broker_does_not_acknowledge_is_503_and_clicks_lead_on(stack: Stack, tmp_path: Path, workspace: str) -> None:
    define(stack, workspace, smtp_target(key="mails", callbacks={"provider": "dsn", "secret": SECRET}))
    unsubscribe = f"/u/{LINKS.token(LinkKind.UNSUBSCRIBE, link(workspace))}"
    with tracker(stack, tmp_path) as service, httpx.Client(base_url=service.url, follow_redirects=False) as client:
        with unacknowledged(stack, CONSENT, DELIVERY):
            assert client.get(f"/c/{LINKS.token(LinkKind.CLICK, link(workspace, url=URL))}").status_code == 302
            assert client.post(unsubscribe).status_code == 503
            headers = {"Authorization": f"Bearer {SECRET}"}
            callback = client.post(f"/p/{workspace}/mails", content=notification(mark(workspace)), headers=headers)
            assert callback.status_code == 503
        assert client.post(unsubscribe).status_code == 200
    [consent] = written(stack, CONSENT, workspace, "ConsentChanged")
    assert (consent["user_id"], consent["purpose"], consent["granted"]) == ("ada", "marketing", False)


def test_a_stop_flushes_what_was_answered(stack: Stack, tmp_path: Path, workspace: str) -> None:
    """Opens wait for no broker, so a stop has to write them."""
    with tracker(stack, tmp_path) as service:
        with httpx.Client(base_url=service.url) as client:
            for _ in range(300):
                assert client.get(f"/o/{LINKS.token(LinkKind.OPEN, link(workspace))}").status_code == 200
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
    assert len(written(stack, DELIVERY, workspace, "DeliveryReported")) == 300


def test_callbacks_of_each_provider_become_outcomes_and_suppressions(stack: Stack, tmp_path: Path, workspace: str) -> None:
    sealer = Sealer(parse_keys(SECRET_KEYS, "test"))
    secret = sealer.seal(SECRET, Place(workspace, "target/mails", "callbacks/secret"))
    token = sealer.seal("twilio-token", Place(workspace, "target/texts", "auth_token"))
    define(
        stack, workspace, smtp_target(key="mails", callbacks={"provider": "dsn", "secret": secret}),
        smtp_target(key="grid", callbacks={"provider": "sendgrid", "public_key": PUBLIC_KEY}),
        {"key": "texts", "channel": "sms", "base_url": "https://a", "account_sid": "A", "auth_token": token, "from": "Shop"},
    )  # fmt: skip
    public = "https://t.example.com"
    with tracker(stack, tmp_path, STARLING_PUBLIC_URL=public) as service, httpx.Client(base_url=service.url) as client:
        headers = {"Authorization": f"Bearer {SECRET}"}
        for _ in range(2):
            assert client.post(f"/p/{workspace}/mails", content=notification(mark(workspace)), headers=headers).status_code == 200
        grid = mark(workspace, "grid")
        body = b"[%s]" % b",".join(_json(sendgrid_event(kind, grid)) for kind in ("delivered", "open", "spamreport"))
        assert client.post(f"/p/{workspace}/grid", content=body, headers=sendgrid_headers(body)).status_code == 200
        assert client.post(f"/p/{workspace}/grid", content=body + b" ", headers=sendgrid_headers(body)).status_code == 401
        path = f"/p/{workspace}/texts?starling={mark(workspace, 'texts', 'sms')}"
        fields = {"MessageSid": "SM1", "MessageStatus": "failed", "ErrorCode": "21610"}
        signed = {"X-Twilio-Signature": twilio_signature(public + path, fields, "twilio-token")}
        assert client.post(path, data=fields, headers=signed).status_code == 200
        texts = f"/p/{workspace}/texts"
        for number, word in enumerate(("STOP", "START", "stop")):
            fields = {"MessageSid": f"SM{number}", "SmsStatus": "received", "From": f"+491511234567{number % 2}", "Body": word}
            signed = {"X-Twilio-Signature": twilio_signature(public + texts, fields, "twilio-token")}
            answer = client.post(texts, data=fields, headers=signed)
            assert (answer.status_code, answer.text) == (200, "<Response/>")
            assert client.post(texts, data=fields | {"Body": "STOP!"}, headers=signed).status_code == 401
        large = client.post(f"/p/{workspace}/mails", content=b"x" * 300_000, headers=headers)
        assert large.status_code == 413
        metrics = client.get("/metrics").text
    assert 'starling_tracker_callback_reports_total{outcome="COMPLAINED",provider="sendgrid"} 1.0' in metrics
    reports = written(stack, DELIVERY, workspace, "DeliveryReported")
    by_id = {report["event_id"]: (report["target_key"], report["outcome"]) for report in reports}
    assert sorted(by_id.values()) == [
        ("grid", "COMPLAINED"), ("grid", "DELIVERED"), ("grid", "OPENED"), ("mails", "BOUNCED"), ("texts", "FAILED"),
    ]  # fmt: skip
    changes = written(stack, SUPPRESSIONS, workspace, "AddressSuppressed")
    suppressed = {(one["digest"], one["kind"], one["by_person"]) for one in changes}
    stopped, started = (address_digest(f"+491511234567{number}") for number in range(2))
    assert suppressed == {
        (DIGEST, "hard_bounce", False), (DIGEST, "complaint", False), (DIGEST, "stop", True),
        (stopped, "stop", True), (started, None, True),
    }  # fmt: skip
    assert {one["channel"] for one in changes if one["by_person"]} == {"sms"}
    assert written(stack, CONSENT, workspace, "ConsentChanged") == []


def _json(event: Mapping[str, Any]) -> bytes:
    return httpx.Request("POST", "http://a", json=event).content


def test_a_report_whose_key_was_lost_is_replayed_once_the_key_is_back(stack: Stack, tmp_path: Path, workspace: str) -> None:
    define(stack, workspace, smtp_target(key="mails", callbacks={"provider": "dsn", "secret": SECRET}))
    headers = {"Authorization": f"Bearer {SECRET}"}
    with tracker(stack, tmp_path, STARLING_LINKS__KEYS=OTHER_KEYS) as service:
        body = notification(mark(workspace))
        assert httpx.post(f"{service.url}/p/{workspace}/mails", content=body, headers=headers).status_code == 200
        with DeadLetters(stack.brokers, stack.registry_url, "http://127.0.0.1:9", service.url) as letters:
            [letter] = [one for one in letters.letters("tracker") if one.record["workspace"] == workspace]
            assert (letter.record["code"], letter.record["value"]) == ("unknown_message", body)
            with pytest.raises(ReplayFailed, match="none of the keys"):
                letters.replay(letter)
    assert written(stack, DELIVERY, workspace, "DeliveryReported") == []
    with (
        tracker(stack, tmp_path, STARLING_LINKS__KEYS=f"{LINK_KEYS},{OTHER_KEYS}") as service,
        DeadLetters(stack.brokers, stack.registry_url, "http://127.0.0.1:9", service.url) as letters,
    ):
        letters.replay(letter)
        # The broker shows a transaction to readers of committed records shortly after its commit is acknowledged.
        eventually(lambda: [one.replayed for one in letters.find([letter.id])] == [True])
    [report] = written(stack, DELIVERY, workspace, "DeliveryReported")
    assert (report["outcome"], report["user_id"]) == ("BOUNCED", "ada")
    assert len(written(stack, DEAD_LETTERS, workspace, "DeadLetter")) == 1


def test_a_target_that_is_defined_later_takes_callbacks_without_a_restart(stack: Stack, tmp_path: Path, workspace: str) -> None:
    headers = {"Authorization": f"Bearer {SECRET}"}
    with tracker(stack, tmp_path) as service, httpx.Client(base_url=service.url) as client:
        path, body = f"/p/{workspace}/mails", notification("test")
        assert client.post(path, content=body, headers=headers).status_code == 404
        define(stack, workspace, smtp_target(key="mails", callbacks={"provider": "dsn", "secret": SECRET}))
        eventually(lambda: client.post(path, content=body, headers=headers).status_code == 200)
