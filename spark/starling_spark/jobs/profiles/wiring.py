"""Wiring: builds the job from its settings and starts it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from starling_common.failpoints.ending import Ending
from starling_common.kafka.clients import BrokerUnavailable, partitions_of
from starling_common.kafka.security import connection_config
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Registry
from starling_spark.directories import directory_at
from starling_spark.jobs.profiles.definitions.catalogue import TraitCatalogue
from starling_spark.jobs.profiles.job import STEP, ProfilesDependencies, ProfilesJob
from starling_spark.jobs.profiles.query.past import PastEvents
from starling_spark.jobs.profiles.query.positions import GroupPositions
from starling_spark.jobs.profiles.query.published import Published
from starling_spark.jobs.profiles.query.queries import QueryOptions
from starling_spark.jobs.profiles.query.transform import Job, Topics
from starling_spark.jobs.profiles.settings import ProfilesSettings
from starling_spark.kafka.codec import topic_schemas
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.lakehouse.iceberg import Lake, iceberg_config
from starling_spark.lakehouse.pinned import reading
from starling_spark.lineage.datasets import Flow, kafka_topics
from starling_spark.lineage.runs import JobName
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import check_python, open_session

_QUERY = {
    # Spark would read each row before it writes it, in order to count the new ones. The job counts its users itself.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # A task that folds histories is short, so that the live query gets a core soon.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4m",
}
_POOLS = Path(__file__).parent / "pools.xml"


@contextmanager
def profiles_job(settings: ProfilesSettings, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[ProfilesJob]:
    """Yield the job, with its definitions read and its health endpoint started; close everything at the end.

    `is_stopping`: whether an error at the end is that of a stop.
    Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing, OSError. Its `run` also: JarMissing, PythonMissing.
    """
    topic = settings.profiles_definitions_topic
    registry = Registry(settings.registry.url)
    catalogue = TraitCatalogue(settings.kafka.brokers, topic, registry.codec(topic, "DefinitionChanged"))
    group = GroupOffsets(settings.kafka.brokers, settings.profiles_group)
    spark, close_spark = _opened_once(settings)
    metrics = Metrics(CollectorRegistry())
    plain = _job(settings, registry)
    published = Published(settings.kafka.brokers, plain.topics, registry.codec(plain.topics.aggregates, "AggregateComputed"))
    ending = Ending(settings.failpoint, STEP)
    with ExitStack() as stack:
        for close in (group.close, published.close, close_spark, catalogue.stop):
            stack.callback(close)
        lineage = stack.enter_context(opened_lineage(settings, metrics))
        run = lineage.run(JobName("profiles", is_streaming=True), partial(_flow, settings), is_stopping)
        seen = stack.enter_context(run)
        past = PastEvents(plain.topics.events, published.events, partial(_lake, settings, spark))
        dependencies = ProfilesDependencies(
            catalogue, GroupPositions(group), published, past, spark, metrics, ending, seen.reached, seen.wrote
        )
        job = ProfilesJob(dependencies, _query_options(settings, spark), plain)
        health = HealthServer((settings.http.host, settings.http.port), metrics.registry, alive=job.failures, ready=job.checks)
        health.start()
        stack.callback(health.stop)
        catalogue.start()
        yield job


@contextmanager
def _lake(settings: ProfilesSettings, open_spark: Callable[[], SparkSession]) -> Iterator[Lake | None]:
    with reading(open_spark(), settings, "profiles") as lake:
        yield lake


def _flow(settings: ProfilesSettings) -> Flow:
    brokers = settings.kafka.brokers
    inputs = (settings.profiles_events_topic, settings.profiles_clock_topic, settings.profiles_definitions_topic)
    outputs = (settings.profiles_aggregates_topic, settings.profiles_dead_letters_topic)
    return Flow(kafka_topics(brokers, *inputs), kafka_topics(brokers, *outputs))


def _opened_once(settings: ProfilesSettings) -> tuple[Callable[[], SparkSession], Callable[[], None]]:
    opened: list[SparkSession] = []

    def spark() -> SparkSession:
        if not opened:
            check_python()
            pools = {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": _POOLS.as_uri()}
            lake = iceberg_config(settings) if settings.lake_warehouse else {}
            opened.append(open_session("profiles", settings, {**pools, **_QUERY, **lake}, is_streaming=True))
        return opened[0]

    def close() -> None:
        for session in opened:
            session.stop()

    return spark, close


def _job(settings: ProfilesSettings, registry: Registry) -> Job:
    topics = Topics(
        events=settings.profiles_events_topic,
        clock=settings.profiles_clock_topic,
        aggregates=settings.profiles_aggregates_topic,
        dead_letters=settings.profiles_dead_letters_topic,
    )
    records = {
        topics.events: "BehaviourEvent",
        topics.clock: "ClockAdvanced",
        topics.aggregates: "AggregateComputed",
        topics.dead_letters: "DeadLetter",
    }
    return Job(topics, topic_schemas(registry, settings.registry.url, records.items()), settings.clock)


def partition_count(brokers: str, topic: str, timeout_seconds: float = 30.0) -> int:
    """Return the number of partitions of the topic. Raises: BrokerUnavailable, also without the topic."""
    try:
        return len(partitions_of(AdminClient(connection_config(brokers)), topic, timeout_seconds))
    except KafkaException as cause:
        raise BrokerUnavailable(f"{topic}: {cause.args[0].str()}") from cause


def _query_options(settings: ProfilesSettings, open_spark: Callable[[], SparkSession]) -> QueryOptions:
    return QueryOptions(
        brokers=settings.kafka.brokers,
        partitions=partition_count(settings.kafka.brokers, settings.profiles_events_topic),
        checkpoints=directory_at(settings.checkpoint_dir, open_spark) / "profiles",
        state_partitions=settings.spark_state_partitions,
        trigger_seconds=settings.profiles_trigger_seconds,
        seeded_users=settings.profiles_seeded_users,
        batch_records=settings.profiles_batch_records,
        copy_megabytes=settings.profiles_copy_megabytes,
    )
