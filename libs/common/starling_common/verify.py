"""Edge: compares an installation with the catalogue of this release: topics, schemas, tables and the readiness of services.

Run it as `python -m starling_common.verify` with the settings of the deploy step. It changes nothing, prints a line for each part,
and exits with 1 if a part is wrong. `helm test` runs it.
"""

import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import Field

from starling_common.cassandra.sessions import DatabaseUnavailable, open_session, table_names
from starling_common.deploy import DeploySettings, copies_of
from starling_common.kafka.security import connection_config
from starling_common.kafka.topics import Topic, load_catalogue
from starling_common.settings import Cassandra
from starling_common.wire import Registry, RegistryUnavailable, SchemaMissing

_TIMEOUT_SECONDS: Final = 30.0
_DEPLOY: Final = "run `python -m starling_common.deploy` of this release"
_TABLES: Final = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"


class VerifySettings(DeploySettings):
    """The settings of the check: those of the deploy step, and the services to ask."""

    verify_urls: str = Field(
        default="", description="URLs that must answer 200, separated by commas, such as http://api:8080/readyz"
    )


def verify(settings: VerifySettings) -> dict[str, list[str]]:
    """Return what is wrong, by part; an empty list for a part that is right."""
    topics = list(load_catalogue(settings.profile_partitions).topics.values())
    checks: Mapping[str, Callable[[], list[str]]] = {
        f"broker {settings.kafka.brokers}": lambda: wrong_topics(settings.kafka.brokers, topics, settings.replication_factor),
        f"registry {settings.registry.url}": lambda: wrong_schemas(Registry(settings.registry.url), topics),
        f"Cassandra {settings.cassandra.contact_points}": lambda: wrong_tables(settings.cassandra),
        **{url: partial(_wrong_answer, url) for url in filter(None, map(str.strip, settings.verify_urls.split(",")))},
    }
    return {part: _problems(check) for part, check in checks.items()}


def wrong_topics(brokers: str, topics: Sequence[Topic], replication_factor: int = 1) -> list[str]:
    """Return what is wrong with the topics. `replication_factor`: the least number of replicas. Raises: KafkaException."""
    existing = AdminClient(connection_config(brokers)).list_topics(timeout=_TIMEOUT_SECONDS).topics
    wrong = []
    for topic in topics:
        if topic.name not in existing:
            wrong.append(f"topic {topic.name} is missing: {_DEPLOY}")
        elif (count := len(existing[topic.name].partitions)) != topic.partitions:
            wrong.append(f"topic {topic.name} has {count} partitions, not {topic.partitions}: set STARLING_PROFILE_PARTITIONS")
        elif (copies := copies_of(existing[topic.name])) < replication_factor:
            wrong.append(
                f"topic {topic.name} has {copies} replicas, not {replication_factor}: add some with kafka-reassign-partitions"
            )
        elif leaderless := sorted(number for number, one in existing[topic.name].partitions.items() if one.leader < 0):
            wrong.append(f"topic {topic.name}: the partitions {leaderless} have no leader: check the brokers")
    return wrong


def wrong_schemas(registry: Registry, topics: Sequence[Topic]) -> list[str]:
    """Return what is wrong with the schemas. Raises: RegistryUnavailable."""
    wrong = []
    for topic in topics:
        try:
            registry.codec(topic.name, topic.schema)
        except SchemaMissing as missing:
            wrong.append(str(missing))
    return wrong


def wrong_tables(settings: Cassandra) -> list[str]:
    """Return what is wrong with the tables. Raises: DatabaseUnavailable."""
    session = open_session(settings)
    try:
        present = {row["table_name"] for row in session.execute(_TABLES, (settings.keyspace,))}
    finally:
        session.cluster.shutdown()
    return [f"table {settings.keyspace}.{name} is missing: {_DEPLOY}" for name in table_names() if name not in present]


def _wrong_answer(url: str) -> list[str]:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the operator's own address
            return [] if answer.status == HTTPStatus.OK else [f"answered {answer.status}"]
    except urllib.error.HTTPError as refused:
        return [f"answered {refused.code}: {refused.read(1_000).decode(errors='replace')}"]


def _problems(check: Callable[[], list[str]]) -> list[str]:
    try:
        return check()
    except (KafkaException, RegistryUnavailable, DatabaseUnavailable, OSError, ValueError) as cause:
        return [f"no answer: {cause}"]


def main() -> int:
    """Print the result of each part; return the exit code."""
    found = verify(VerifySettings())
    for part, problems in found.items():
        for problem in problems:
            sys.stdout.write(f"wrong  {part}: {problem}\n")
        if not problems:
            sys.stdout.write(f"right  {part}\n")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
