"""The group's metadata as the producer's client reads it, and the places where a worker can be made to die."""

import struct

import pytest
from confluent_kafka import Consumer

from starling_stream.failpoints import FAILPOINTS, Failpoints
from starling_stream.settings import StreamSettings
from starling_stream.transactions import group_metadata
from starling_stream.transport import Membership


@pytest.mark.parametrize("instance", [None, "pod-1"])
def test_group_metadata_is_laid_out_as_the_client_itself_does(instance: str | None) -> None:
    named = {} if instance is None else {"group.instance.id": instance}
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, **named})
    reference: object = consumer.consumer_group_metadata()
    consumer.close()
    assert group_metadata(Membership("g", -1, "", instance)) == reference


def test_group_metadata_carries_generation_and_member() -> None:
    assert group_metadata(Membership("g", 7, "m-1", None)) == b"CGMDv2:" + struct.pack("<i", 7) + b"g\0m-1\0\1"


def test_a_failpoint_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="after_lunch"):
        Failpoints("after_lunch:2")


def test_no_failpoint_is_active_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise AssertionError("it would have killed this process")

    monkeypatch.setattr("os.kill", killed)
    assert StreamSettings.model_fields["failpoint"].default is None
    for place in FAILPOINTS:
        Failpoints(None).passed(place)
