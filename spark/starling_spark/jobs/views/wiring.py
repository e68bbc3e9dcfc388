"""Wiring: builds the job from its settings and starts it."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from threading import Event

from prometheus_client import CollectorRegistry

from starling_common.cassandra.database import Database
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Registry
from starling_spark.jobs.views.catalogue import views
from starling_spark.jobs.views.job import ViewsContext, checkpoints_of, groups_of, start_group, start_refusals
from starling_spark.jobs.views.settings import ViewsSettings
from starling_spark.jobs.views.store import ViewStore
from starling_spark.jobs.views.view import View
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.lineage.datasets import Flow, cassandra_tables, kafka_topics
from starling_spark.lineage.runs import JobName, RunLineage
from starling_spark.session.lineage import observed, opened_lineage
from starling_spark.session.running import Follower, Running
from starling_spark.session.spark import open_session


def run_views(settings: ViewsSettings, stopping: Event) -> None:
    """Run all views until `stopping`.

    Raises: StreamingQueryException, JarMissing, RegistryUnavailable, SchemaMissing, DatabaseUnavailable, KafkaException, OSError.
    """
    metrics, group = Metrics(CollectorRegistry()), GroupOffsets(settings.kafka.brokers, settings.views_group)
    follower, database, wanted = Follower(group), Database(settings.cassandra), views()
    health = HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=follower.failures,
        ready=lambda: {"queries": follower.problem(), "database": database.problem()},
    )
    topics = sorted({settings.views_topic_prefix + view.topic for view in wanted})
    with ExitStack() as stack:
        stack.callback(group.close)
        stack.callback(database.close)
        health.start()
        stack.callback(health.stop)
        wire = _wire(settings, wanted)
        history = group.ends(topics)
        spark = open_session("views", settings, is_streaming=True)
        stack.callback(spark.stop)
        context = ViewsContext(spark, settings, wire, max(1 + number for _, number in history), history, metrics)
        lineage = stack.enter_context(opened_lineage(settings, metrics))
        run_of = {
            view.name: stack.enter_context(
                lineage.run(JobName(f"views.{view.name}", is_streaming=True), partial(_flow, settings, view), stopping.is_set)
            )
            for view in wanted
        }
        queries = _started(context, wanted, database, run_of)
        by_topic = {topic: [view for view in wanted if settings.views_topic_prefix + view.topic == topic] for topic in topics}
        queries += [start_refusals(context, topic, own) for topic, own in by_topic.items()]
        follower.follow(queries, stopping, settings.views_stop_seconds)


def _started(context: ViewsContext, wanted: Sequence[View], database: Database, run_of: Mapping[str, RunLineage]) -> list[Running]:
    """Start the queries of all views. `run_of`: by the name of a view."""
    checkpoints, queries = checkpoints_of(context), []
    for group in groups_of(context, checkpoints, wanted):
        stores = [ViewStore(database, view) for view in group.views.values()]
        running = start_group(context, group, checkpoints, stores, partial(_report, context.settings, run_of))
        for view in group.views.values():
            running = observed(running, run_of[view.name])
        queries.append(running)
    return queries


def _report(settings: ViewsSettings, run_of: Mapping[str, RunLineage], rows: Mapping[str, int]) -> None:
    for view, count in rows.items():
        run_of[view].wrote({f"{settings.cassandra.keyspace}.view_rows": count})


def _flow(settings: ViewsSettings, view: View) -> Flow:
    cassandra, tables = settings.cassandra, ("view_rows", "view_windows", "view_catalogue", "view_progress")
    rows = cassandra_tables(cassandra.contact_points, cassandra.port, cassandra.keyspace, *tables)
    topic, letters = settings.views_topic_prefix + view.topic, settings.views_dead_letters_topic
    return Flow(kafka_topics(settings.kafka.brokers, topic), (*rows, *kafka_topics(settings.kafka.brokers, letters)))


def _wire(settings: ViewsSettings, wanted: tuple[View, ...]) -> Wire:
    records = {settings.views_topic_prefix + view.topic: view.record for view in wanted}
    records[settings.views_dead_letters_topic] = "DeadLetter"
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, records.items())
