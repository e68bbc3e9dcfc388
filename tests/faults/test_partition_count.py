"""The number of partitions was changed under a service: it refuses to start, and names the cause."""

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.integration.stream.rig import Rig, wait_until


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "message"),
    [
        pytest.param((".a",), b"must have the same number", id="one-topic"),
        pytest.param((".a", ".b", ".clock", "-state-changelog"), b"was built from", id="all-topics"),
    ],
)
def test_a_worker_refuses_partitions_that_are_not_those_of_its_states(rig: Rig, names: tuple[str, ...], message: bytes) -> None:
    rig.send(rig.events(100, 10))
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate() == 0
    more = [NewPartitions(f"{rig.stage}{name}", rig.partitions * 2) for name in names]
    admin = AdminClient({"bootstrap.servers": rig.brokers})
    for future in admin.create_partitions(more).values():
        future.result()
    second = rig.start()
    wait_until(lambda: not second.alive(), "the worker to refuse")
    assert second.process.returncode == 1
    assert message in second.log.read_bytes()
