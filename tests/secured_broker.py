"""A real broker with TLS, passwords, certificates of clients and access control, beside an open door for the test itself."""

import re
import ssl
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography import x509

from starling_common.testing import eventually, free_port
from starling_local.java import find_java
from starling_local.runtime.fetching import runtime_jars
from starling_local.stack.parts.jvm_kafka import CLUSTER_ID
from tests.certificates import Authority
from tests.processes import end

PASSWORD = 'se"cr\\et'
"""With the characters that need escaping in a JAAS configuration."""
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=OPEN://{host}:{opened},PASSWORD://{host}:{password},CERTIFICATE://{host}:{certificate},EXPIRED://{host}:{expired},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,PASSWORD:SASL_SSL,CERTIFICATE:SSL,EXPIRED:SASL_SSL
inter.broker.listener.name=OPEN
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.password.plain.sasl.jaas.config={plain} required user_starling={quoted} user_stranger="other";
listener.name.password.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={broker}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.certificate.ssl.client.auth=required
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={outdated}
listener.name.expired.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.expired.plain.sasl.jaas.config={plain} required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:starling;User:CN=starling
"""


_DECISION = re.compile(
    r"Principal = User:(\S+) is (Allowed|Denied) operation = (\w+) from host = \S+ on resource = (\w+):(?:LITERAL|PREFIXED):(\S+) "
    r"for request = (\w+)"
)


class Decision(NamedTuple):
    """One line of the broker's audit log. `outcome` is Allowed or Denied; the operation and the resource are Kafka's names."""

    user: str
    outcome: str
    operation: str
    resource: str
    name: str
    request: str


@dataclass(frozen=True)
class Secured:
    """Addresses, and the files of a client that the broker accepts. `log` has a line for each decision about access.

    `expired`: the address with an expired certificate of the broker. `expired_certificate`: of a client.
    """

    opened: str
    password: str
    certificate: str
    expired: str
    authority: Path
    client_certificate: Path
    client_key: Path
    expired_certificate: Path
    expired_key: Path
    foreign_authority: Path
    log: Path
    process: subprocess.Popen[bytes]

    def add_users(self, names: Iterable[str]) -> None:
        """Create users for SCRAM-SHA-512, all with the password of the tests and without rights."""
        admin, credential = AdminClient({"bootstrap.servers": self.opened}), ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        alterations: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, credential, PASSWORD.encode()) for name in names
        ]
        for done in admin.alter_user_scram_credentials(alterations).values():
            done.result()

    def as_user(self, name: str, password: str = PASSWORD) -> dict[str, str]:
        """Return the environment of a service with the password of this user."""
        return self.with_password(STARLING_KAFKA__SASL_USERNAME=name, STARLING_KAFKA__SASL_PASSWORD=password)

    @contextmanager
    def rotated(self, authority: Authority, certificate: Path) -> Iterator[None]:
        """Give the running broker a certificate of another authority for clients with passwords; take it back after the block.

        `certificate`: the path of its file.
        """
        certificate.write_bytes(b"".join(reversed(authority.issue("broker"))))
        self._alter(str(certificate), AlterConfigOpType.SET)
        try:
            subject = x509.load_pem_x509_certificate(authority.certificate).subject
            eventually(lambda: self._issuer() == subject)
            yield
        finally:
            self._alter(None, AlterConfigOpType.DELETE)

    def _alter(self, path: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("listener.name.password.ssl.keystore.location", path, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.opened})  # kept: without it the answers are given up
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()

    def _issuer(self) -> x509.Name:
        """Return the issuer of the certificate that a new connection gets."""
        host, _, port = self.password.rpartition(":")
        return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode()).issuer

    def decisions(self) -> set[Decision]:
        """Return every request of a named user that the broker has allowed or refused since its start."""
        return {Decision(*found.groups()) for found in _DECISION.finditer(self.log.read_text(errors="replace"))}

    def with_password(self, mechanism: str = "SCRAM-SHA-512", **more: str) -> dict[str, str]:
        """Return the environment of a service that sends its password."""
        return {
            "STARLING_KAFKA__BROKERS": self.password,
            "STARLING_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "STARLING_KAFKA__SASL_MECHANISM": mechanism,
            "STARLING_KAFKA__SASL_USERNAME": "starling",
            "STARLING_KAFKA__SASL_PASSWORD": PASSWORD,
            "STARLING_KAFKA__SSL_CA_FILE": str(self.authority),
        } | more

    def with_certificate(self, **more: str) -> dict[str, str]:
        """Return the environment of a service that shows its certificate."""
        return {
            "STARLING_KAFKA__BROKERS": self.certificate,
            "STARLING_KAFKA__SECURITY_PROTOCOL": "SSL",
            "STARLING_KAFKA__SSL_CA_FILE": str(self.authority),
            "STARLING_KAFKA__SSL_CERTIFICATE_FILE": str(self.client_certificate),
            "STARLING_KAFKA__SSL_KEY_FILE": str(self.client_key),
        } | more

    def with_expired_certificate(self) -> dict[str, str]:
        """Return the environment of a service that shows a certificate which has expired."""
        certificate, key = str(self.expired_certificate), str(self.expired_key)
        return self.with_certificate(STARLING_KAFKA__SSL_CERTIFICATE_FILE=certificate, STARLING_KAFKA__SSL_KEY_FILE=key)


@contextmanager
def secured_broker(home: Path, port: int | None = None, host: str = "127.0.0.1") -> Iterator[Secured]:
    """Run the broker. Its users are `starling`, who may do all, and `stranger`, who may do nothing. `port`: for passwords.

    `host`: the address of all listeners.
    """
    home.mkdir()
    authority, foreign = Authority("Starling tests"), Authority("Another authority")
    paths = {
        name: home / f"{name}.pem"
        for name in ("authority", "foreign", "broker", "outdated", "client", "client-key", "expired", "expired-key")
    }
    paths["authority"].write_bytes(authority.certificate)
    paths["foreign"].write_bytes(foreign.certificate)
    paths["broker"].write_bytes(b"".join(reversed(authority.issue("broker", host=host))))
    paths["outdated"].write_bytes(b"".join(reversed(authority.issue("broker", expired=True, host=host))))
    for name, expired in (("client", False), ("expired", True)):
        certificate, key = authority.issue("starling", expired=expired)
        paths[name].write_bytes(certificate)
        paths[f"{name}-key"].write_bytes(key)
    ports = {name: free_port() for name in ("controller", "opened", "password", "certificate", "expired")}
    ports["password"] = port or ports["password"]
    config = home / "server.properties"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    config.write_text(
        _PROPERTIES.format(
            # In a properties file a backslash needs another one.
            **ports, host=host, logs=home / "data", broker=paths["broker"], authority=paths["authority"],
            outdated=paths["outdated"], plain="org.apache.kafka.common.security.plain.PlainLoginModule",
            quoted=f'"{quoted}"'.replace("\\", "\\\\"),
        )
    )  # fmt: skip
    audit = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"
    java = [find_java().command, "-Xmx256m", audit, "-cp", f"{runtime_jars('kafka')[0].parent}/*"]
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
    subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    found = Secured(
        opened=f"{host}:{ports['opened']}",
        password=f"{host}:{ports['password']}",
        certificate=f"{host}:{ports['certificate']}",
        expired=f"{host}:{ports['expired']}",
        authority=paths["authority"],
        client_certificate=paths["client"],
        client_key=paths["client-key"],
        expired_certificate=paths["expired"],
        expired_key=paths["expired-key"],
        foreign_authority=paths["foreign"],
        log=home / "log",
        process=process,
    )
    try:
        admin = AdminClient({"bootstrap.servers": found.opened, "log_level": 0})
        eventually(lambda: _answers(admin), 60)
        found.add_users(["starling"])
        yield found
    finally:
        end(process)


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=2).brokers)
    except Exception:  # noqa: BLE001 - it has not started yet
        return False
