"""Adapter: Cassandra sessions, and the creation of the tables."""

import re
import ssl
from typing import Any, Final

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.query import dict_factory

from starling_common.failures import InstallationFailure
from starling_common.schemas import schema_directory
from starling_common.security.tls import tls_context
from starling_common.settings import Cassandra

_TABLE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")


class DatabaseFailed(InstallationFailure):
    """Cassandra, or its client, failed in a way that a repeated call does not correct."""


class DatabaseUnavailable(InstallationFailure):
    """Cassandra did not respond. The same call can succeed later."""


class ConnectionsLost(DatabaseUnavailable):
    """No node has a connection. A node that was killed may have lost writes that it acknowledged just before."""


class StatementRefused(DatabaseUnavailable):
    """Cassandra refuses the statement as invalid: a table or a column is missing, or its values do not fit, such as a long key.

    A missing table can be created later, so most callers wait for it as for a database that does not respond.
    """


def open_session(settings: Cassandra, *, keyspace: str | None = None) -> Session:
    """Return a session whose rows are dicts; `session.cluster.shutdown()` closes it.

    Raises: DatabaseUnavailable.
    """
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()), row_factory=dict_factory, request_timeout=10
    )
    cluster = Cluster(
        settings.contact_points.split(","),
        port=settings.port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        auth_provider=_credentials(settings),
        ssl_context=_tls(settings),
        # The driver's default policy waits up to ten minutes between attempts to reconnect.
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 10.0),
        # A busy node needs more than the driver's default of two seconds to return the schema.
        control_connection_timeout=10.0,
        protocol_version=5,
    )
    try:
        return cluster.connect(keyspace)
    except NoHostAvailable as cause:
        cluster.shutdown()
        raise DatabaseUnavailable(f"no Cassandra node at {settings.contact_points}:{settings.port} responds: {cause}") from cause


def create_tables(session: Session, settings: Cassandra) -> None:
    """Create the missing keyspace and tables; safe to repeat."""
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {settings.keyspace} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {settings.replication_factor}}}"
    )
    session.set_keyspace(settings.keyspace)
    for statement in table_statements():
        session.execute(statement)


def table_statements() -> list[str]:
    """Return the statements of `schemas/avro/tables.cql`."""
    text = (schema_directory() / "tables.cql").read_text()
    lines = [line for line in text.splitlines() if not line.strip().startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


def table_names() -> list[str]:
    """Return the names of the tables of `schemas/avro/tables.cql`."""
    return [found[1] for statement in table_statements() if (found := _TABLE.match(statement))]


def _tls(settings: Cassandra) -> ssl.SSLContext | None:
    if not settings.ssl:
        return None
    own = settings.ssl_certificate_file
    certificate = None if own is None else (own, settings.ssl_key_file, settings.ssl_key_password)
    return tls_context(settings.ssl_ca_file, certificate, check_hostname=settings.ssl_check_hostname)


def _credentials(settings: Cassandra) -> Any:
    if settings.user is None or settings.password is None:
        return None
    return PlainTextAuthProvider(settings.user, settings.password.get_secret_value())
