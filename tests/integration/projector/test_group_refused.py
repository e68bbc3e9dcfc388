"""A broker that cannot load the offsets of its groups after a restart answers NOT_COORDINATOR without end, and serves records."""

import json
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from starling_common.kafka.clients import consumer_config, partitions_of
from starling_common.testing import eventually, running
from starling_common.wire import Registry
from tests.integration.projector.broker import Broker
from tests.integration.projector.feed import Log

OFFSETS = "__consumer_offsets"
ADMIN_CLIENT = "__admin_client"
"""The client id with which the broker accepts records for its internal topics."""
BROKEN_KEY = b"\x00\x01\x00\x50cut off"
"""The key of a committed offset (version 1) whose group has 80 bytes, of which 7 are there."""


def break_offsets(brokers: str) -> None:
    """Write a record that the group coordinator cannot load to each partition of its topic."""
    producer = Producer({"bootstrap.servers": brokers, "client.id": ADMIN_CLIENT, "acks": "all"})
    reader = Consumer(consumer_config(brokers, "test"))
    failures: list[object] = []
    for number in partitions_of(reader, OFFSETS, 30):
        producer.produce(OFFSETS, b"\x00\x03", BROKEN_KEY, number, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert set(failures) == {None}
    reader.close()


@pytest.mark.long
def test_liveness_fails_with_the_reason_if_the_broker_refuses_the_group_without_end(
    broker: Broker, workspace: str, tmp_path: Path
) -> None:
    log = Log(broker.stack.brokers, Registry(broker.stack.registry_url), workspace)
    environment = {**broker.stack.environment(), "STARLING_GROUP_FAILURE_SECONDS": "12"}
    with running("starling_projector", environment, tmp_path / "projector.log") as projector:
        log.change("ada", "vip", 1)
        checks = httpx.get(f"{projector.url}/healthz", trust_env=False).json()["checks"]
        assert (checks["group"], checks["events group"]) == ("ok", "ok")
        break_offsets(broker.stack.brokers)
        broker.kill(meanwhile=lambda: None)

        def refused() -> str:
            # The group of the events has the same coordinator, and may fail first.
            check = str(httpx.get(f"{projector.url}/healthz", trust_env=False).json()["checks"]["group"])
            return "" if check == "ok" else check

        reason = eventually(refused, 240)
        assert reason.startswith("the coordinator of the group starling-projector has refused requests for ")
        assert reason.endswith("restart this process, then the broker that coordinates the group")
        metrics = httpx.get(f"{projector.url}/metrics", trust_env=False).text
        [seconds] = [
            float(line.split()[-1])
            for line in metrics.splitlines()
            if line.startswith('starling_group_refused_seconds{group="starling-projector"}')
        ]
        assert seconds >= 12
        logged = [json.loads(line) for line in projector.log.read_text().splitlines() if line.startswith("{")]
        assert any(line["event"] == "group_refused" and line["group"] == "starling-projector" for line in logged)
