"""Real parts of the stack that hang longer than the supervisor accepts."""

import os
import signal
import time

import httpx
import pytest

from starling_common.kafka.clients import partitions_of
from starling_common.kafka.topic_range import range_consumer
from starling_common.kafka.topics import MEMBERSHIP, load_catalogue
from starling_local.instance import Instance, PartReport
from starling_local.testing import Addresses

PATIENCE_SECONDS = 240.0


def parts(instance: Instance) -> dict[str, PartReport]:
    report = instance.report()
    assert report is not None
    return {part.name: part for part in report.parts}


@pytest.mark.long
def test_a_broker_and_a_registry_that_hang_are_restarted_with_their_data(deployed: Addresses) -> None:
    instance = Instance(deployed.data_dir)
    before = parts(instance)
    for part in before.values():
        assert part.pid is not None
        os.kill(part.pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(part.state == "ready" and part.restarts == 1 for part in parts(instance).values()):
        assert time.monotonic() < deadline, parts(instance)
        time.sleep(0.2)
    after = parts(instance)
    assert {name: part.pid for name, part in after.items()}.items().isdisjoint(
        {name: part.pid for name, part in before.items()}.items()
    )
    assert all("answered no liveness check" in part.last_end for part in after.values())
    subjects = httpx.get(f"{deployed.registry_url}/subjects", trust_env=False, timeout=30).json()
    assert {f"{topic}-value" for topic in load_catalogue().topics} <= set(subjects)
    consumer = range_consumer(deployed.kafka, "test-liveness")
    assert len(partitions_of(consumer, MEMBERSHIP, 30)) > 1
    consumer.close()
