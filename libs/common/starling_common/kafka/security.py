"""Adapter: the security of connections to the broker, the same for every client of a process.

It is read from the environment of the process (`STARLING_KAFKA__SECURITY_PROTOCOL` and others): a client needs only the addresses.
The settings models of the services contain the same fields, and refuse a combination that is incomplete.
"""

import socket
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from starling_common.security.tls import tls_context
from starling_common.settings import FROM_ENVIRONMENT, KafkaSecurity, SaslMechanism

_LOGIN_MODULES: Final = {
    SaslMechanism.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SaslMechanism.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SaslMechanism.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_CONNECT_SECONDS: Final = 5.0
_ALERT_SECONDS: Final = 1.0
"""A broker refuses the certificate of a client after the handshake (TLS 1.3)."""


class _Environment(BaseSettings):
    model_config = FROM_ENVIRONMENT

    kafka: KafkaSecurity = KafkaSecurity()


@lru_cache(maxsize=1)
def kafka_security() -> KafkaSecurity:
    """Return the security of this process's connections. Raises: ValidationError for an incomplete combination."""
    return _Environment().kafka


def connection_config(brokers: str) -> dict[str, Any]:
    """Return the configuration of a connection for librdkafka: the addresses and their security."""
    return {"bootstrap.servers": brokers, **librdkafka_security(kafka_security())}


def librdkafka_security(security: KafkaSecurity) -> dict[str, Any]:
    """Return the security in the names of librdkafka; nothing for connections without any."""
    protocol = security.security_protocol
    found: dict[str, Any] = {"security.protocol": protocol.value} if protocol.has_tls or protocol.has_password else {}
    if protocol.has_password:
        found |= {
            "sasl.mechanism": _mechanism(security).value,
            "sasl.username": security.sasl_username,
            "sasl.password": _revealed(security.sasl_password),
        }
    if protocol.has_tls:
        found |= {
            "ssl.ca.location": security.ssl_ca_file,
            "ssl.certificate.location": security.ssl_certificate_file,
            "ssl.key.location": security.ssl_key_file,
            "ssl.key.password": _revealed(security.ssl_key_password),
            "ssl.endpoint.identification.algorithm": "https" if security.ssl_check_hostname else "none",
        }
    return {name: value for name, value in found.items() if value is not None}


def aiokafka_security(security: KafkaSecurity) -> dict[str, Any]:
    """Return the security as arguments of aiokafka's clients. Raises: OSError for a file that cannot be read, SSLError."""
    protocol = security.security_protocol
    found: dict[str, Any] = {"security_protocol": protocol.value} if protocol.has_tls or protocol.has_password else {}
    if protocol.has_password:
        found |= {
            "sasl_mechanism": _mechanism(security).value,
            "sasl_plain_username": security.sasl_username,
            "sasl_plain_password": _revealed(security.sasl_password),
        }
    if protocol.has_tls:
        own = security.ssl_certificate_file
        certificate = None if own is None else (own, security.ssl_key_file, security.ssl_key_password)
        found["ssl_context"] = tls_context(security.ssl_ca_file, certificate, check_hostname=security.ssl_check_hostname)
    return found


def handshake_failure(brokers: str) -> str | None:
    """Return why TLS with the first broker fails, such as "certificate has expired"; None if it succeeds, or without TLS.

    librdkafka does not name the cause.
    """
    if not kafka_security().security_protocol.has_tls:
        return None
    host, _, port = brokers.partition(",")[0].strip().rpartition(":")
    try:
        context: ssl.SSLContext = aiokafka_security(kafka_security())["ssl_context"]
        with (
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            secured.settimeout(_ALERT_SECONDS)
            secured.recv(1)
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of the broker: {error.verify_message}"
    except ssl.SSLError as error:
        own = kafka_security().ssl_certificate_file or "without which this process connects"
        alert = (error.reason or str(error)).lower().replace("_", " ")
        return f"the broker refuses the certificate {own}: {alert}; it may have expired, or have an unknown authority"
    except OSError:  # no connection, a file that cannot be read, or no alert within the time
        return None
    return None


def jvm_security(security: KafkaSecurity) -> dict[str, str]:
    """Return the security in the names of the JVM client, which Spark uses. Raises: OSError for a file that cannot be read."""
    protocol = security.security_protocol
    found: dict[str, str | None] = {"security.protocol": protocol.value} if protocol.has_tls or protocol.has_password else {}
    if protocol.has_password:
        mechanism = _mechanism(security)
        user, password = _quoted(security.sasl_username or ""), _quoted(_revealed(security.sasl_password) or "")
        found |= {
            "sasl.mechanism": mechanism.value,
            "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};",
        }
    if protocol.has_tls and security.ssl_ca_file is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Path(security.ssl_ca_file).read_text()}
    if protocol.has_tls and security.ssl_certificate_file is not None and security.ssl_key_file is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(security.ssl_certificate_file).read_text(),
            "ssl.keystore.key": Path(security.ssl_key_file).read_text(),
            "ssl.key.password": _revealed(security.ssl_key_password),
        }
    if protocol.has_tls and not security.ssl_check_hostname:
        found["ssl.endpoint.identification.algorithm"] = ""
    return {name: value for name, value in found.items() if value is not None}


def _mechanism(security: KafkaSecurity) -> SaslMechanism:
    if security.sasl_mechanism is None:
        raise ValueError("a password needs a mechanism: KafkaSecurity refuses such a combination")
    return security.sasl_mechanism


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _quoted(text: str) -> str:
    """Return the text in quotes, as the parser of JAAS configurations reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
