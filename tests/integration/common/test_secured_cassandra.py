"""Sessions of a real Cassandra with TLS and passwords."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable, Session
from pydantic import SecretStr, ValidationError

from starling_common.cassandra.sessions import DatabaseUnavailable, open_session
from starling_common.settings import Cassandra
from starling_common.testing import eventually
from starling_local.java import find_java
from starling_local.ports import Ports
from starling_local.runtime.fetching import runtime_jars
from starling_local.stack.parts.jvm_cassandra import cassandra_part
from starling_local.testing import free_base
from tests.certificates import Authority
from tests.processes import end
from tests.system.nodetool import nodetool_of

_SECURED = """\
authenticator:
  class_name: org.apache.cassandra.auth.PasswordAuthenticator
role_manager:
  class_name: org.apache.cassandra.auth.CassandraRoleManager
client_encryption_options:
  enabled: true
  optional: false
  keystore: "{keystore}"
  keystore_password: keystore
  store_type: PKCS12
"""


@dataclass(frozen=True)
class Node:
    settings: Cassandra
    foreign_authority: str
    pid: int
    keystore: Path


@contextmanager
def _running(home: Path) -> Iterator[Node]:
    authority, foreign = Authority("Starling tests"), Authority("Another authority")
    for name, content in (
        ("authority.pem", authority.certificate),
        ("foreign.pem", foreign.certificate),
        ("node.p12", authority.keystore("node", "keystore")),
    ):
        (home / name).write_bytes(content)
    with free_base() as base, (home / "log").open("wb") as log:
        ports = Ports(base)
        part = cassandra_part(home, runtime_jars("cassandra")[0].parent, ports, find_java().command)
        for path, text in part.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + (_SECURED.format(keystore=home / "node.p12") if path.suffix == ".yaml" else ""))
        for directory in part.directories:
            directory.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(part.command, stdout=log, stderr=log)
        settings = Cassandra(
            contact_points="127.0.0.1", port=ports.fixed("cassandra"), user="cassandra", password=SecretStr("cassandra"), ssl=True,
            ssl_ca_file=str(home / "authority.pem"),
        )  # fmt: skip
        try:
            yield Node(settings, str(home / "foreign.pem"), process.pid, home / "node.p12")
        finally:
            end(process)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with _running(tmp_path_factory.mktemp("cassandra")) as found:
        eventually(lambda: _version(found.settings) is not None, 180)
        yield found


def _version(settings: Cassandra) -> str | None:
    try:
        session = open_session(settings)
    except DatabaseUnavailable:
        return None
    try:
        version: str = session.execute("SELECT release_version FROM system.local").one()["release_version"]
    finally:
        session.cluster.shutdown()
    return version


def test_a_session_has_tls_and_a_password(node: Node) -> None:
    assert _version(node.settings) is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"password": SecretStr("wrong")}, "Bad credentials|incorrect"),
        ({"ssl_ca_file": "foreign"}, "certificate verify failed"),
        ({"ssl": False, "ssl_ca_file": None}, "no Cassandra node at 127.0.0.1"),
    ],
)
def test_a_node_that_refuses_is_named_with_the_reason(node: Node, change: dict[str, object], message: str) -> None:
    changed = {name: node.foreign_authority if value == "foreign" else value for name, value in change.items()}
    with pytest.raises(DatabaseUnavailable, match=message):
        open_session(node.settings.model_copy(update=changed))


def test_files_without_tls_are_refused() -> None:
    with pytest.raises(ValidationError, match="ssl_ca_file has no effect without ssl: set it to true"):
        Cassandra(contact_points="a", ssl_ca_file="ca.pem")
    with pytest.raises(ValidationError, match="ssl_certificate_file and ssl_key_file belong together"):
        Cassandra(contact_points="a", ssl=True, ssl_key_file="key.pem")


@pytest.mark.long
def test_the_certificate_of_a_node_is_rotated_while_a_session_is_open(node: Node, tmp_path: Path) -> None:
    """The steps of docs/explanation/security.md. The last test: the node keeps the new certificate."""
    authority, both, new = Authority("The next authority"), tmp_path / "both.pem", tmp_path / "new.pem"
    old = Path(str(node.settings.ssl_ca_file))
    both.write_bytes(old.read_bytes() + authority.certificate)
    new.write_bytes(authority.certificate)

    def trusting(path: Path) -> Cassandra:
        return node.settings.model_copy(update={"ssl_ca_file": str(path)})

    session = open_session(trusting(both))
    try:
        node.keystore.write_bytes(authority.keystore("node", "keystore"))
        with nodetool_of(node.pid, tmp_path) as run:
            run("reloadssl")
            with pytest.raises(DatabaseUnavailable, match="certificate verify failed"):
                open_session(trusting(old))
            assert session.execute("SELECT release_version FROM system.local").one() is not None  # open connections continue
            # Every connection is closed: the session opens new ones, which meet the new certificate.
            run("disablebinary")
            run("enablebinary")
        eventually(lambda: _answers(session), 120)
    finally:
        session.cluster.shutdown()
    assert _version(trusting(new)) is not None


def _answers(session: Session) -> bool:
    try:
        return session.execute("SELECT release_version FROM system.local").one() is not None
    except (NoHostAvailable, OperationTimedOut):
        return False
