"""The devices of the channel push: which of them a target reaches, and which the messenger forgets."""

import json
from typing import Any

import pytest

from starling_messages.devices import Subscription, is_reached, reached_devices, subscription_of
from tests.unit.messages.stories import NOW, Story, campaign

BROWSER = '{"endpoint":"https://push.example/a","expirationTime":null,"keys":{"auth":"YXV0aA","p256dh":"cHVibGlj"}}'
IPHONE = "0a" * 32
ANDROID = "dGVzdA:APA91b" + "x" * 130
DEVICES = (BROWSER, IPHONE, ANDROID)


@pytest.mark.parametrize(
    ("target", "reached"), [("webpush", (BROWSER,)), ("apns", (IPHONE,)), ("fcm", (ANDROID,)), (None, DEVICES), ("email", DEVICES)]
)
def test_each_device_belongs_to_the_targets_of_one_channel(target: str | None, reached: tuple[str, ...]) -> None:
    assert reached_devices(DEVICES, target) == reached


def test_a_subscription_has_an_address_and_two_keys() -> None:
    assert subscription_of(BROWSER) == Subscription("https://push.example/a", "cHVibGlj", "YXV0aA")


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": None}, {"endpoint": "ftp://push.example/a"}, {"endpoint": 7}, {"keys": None}, {"keys": []}, {"keys": {}},
        {"keys": {"p256dh": "cHVibGlj"}}, {"keys": {"p256dh": "cHVibGlj", "auth": 7}},
        {"keys": {"p256dh": "a b", "auth": "YXV0aA"}}, {"keys": {"p256dh": "x" * 300, "auth": "YXV0aA"}},
    ],
)  # fmt: skip
def test_what_is_no_subscription_is_reached_by_no_target(changed: dict[str, Any]) -> None:
    address = json.dumps(json.loads(BROWSER) | changed)
    assert subscription_of(address) is None
    assert not any(is_reached(address, target) for target in ("webpush", "fcm", "apns"))


@pytest.mark.parametrize("address", ["{", "{]", "https://push.example/a", "a token", "short", '{"keys":' * 2_000, "[]", "null", ""])
def test_other_texts_are_no_devices(address: str) -> None:
    assert subscription_of(address) is None
    assert not any(is_reached(address, target) for target in ("webpush", "fcm", "apns"))


def pushing(target: str = "app", **more: Any) -> Story:
    """A person with a browser and two phones, and a campaign that pushes to every user who enters `vip`."""
    story = Story()
    for key, channel in {"web": "webpush", "app": "fcm", "ios": "apns"}.items():
        story.define({"key": key, "channel": channel}, "DEFINED", kind="target")
    content = {"title": "Hello", "body": "Hello"}
    story.define(campaign(channel="push", target=target, variants=[{"key": "a", "weight": 100, "content": content}], **more))
    return story.registers("push", *DEVICES)


@pytest.mark.parametrize(("target", "device"), [("web", BROWSER), ("app", ANDROID), ("ios", IPHONE)])
def test_a_campaign_writes_to_the_devices_that_its_target_reaches(target: str, device: str) -> None:
    [request] = pushing(target).enters("vip", NOW + 1).requests
    assert (request.address, request.device) == (device, device)


def test_a_person_without_a_device_of_the_target_has_no_address() -> None:
    story = pushing("web")
    story.forgets("push", BROWSER).enters("vip", NOW + 1)
    assert story.steps == [("hello", "DROPPED", "no_address", 1)]


def test_the_device_of_a_bounced_message_is_forgotten_and_the_slot_comes_back() -> None:
    story = pushing().enters("vip", NOW + 1).receives("SENDING", NOW + 2)
    assert ANDROID in story.state.devices["push"]
    story.receives("BOUNCED", NOW + 3, reason="UNREGISTERED")
    assert story.state.devices["push"] == [BROWSER, IPHONE]
    assert [past.slot_returned for past in story.state.ledger] == [True]
    story.leaves("vip", NOW + 4).enters("vip", NOW + 5)
    assert story.steps[-1] == ("hello", "DROPPED", "no_address", 5)


def test_a_bounce_of_one_device_keeps_the_others_and_the_slot() -> None:
    other = "eHh4:APA91b" + "y" * 130
    story = pushing().registers("push", other).enters("vip", NOW + 1)
    assert [request.address for request in story.requests] == [ANDROID, other]
    story.receives("BOUNCED", NOW + 3, message=1)
    assert story.state.devices["push"] == [BROWSER, IPHONE, ANDROID]
    assert [past.slot_returned for past in story.state.ledger] == [False]


@pytest.mark.parametrize("outcome", ["FAILED", "SUPPRESSED", "SENT"])
def test_no_other_outcome_forgets_a_device(outcome: str) -> None:
    story = pushing().enters("vip", NOW + 1).receives(outcome, NOW + 3)
    assert story.state.devices["push"] == list(DEVICES)


def test_a_device_that_has_gone_before_its_bounce_changes_nothing() -> None:
    story = pushing().enters("vip", NOW + 1).forgets("push", ANDROID).receives("BOUNCED", NOW + 3)
    assert story.state.devices["push"] == [BROWSER, IPHONE]


def test_a_bounced_mail_forgets_no_device() -> None:
    story = Story().define(campaign()).registers("push", ANDROID).enters("vip", NOW + 1).receives("BOUNCED", NOW + 3)
    assert story.state.devices["push"] == [ANDROID]
