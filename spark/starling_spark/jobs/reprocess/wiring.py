"""Wiring: builds the context of a reprocessing from the settings."""

from collections.abc import Iterator
from contextlib import contextmanager

from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from starling_spark.jobs.reprocess.context import CARRIED, RunContext
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.lakehouse.iceberg import Lake, iceberg_config, local_warehouse
from starling_spark.lakehouse.warehouse_lock import locked_warehouse
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session


@contextmanager
def opened(settings: ReprocessSettings) -> Iterator[RunContext]:
    """Yield the context of a run.

    Raises: WarehouseInUse when another reprocessing runs, JarMissing, RegistryUnavailable, SchemaMissing.
    """
    # The lake job may run at the same time, because it writes to other tables.
    with locked_warehouse(local_warehouse(settings), ".reprocess.lock"):
        wire = reprocess_wire(settings)
        spark = open_session("reprocess", settings, iceberg_config(settings))
        try:
            with opened_lineage(settings) as lineage:
                yield RunContext(spark, wire, settings, Lake(spark, settings.lake_namespace), lineage)
        finally:
            spark.stop()


def reprocess_wire(settings: ReprocessSettings) -> Wire:
    """Return the schemas of the topics. Raises: RegistryUnavailable, SchemaMissing."""
    schemas = load_catalogue().topics
    topics = [(settings.lake_topic_prefix + topic, schemas[topic].schema) for topic in CARRIED]
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, topics)
