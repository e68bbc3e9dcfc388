"""The published clients, unchanged but for the host, against a real edge, broker and registry."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message
from rudderstack.analytics.client import Client as RudderClient
from segment.analytics.client import Client as SegmentClient

from starling_common.kafka.topics import INGEST_KINDS, load_catalogue
from starling_common.values import record_key
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, headers_of, records, running, timestamp_ms

WHEN = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """Write key -> workspace, of this module's own."""
    return {name: f"{name}{uuid.uuid4().hex[:12]}" for name in ("segment", "packed", "rudder", "order")}


@pytest.fixture(scope="module")
def edge(stack: Stack, keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeProcess]:
    listed = ",".join(f"{key}={workspace}" for key, workspace in keys.items())
    with running(stack.environment() | {"STARLING_WRITE_KEYS": listed}, tmp_path_factory.mktemp("edge")) as found:
        yield found


def send_one_of_each(client: Any) -> None:
    client.track("u-1", "Order Completed", {"revenue": 29.9}, timestamp=WHEN)
    client.identify("u-1", {"email": "a@example.org"}, timestamp=WHEN)
    client.page("u-1", "Shop", "Cart", timestamp=WHEN)
    client.screen("u-1", "App", "Home", timestamp=WHEN)
    client.group("u-1", "g-1", {"plan": "pro"}, timestamp=WHEN)
    client.alias("anon-1", "u-1", timestamp=WHEN)
    client.flush()
    client.join()


def murmur2(data: bytes) -> int:
    """The hash by which the JVM clients choose a partition, written down once more to check ours."""
    mask, mixer = 0xFFFFFFFF, 0x5BD1E995
    value = (0x9747B28C ^ len(data)) & mask
    for start in range(0, len(data) - len(data) % 4, 4):
        part = int.from_bytes(data[start : start + 4], "little") * mixer & mask
        value = (value * mixer & mask) ^ ((part ^ part >> 24) * mixer & mask)
    if tail := data[len(data) - len(data) % 4 :]:
        value = ((value ^ int.from_bytes(tail, "little")) * mixer) & mask
    value = ((value ^ value >> 13) * mixer) & mask
    return value ^ value >> 15


def one_of_each(stack: Stack, workspace: str) -> dict[str, tuple[Message, dict[str, Any]]]:
    registry = Registry(stack.registry_url)
    found = {}
    for kind in INGEST_KINDS:
        (message,) = records(stack.brokers, f"ingest.{kind}", workspace)
        found[kind] = message, registry.codec(f"ingest.{kind}", "IngestReceived").decode(message.value() or b"")
    return found


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("segment", lambda url, fail: SegmentClient("segment", host=url, on_error=fail)),
        ("packed", lambda url, fail: SegmentClient("packed", host=url, on_error=fail, gzip=True)),
        ("rudder", lambda url, fail: RudderClient("rudder", host=url, on_error=fail)),
    ],
)
def test_every_call_of_a_client_arrives_in_its_topic(
    stack: Stack, edge: EdgeProcess, keys: dict[str, str], key: str, make: Any
) -> None:
    failures: list[Any] = []
    send_one_of_each(make(edge.url, lambda error, batch: failures.append((error, batch))))
    assert failures == []
    found = one_of_each(stack, keys[key])
    partitions = load_catalogue().profile_partitions
    for kind, (message, received) in found.items():
        item = msgspec.json.decode(received["item"])
        assert received["kind"] == kind
        assert received["workspace"] == keys[key]
        assert received["user_id"] == item["userId"] == "u-1"
        assert received["message_id"] == item["messageId"]
        assert message.key() == record_key(keys[key], "u-1")
        assert message.partition() == (murmur2(message.key() or b"") & 0x7FFFFFFF) % partitions
        assert timestamp_ms(message) >= received["received_at"] // 1000  # the broker's own, on one machine
        assert received["user_agent"].startswith("analytics-python/")
        headers = headers_of(message)
        assert headers["produced_by"] == b"ingest"
        assert headers["correlation_id"].decode() == received["correlation_id"]
        assert len(headers["traceparent"]) == 55
        assert (received["sent_at"] is None) == ("sentAt" in item)
        assert (item.get("timestamp") or item["originalTimestamp"]).startswith("2026-01-31T09:00:00")
    assert msgspec.json.decode(found["track"][1]["item"])["properties"] == {"revenue": 29.9}
    assert len({received["received_at"] for _, received in found.values()}) == len(found)


def test_a_clients_order_is_the_order_of_its_stamps_and_of_its_partition(
    stack: Stack, edge: EdgeProcess, keys: dict[str, str]
) -> None:
    client = SegmentClient("order", host=edge.url, upload_size=50)
    for number in range(500):
        client.track("u-1", "Step", {"number": number})
    client.flush()
    client.join()
    codec = Registry(stack.registry_url).codec("ingest.track", "IngestReceived")
    arrived = [codec.decode(message.value() or b"") for message in records(stack.brokers, "ingest.track", keys["order"])]
    assert [msgspec.json.decode(record["item"])["properties"]["number"] for record in arrived] == list(range(500))
    stamps = [record["received_at"] for record in arrived]
    assert all(earlier < later for earlier, later in pairwise(stamps))


@pytest.mark.parametrize("make", [SegmentClient, RudderClient])
def test_a_client_with_a_wrong_key_gets_an_error(edge: EdgeProcess, make: Any) -> None:
    failures: list[Any] = []
    client = make("unknown", host=edge.url, on_error=lambda error, _batch: failures.append(error), max_retries=0)
    client.track("u-1", "Order Completed")
    client.flush()
    client.join()
    assert [(error.status, error.code) for error in failures] == [(401, "unknown_write_key")]
    assert "write key" in failures[0].message
