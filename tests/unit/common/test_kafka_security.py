"""The security of connections to the broker, from the environment to the names of each client."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from starling_common.kafka.security import aiokafka_security, connection_config, jvm_security, kafka_security, librdkafka_security
from starling_common.settings import Kafka, KafkaSecurity

PASSWORD: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": 'a"b\\c'}


def test_a_connection_without_security_has_addresses_alone() -> None:
    kafka_security.cache_clear()
    assert connection_config("a:9092,b:9092") == {"bootstrap.servers": "a:9092,b:9092"}
    assert librdkafka_security(KafkaSecurity()) == aiokafka_security(KafkaSecurity()) == jvm_security(KafkaSecurity()) == {}


def test_the_environment_secures_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARLING_KAFKA__BROKERS", "a:9092")
    monkeypatch.setenv("STARLING_KAFKA__SECURITY_PROTOCOL", "SSL")
    kafka_security.cache_clear()
    try:
        assert connection_config("a:9092")["security.protocol"] == "SSL"
    finally:
        kafka_security.cache_clear()


def test_a_password_has_the_names_of_each_client() -> None:
    security = KafkaSecurity(security_protocol="SASL_PLAINTEXT", **PASSWORD)
    assert librdkafka_security(security) == {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": 'a"b\\c',
    }  # fmt: skip
    assert aiokafka_security(security) == {
        "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u",
        "sasl_plain_password": 'a"b\\c',
    }  # fmt: skip
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert jvm_security(security) == {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="u" password="a\\"b\\\\c";',
    }  # fmt: skip


def test_certificates_have_the_names_of_each_client(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    security = KafkaSecurity(
        security_protocol="SSL",
        ssl_ca_file=str(tmp_path / "ca"),
        ssl_certificate_file=str(tmp_path / "cert"),
        ssl_key_file=str(tmp_path / "key"),
        ssl_check_hostname=False,
    )
    assert librdkafka_security(security) == {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert jvm_security(security) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "PEM of ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "PEM of cert",
        "ssl.keystore.key": "PEM of key",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"security_protocol": "SASL_SSL"}, "SASL_SSL needs sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", **PASSWORD, "sasl_password": None}, "SASL_SSL needs sasl_password"),
        (PASSWORD, "sasl_mechanism has no effect with PLAINTEXT: set security_protocol to SASL_SSL"),
        ({"ssl_ca_file": "ca.pem"}, "ssl_ca_file has no effect with PLAINTEXT: set security_protocol to SASL_SSL or SSL"),
        ({"security_protocol": "SSL", "ssl_key_file": "k"}, "ssl_certificate_file and ssl_key_file belong together"),
        ({"security_protocol": "TLS"}, "Input should be 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT' or 'SASL_SSL'"),
        ({"sasl_user": "u"}, "Extra inputs are not permitted"),
    ],
)
def test_a_combination_that_is_incomplete_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Kafka(brokers="a:9092", **fields)
