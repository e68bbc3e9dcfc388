"""Edge: the deploy step. It creates topics, schemas and tables, is safe to repeat, and refuses incompatible changes.

Run it as `python -m starling_common.deploy` with the settings of the services. After an error it prints the cause and exits with 1.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from pydantic import Field
from pydantic_settings import BaseSettings

from starling_common.cassandra.database import Database
from starling_common.cassandra.migrations import move_user_tables
from starling_common.cassandra.sessions import DatabaseUnavailable, create_tables, open_session
from starling_common.kafka.security import connection_config
from starling_common.kafka.topics import Topic, load_catalogue
from starling_common.settings import FROM_ENVIRONMENT, Cassandra, Kafka, SchemaRegistry
from starling_common.telemetry.logs import log
from starling_common.wire import Registry, RegistryUnavailable

_TIMESTAMPS, _APPENDED = "message.timestamp.type", "LogAppendTime"
_AHEAD = "message.timestamp.after.max.ms"
_IN_SYNC = "min.insync.replicas"
_LISTED_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1


class DeployFailed(Exception):
    """The installation contradicts the catalogue; the message names the cure."""


class DeploySettings(BaseSettings):
    """The settings of the deploy step."""

    model_config = FROM_ENVIRONMENT

    kafka: Kafka
    registry: SchemaRegistry
    cassandra: Cassandra
    replication_factor: int = Field(default=1, ge=1, le=7, description="replication factor of new topics")
    acknowledge_single_copy: bool = Field(
        default=False, description="accept replication factor 1, with which the loss of a node loses data; for development"
    )
    profile_partitions: int | None = Field(
        default=None, ge=1, le=10_000, description="number of partitions of profile-keyed topics; overrides topics.yaml"
    )


def deploy(settings: DeploySettings) -> None:
    """Create the topics, then register the schemas, then create the tables and move the rows of an earlier release into them.

    Raises: DeployFailed, RegistryUnavailable, DatabaseUnavailable.
    """
    _check_copies(settings)
    catalogue = load_catalogue(settings.profile_partitions)
    topics = list(catalogue.topics.values())
    create_topics(AdminClient(connection_config(settings.kafka.brokers)), topics, settings.replication_factor)
    register_schemas(Registry(settings.registry.url), topics)
    session = open_session(settings.cassandra)
    try:
        create_tables(session, settings.cassandra)
    finally:
        session.cluster.shutdown()
    database = Database(settings.cassandra)
    try:
        moved = move_user_tables(database, settings.cassandra.keyspace, catalogue.profile_partitions)
    finally:
        database.close()
    for table, rows in moved.items():
        log(__name__).info("table_moved", table=table, rows=rows)


def _check_copies(settings: DeploySettings) -> None:
    """Raise DeployFailed if the loss of one node loses data, unless that is acknowledged."""
    factors = {
        "STARLING_REPLICATION_FACTOR": (settings.replication_factor, "broker", "records"),
        "STARLING_CASSANDRA__REPLICATION_FACTOR": (settings.cassandra.replication_factor, "Cassandra node", "rows"),
    }
    wrong = [f"{name} is 1: the loss of a {node} loses {lost}" for name, (factor, node, lost) in factors.items() if factor == 1]
    if wrong and not settings.acknowledge_single_copy:
        raise DeployFailed("; ".join(wrong) + ". Set 3, or STARLING_ACKNOWLEDGE_SINGLE_COPY=true for development")


def in_sync_replicas(replication_factor: int) -> int:
    """Return `min.insync.replicas` of a topic: an acknowledged record is on two brokers if there are two copies."""
    return min(2, replication_factor)


def create_topics(admin: AdminClient, topics: Sequence[Topic], replication_factor: int) -> None:
    """Create the missing topics, and update the others.

    Raises: DeployFailed if a topic has another number of partitions, because users would move; or fewer replicas.
    """
    listed = admin.list_topics(timeout=30).topics
    present = [topic for topic in topics if topic.name in listed]
    _check_topics(present, listed, replication_factor)
    refused = _create(admin, [topic for topic in topics if topic.name not in listed], replication_factor)
    if refused:  # a broker that lags does not list a new topic
        listed = _await_listed(admin, refused)
        _check_topics(refused, listed, replication_factor)
    _update(admin, present + refused, {topic.name: copies_of(listed[topic.name]) for topic in present + refused})


def _check_topics(topics: Sequence[Topic], listed: Mapping[str, TopicMetadata], replication_factor: int) -> None:
    """Raise DeployFailed if one has fewer replicas, or another number of partitions."""
    copies = {topic.name: copies_of(listed[topic.name]) for topic in topics}
    few = [f"{name} has {count} replicas, not {replication_factor}" for name, count in copies.items() if count < replication_factor]
    if few:
        cure = "add replicas with kafka-reassign-partitions, or deploy with the present STARLING_REPLICATION_FACTOR"
        raise DeployFailed(f"{'; '.join(few)}: {cure}")
    wrong = [
        f"{topic.name} has {len(listed[topic.name].partitions)} partitions, not {topic.partitions}"
        for topic in topics
        if len(listed[topic.name].partitions) != topic.partitions
    ]
    if wrong:
        raise DeployFailed("; ".join(wrong) + ": the number of partitions can never change, deploy with the present number")


def _await_listed(admin: AdminClient, topics: Sequence[Topic]) -> dict[str, TopicMetadata]:
    """Return the metadata of all topics, once these are among them. Raises: DeployFailed after half a minute."""
    deadline = time.monotonic() + _LISTED_SECONDS
    while True:
        listed: dict[str, TopicMetadata] = admin.list_topics(timeout=30).topics
        absent = [topic.name for topic in topics if topic.name not in listed]
        if not absent:
            return listed
        if time.monotonic() > deadline:
            raise DeployFailed(f"{', '.join(absent)}: the brokers neither list nor create these topics; deploy again")
        time.sleep(_POLL_SECONDS)


def copies_of(topic: TopicMetadata) -> int:
    """Return the number of replicas of the partition with the fewest."""
    return min(len(partition.replicas) for partition in topic.partitions.values())


def _update(admin: AdminClient, topics: Sequence[Topic], copies: Mapping[str, int]) -> None:
    """Update topics that an older release created: raise limits, unless an operator set higher ones; timestamps.

    `copies`: topic -> its number of replicas.
    """
    places = {topic.name: ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics}
    if not places:
        return
    known = {place.name: future.result() for place, future in admin.describe_configs(list(places.values())).items()}
    changed = []
    for topic in topics:
        wanted = {}
        if int(known[topic.name]["max.message.bytes"].value or 0) < (topic.max_record_bytes or 0):
            wanted["max.message.bytes"] = str(topic.max_record_bytes)
        if topic.broker_timestamps and known[topic.name][_TIMESTAMPS].value != _APPENDED:
            wanted[_TIMESTAMPS] = _APPENDED
        if topic.ahead_ms is not None and int(known[topic.name][_AHEAD].value or 0) > topic.ahead_ms:
            wanted[_AHEAD] = str(topic.ahead_ms)
        if int(known[topic.name][_IN_SYNC].value or 0) < in_sync_replicas(copies[topic.name]):
            wanted[_IN_SYNC] = str(in_sync_replicas(copies[topic.name]))
        for name, value in wanted.items():
            places[topic.name].add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        if wanted:
            changed.append(places[topic.name])
    if changed:
        for altered in admin.incremental_alter_configs(changed).values():
            altered.result()


def register_schemas(registry: Registry, topics: Iterable[Topic]) -> None:
    """Register every subject. Raises: DeployFailed with every incompatible subject, RegistryUnavailable."""
    refused: list[str] = []
    for topic in topics:
        try:
            registry.register(topic.subject, topic.schema, topic.compatibility)
        except ValueError as error:
            refused.append(str(error))
    if refused:
        raise DeployFailed("; ".join(refused))


def _new_topic(topic: Topic, replication_factor: int) -> NewTopic:
    config = {"cleanup.policy": topic.cleanup, _IN_SYNC: str(in_sync_replicas(replication_factor))}
    if topic.cleanup == "delete":
        config["retention.ms"] = str(topic.retention_ms)
    else:
        config["min.compaction.lag.ms"] = str(topic.compaction_lag_ms)
    if topic.max_record_bytes is not None:
        config["max.message.bytes"] = str(topic.max_record_bytes)
    if topic.broker_timestamps:
        config[_TIMESTAMPS] = _APPENDED
    if topic.ahead_ms is not None:
        config[_AHEAD] = str(topic.ahead_ms)
    if topic.segment_bytes is not None:
        config["segment.bytes"] = str(topic.segment_bytes)
    return NewTopic(topic.name, topic.partitions, replication_factor, config=config)


def _create(admin: AdminClient, topics: Sequence[Topic], replication_factor: int) -> list[Topic]:
    """Create the topics; return those that exist already. Raises: DeployFailed."""
    new = [_new_topic(topic, replication_factor) for topic in topics]
    pending = admin.create_topics(new, operation_timeout=30) if new else {}
    existing = []
    for topic in topics:
        try:
            pending[topic.name].result()
        except KafkaException as cause:
            if cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise DeployFailed(f"topic {topic.name} could not be created: {cause.args[0].str()}") from cause
            existing.append(topic)
    return existing


def main() -> int:
    """Run the deploy step; return the exit code."""
    try:
        deploy(DeploySettings())
    except (DeployFailed, RegistryUnavailable, DatabaseUnavailable, KafkaException) as error:
        sys.stderr.write(f"deploy: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
