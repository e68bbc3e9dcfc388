"""Wiring: builds the job from its settings and starts it."""

from contextlib import ExitStack
from functools import partial
from threading import Event

from prometheus_client import CollectorRegistry

from starling_common.failpoints.ending import Ending
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Registry
from starling_spark.jobs.lake.batches import LakeWriter, Source
from starling_spark.jobs.lake.job import Batches, start
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.kafka.sources import kafka_spans
from starling_spark.lakehouse.access import lake_tables, opened, upkeep_of
from starling_spark.lakehouse.iceberg import COMMITS
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lakehouse.schema.tables import QUARANTINE
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lineage.datasets import Flow, kafka_topics
from starling_spark.lineage.runs import JobName
from starling_spark.session.lineage import observed, opened_lineage
from starling_spark.session.query_metrics import QueryMetrics, count_refused
from starling_spark.session.running import Follower, Running


def run_lake(settings: LakeSettings, stopping: Event) -> None:
    """Run the streaming job until `stopping`.

    Raises: StreamingQueryException, WarehouseInUse, JarMissing, RegistryUnavailable, SchemaMissing, OSError.
    """
    metrics, group = Metrics(CollectorRegistry()), GroupOffsets(settings.kafka.brokers, settings.lake_group)
    follower = Follower(group)
    health = HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=follower.failures,
        ready=lambda: {"query": follower.problem()},
    )
    with ExitStack() as stack:
        stack.callback(group.close)
        health.start()
        stack.callback(health.stop)
        spark, lake = stack.enter_context(opened(settings, Ending(settings.failpoint, COMMITS).passed))
        tables = lake_tables(settings)
        reread = partial(kafka_spans, spark, settings.kafka.brokers)
        source = Source(Registry(settings.registry.url), settings.registry.url)
        writer = LakeWriter(lake, tables, source, reread, partial(count_refused, metrics, "lake"))
        with_headers = not writer.open().workers_write
        names = [*(table.name for table in tables), QUARANTINE]
        topics = [topic for table in tables for topic in table.topics]
        lineage = stack.enter_context(opened_lineage(settings, metrics))
        upkeep = upkeep_of(lake, tables, settings, metrics, lineage, stopping.is_set)
        flow = Flow(kafka_topics(settings.kafka.brokers, *topics))
        outputs = partial(table_datasets, lake, *names, versions=False)
        job = JobName("lake", is_streaming=True)
        run = stack.enter_context(lineage.run(job, lambda: flow._replace(outputs=outputs()), stopping.is_set))
        batches = Batches(writer, upkeep, metrics, settings.lake_upkeep_minutes * 60, run.wrote)
        query = start(spark, settings, tables, batches, headers=with_headers)
        running = observed(Running("lake", query, QueryMetrics(metrics, "lake")), run)
        follower.follow([running], stopping, settings.lake_stop_seconds)
