"""A Spark job on a broker with SASL_SSL, with the rights of its own user alone."""

import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from starling_common.kafka.clients import produce_and_wait
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.wire import Registry
from starling_local.java import find_java
from starling_local.runtime import runtime_jars
from tests.certificates import Authority
from tests.conftest import Stack
from tests.integration.spark.instance import Instance, wait_for
from tests.secured_broker import secured_broker
from tests.secured_pipeline import run, secure_installation
from tests.unit.delivery.making import change

USER = "starling-audience-report"
START_MS = 1_700_000_000_000


@pytest.mark.long
def test_a_job_reads_with_the_rights_of_its_own_user(stack: Stack, tmp_path: Path) -> None:
    with secured_broker(tmp_path / "broker") as broker, secure_installation(broker, stack, tmp_path) as secure:
        codec = Registry(stack.registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged")
        producer, now = Producer({"bootstrap.servers": broker.opened}), time.time_ns() // 1000
        for topic in (MEMBERSHIP, MEMBERSHIP_STATE):
            value = codec.encode(change("ada", received_at=now))
            produce_and_wait(producer, topic, key=b"default/ada", value=value, headers=[])
        environment = secure.environment("audience-report") | {
            "STARLING_INSTANCE_ID": "audience-report",
            "STARLING_HTTP__PORT": "1",
            "STARLING_CHECKPOINT_DIR": str(tmp_path),
            "STARLING_SPARK_JARS": ",".join(map(str, runtime_jars("spark"))),
            "STARLING_SPARK_DRIVER_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(find_java().home),
        }
        job = [sys.executable, "-m", "starling_spark.jobs.audience_report", "--until"]
        done = run([*job, "2026-03-10T12:00:00Z"], environment)
        assert done.returncode == 0, done.stderr[-4_000:]
        assert "unreadable=0" in done.stdout
        own = {one for one in broker.decisions() if one.user == USER}
    assert {one for one in own if one.outcome == "Denied"} == set()
    assert {one.name for one in own if one.operation == "READ"} == {MEMBERSHIP, MEMBERSHIP_STATE}
    assert {one.resource for one in own} == {"Topic"}


@pytest.mark.long
def test_certificates_are_rotated_while_a_query_runs(stack: Stack, tmp_path: Path) -> None:
    """The steps of docs/explanation/security.md with the query of computed traits: every event counts once."""
    authority, both, new = Authority("The next authority"), tmp_path / "both.pem", tmp_path / "new.pem"
    with secured_broker(tmp_path / "broker") as broker:
        both.write_bytes(broker.authority.read_bytes() + authority.certificate)
        new.write_bytes(authority.certificate)
        instance = Instance(broker.opened, stack.registry_url, tmp_path)
        instance.deploy()
        try:
            instance.start(**broker.with_password(STARLING_KAFKA__SSL_CA_FILE=str(both)))
            wait_for(instance.is_ready, 300, instance.log_tail)
            instance.define("orders", {"event": "Order Completed"})
            instance.event("ann", START_MS)
            instance.settle()
            assert instance.values() == {("ann", "orders"): 1}

            with broker.rotated(authority, tmp_path / "broker.pem"):
                instance.event("ann", START_MS + 1)
                instance.settle()  # the query goes on
                assert instance.values() == {("ann", "orders"): 2}
                assert instance.stop() == 0

                instance.start(**broker.with_password(STARLING_KAFKA__SSL_CA_FILE=str(new)))
                wait_for(instance.is_ready, 300, instance.log_tail)
                instance.event("ann", START_MS + 2)
                instance.settle()
                assert instance.values() == {("ann", "orders"): 3}
                assert instance.stop() == 0
        finally:
            instance.remove()
