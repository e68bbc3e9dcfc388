"""Which channel a process may serve: no message gets the outcome of a channel that it does not belong to."""

import re

import pytest

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_delivery.settings import Settings

CHANNELS = ("webhook", "file")


def settings(**more: object) -> Settings:
    base = {
        "kafka": Kafka(brokers="127.0.0.1:9"),
        "registry": SchemaRegistry(url="http://127.0.0.1:9"),
        "http": Http(port=9),
        "instance_id": "delivery-0",
    }
    return Settings.model_validate(base | more)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="webhook"),
        pytest.param({"group": "another"}, id="webhook in a group of the operator's choice"),
        pytest.param({"takes_all_targets": True}, id="webhook has them anyway"),
        pytest.param({"channel": "file", "takes_all_targets": True}, id="another in its place"),
    ],
)
def test_one_channel_may_serve_the_targets(more: dict[str, object]) -> None:
    assert settings(**more).refusal(CHANNELS) is None


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"channel": "file"}, "set STARLING_TAKES_ALL_TARGETS=true", id="beside the webhook process"),
        pytest.param(
            {"channel": "file", "group": "starling-file"}, "its targets would be the webhooks", id="with a group of its own"
        ),
        pytest.param(
            {"channel": "file", "group": "starling-file", "takes_all_targets": True}, "Unset STARLING_GROUP", id="a second outcome"
        ),
        pytest.param({"channel": "fax", "takes_all_targets": True}, "no such channel .* there are: file, webhook", id="no channel"),
    ],
)
def test_any_other_is_refused_with_the_cure(more: dict[str, object], reason: str) -> None:
    refusal = settings(**more).refusal(CHANNELS)
    assert refusal is not None
    assert re.search(reason, refusal)


def test_retries_have_a_group_a_channel() -> None:
    assert settings().retry_group == "starling-webhook-retry"
    assert settings(channel="file").retry_group == "starling-webhook-file-retry"
