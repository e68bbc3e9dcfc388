"""Requests of several channels in one process: each goes to its dispatcher, and records to the channel that they are of."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from starling_common.outcome import Refused
from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.telemetry.metrics import Metrics
from starling_delivery.channels import CAMPAIGN_CHANNELS
from starling_delivery.item import Item
from starling_delivery.messages.refusals import Suppressions, fold_suppression, of_channels
from starling_delivery.policy import Schedule
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.dispatch import Dispatcher, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.sending.routing import Routed
from starling_delivery.settings import EmailSettings
from starling_delivery.targets import Targets
from starling_policy import address_digest
from tests.unit.delivery.making import Recorded, Scripted, definition, request, send_all, targets


def settings(**more: object) -> EmailSettings:
    base = {
        "kafka": Kafka(brokers="127.0.0.1:9"),
        "registry": SchemaRegistry(url="http://127.0.0.1:9"),
        "http": Http(port=9),
        "instance_id": "email-0",
    }
    return EmailSettings.model_validate(base | more)


def sender(channel: Scripted, known: Targets, recorded: Recorded) -> Dispatcher:
    traffic = Traffic(Lanes(4, 64_000_000, 1000), Circuits(CircuitRule(5, 30.0)))
    return Dispatcher(channel, known, Schedule((1.0,), 60.0), traffic, recorded, Metrics(CollectorRegistry()))


def test_each_request_goes_to_the_dispatcher_of_its_channel() -> None:
    recorded, channels = Recorded([]), {"email": Scripted(), "sms": Scripted()}
    known = targets(definition())
    routed: Any = Routed({name: sender(channel, known, recorded) for name, channel in channels.items()})

    async def sending() -> list[Item]:
        items = await send_all(routed, [request(delivery_id="one", channel="email"), request(delivery_id="two", channel="sms")])
        await routed.drained()
        return items

    asyncio.run(sending())
    assert {name: channel.sent for name, channel in channels.items()} == {"email": ["one"], "sms": ["two"]}
    assert sorted(delivery_id for delivery_id, _ in recorded.steps) == ["one", "two"]


def suppression(channel: str, address: str) -> dict[str, Any]:
    return {"workspace": "default", "channel": channel, "digest": address_digest(address), "kind": "hard_bounce"}


def test_a_suppression_is_of_its_channel_alone() -> None:
    fold, known = of_channels(fold_suppression), {name: Suppressions(name) for name in ("email", "sms")}
    fold(known, b"", suppression("sms", "+4915112345678"))
    fold(known, b"", suppression("push", "+4915112345678"))
    found = {name: one.kind("default", "+4915112345678") for name, one in known.items()}
    assert found == {"email": None, "sms": "hard_bounce"}
    assert isinstance(fold(known, b"", None), Refused)


def test_a_process_sends_every_channel_unless_the_settings_name_some() -> None:
    assert set(settings().channels) == set(CAMPAIGN_CHANNELS)
    one = settings(channels=("sms",), request_topic="mine")
    assert one.request_topics == {"sms": "mine.sms"}
    assert (one.give_up_seconds("email"), one.give_up_seconds("sms")) == (14_400.0, 3_600.0)


@pytest.mark.parametrize("channels", [("fax",), ("sms", "sms"), ()])
def test_channels_that_no_process_sends_are_refused_with_the_cure(channels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"list each of .* at most once|at least 1 item"):
        settings(channels=channels)
