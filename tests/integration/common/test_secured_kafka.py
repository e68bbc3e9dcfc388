"""Every client of Kafka against a real broker with TLS, passwords, certificates and access control."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.kafka.clients import BrokerUnavailable, consumer_config, produce_and_wait, producer_config
from starling_common.kafka.security import connection_config, handshake_failure, kafka_security
from tests.certificates import Authority
from tests.conftest import Stack
from tests.integration.stream.checks import counts_by_key, expected_counts, send_events
from tests.integration.stream.rig import Rig, wait_until
from tests.secured_broker import Secured, secured_broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured") / "broker") as found:
        yield found


Secure = Callable[[dict[str, str]], None]


@pytest.fixture
def secure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Secure]:
    """Gives this process the environment of a service."""

    def use(environment: dict[str, str]) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        kafka_security.cache_clear()

    yield use
    monkeypatch.undo()
    kafka_security.cache_clear()


def _topic(secured: Secured, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": secured.opened})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    return name


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512", "certificate"])
def test_producers_consumers_and_admins_connect(secured: Secured, secure: Secure, way: str) -> None:
    environment = secured.with_certificate() if way == "certificate" else secured.with_password(way)
    secure(environment)
    brokers, topic = environment["STARLING_KAFKA__BROKERS"], _topic(secured, f"way-{way.lower()}")
    produce_and_wait(Producer(producer_config(brokers)), topic, key=b"k", value=b"v", headers=[])
    consumer = Consumer(consumer_config(brokers, f"group-{way}"))
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert message.value() == b"v"
    assert topic in AdminClient(connection_config(brokers)).list_topics(timeout=30).topics


def test_the_stream_layer_connects(secured: Secured, stack: Stack, tmp_path: Path) -> None:
    rig = Rig(secured.opened, stack.registry_url, tmp_path)
    rig.create()
    try:
        sent = send_events(rig, 200)
        rig.wait_settled([rig.start(**secured.with_password())])
        assert counts_by_key(rig) == expected_counts(sent)
    finally:
        rig.destroy()


@pytest.mark.long
def test_certificates_are_rotated_while_workers_run(secured: Secured, secure: Secure, stack: Stack, tmp_path: Path) -> None:
    """The steps of docs/explanation/security.md: both authorities, the new certificate, the new authority alone."""
    authority = Authority("The next authority")
    both, new = tmp_path / "both.pem", tmp_path / "new.pem"
    both.write_bytes(secured.authority.read_bytes() + authority.certificate)
    new.write_bytes(authority.certificate)
    rig = Rig(secured.opened, stack.registry_url, tmp_path)
    rig.create()
    try:
        first = rig.start("w0", **secured.with_password(STARLING_KAFKA__SSL_CA_FILE=str(both)))
        sent = send_events(rig, 100)
        rig.wait_settled([first])

        with secured.rotated(authority, tmp_path / "broker.pem"):
            sent += send_events(rig, 100)
            rig.wait_settled([first])  # open connections continue

            second = rig.start("w1", **secured.with_password(STARLING_KAFKA__SSL_CA_FILE=str(new)))
            wait_until(second.ready, "the worker with the new authority")
            assert first.terminate(leave=True) == 0
            sent += send_events(rig, 100)
            rig.wait_settled([second])
            assert counts_by_key(rig) == expected_counts(sent)

            secure(secured.with_password())
            reason = "certificate of the broker: unable to get local issuer certificate"
            assert reason in str(handshake_failure(secured.password))
            with pytest.raises(KafkaException):
                AdminClient({**connection_config(secured.password), "log_level": 0}).list_topics(timeout=5)
    finally:
        rig.destroy()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"STARLING_KAFKA__SASL_PASSWORD": "wrong"}, "authentication failed", marks=pytest.mark.long),
        pytest.param({"STARLING_KAFKA__SSL_CA_FILE": "foreign"}, "certificate verify failed", marks=pytest.mark.long),
        ({"STARLING_KAFKA__SASL_PASSWORD": ""}, "sasl_password"),
    ],
)
def test_the_deploy_step_names_what_is_wrong(secured: Secured, stack: Stack, change: dict[str, str], reason: str) -> None:
    files = {"foreign": str(secured.foreign_authority)}
    changed = {name: files.get(value, value) for name, value in change.items()}
    environment = {**os.environ, **stack.environment(), **secured.with_password(), **changed}
    environment["STARLING_ACKNOWLEDGE_SINGLE_COPY"] = "true"
    if not changed.get("STARLING_KAFKA__SASL_PASSWORD", "given"):
        del environment["STARLING_KAFKA__SASL_PASSWORD"]
    done = subprocess.run(
        [sys.executable, "-m", "starling_common.deploy"], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode != 0
    assert reason in (done.stdout + done.stderr).lower()


def test_a_service_may_not_do_what_belongs_to_another(secured: Secured, secure: Secure) -> None:
    secure(secured.with_password("PLAIN", STARLING_KAFKA__SASL_USERNAME="stranger", STARLING_KAFKA__SASL_PASSWORD="other"))
    topic = _topic(secured, "guarded")
    with pytest.raises((BrokerUnavailable, KafkaException), match=r"(?i)authoriz"):
        produce_and_wait(Producer(producer_config(secured.password)), topic, key=b"k", value=b"v", headers=[])
    consumer = Consumer(consumer_config(secured.password, "group-stranger"))
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() in {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
