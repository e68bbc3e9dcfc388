"""Wiring: settings to the running job."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Event

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from starling_common.health import HealthServer
from starling_common.metrics import Metrics
from starling_common.wire import Registry
from starling_spark.groups import GroupOffsets
from starling_spark.lake.batches import LakeWriter, Source
from starling_spark.lake.holding import held
from starling_spark.lake.iceberg import Lake, iceberg_config, local_warehouse
from starling_spark.lake.job import Batches, start, upkeep_of
from starling_spark.lake.settings import LakeSettings
from starling_spark.lake.tables import TABLES, LakeTable, renamed
from starling_spark.query_metrics import QueryMetrics
from starling_spark.running import Follower, Running
from starling_spark.session import open_session
from starling_spark.sources import kafka_spans


@contextmanager
def opened(settings: LakeSettings) -> Iterator[tuple[SparkSession, Lake]]:
    """A session with the lake's catalog, and the warehouse held. Raises: WarehouseInUse, JarMissing."""
    with held(local_warehouse(settings)):
        spark = open_session("lake", settings, iceberg_config(settings))
        try:
            yield spark, Lake(spark, settings.lake_namespace)
        finally:
            spark.stop()


def run_lake(settings: LakeSettings, stopping: Event) -> None:
    """The streaming job, until `stopping`.

    Raises: StreamingQueryException, WarehouseInUse, JarMissing, RegistryUnavailable, SchemaMissing, OSError.
    """
    metrics, group = Metrics(CollectorRegistry()), GroupOffsets(settings.kafka.brokers, settings.lake_group)
    follower = Follower(group)
    health = HealthServer(
        (settings.http.host, settings.http.port), metrics.registry, alive=dict, ready=lambda: {"query": follower.problem()}
    )
    with ExitStack() as stack:
        stack.callback(group.close)
        health.start()
        stack.callback(health.stop)
        spark, lake = stack.enter_context(opened(settings))
        tables = lake_tables(settings)
        again = partial(kafka_spans, spark, settings.kafka.brokers)
        writer = LakeWriter(lake, tables, Source(Registry(settings.registry.url), settings.registry.url), again)
        with_headers = not writer.open().is_directory
        upkeep = upkeep_of(lake, tables, settings, metrics)
        batches = Batches(writer, upkeep, metrics, settings.lake_upkeep_minutes * 60)
        query = start(spark, settings, tables, batches, headers=with_headers)
        follower.follow([Running(query, QueryMetrics(metrics, "lake"))], stopping, settings.lake_stop_seconds)


def run_upkeep(settings: LakeSettings) -> None:
    """One upkeep of all tables. Raises: WarehouseInUse, JarMissing."""
    with opened(settings) as (_, lake):
        upkeep_of(lake, lake_tables(settings), settings, Metrics(CollectorRegistry()))()


def lake_tables(settings: LakeSettings) -> tuple[LakeTable, ...]:
    """The tables, of the topics as they are named here."""
    return renamed(TABLES, settings.lake_topic_prefix)
