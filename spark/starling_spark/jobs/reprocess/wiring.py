"""Wiring: settings to a place where reprocessings are made."""

from collections.abc import Iterator
from contextlib import contextmanager

from starling_common.topics import load_catalogue
from starling_common.wire import Registry
from starling_spark.jobs.reprocess.place import CARRIED, Place
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.lakehouse.iceberg import Lake, iceberg_config, local_warehouse
from starling_spark.lakehouse.warehouse_lock import locked_warehouse
from starling_spark.session.spark import open_session


@contextmanager
def opened(settings: ReprocessSettings) -> Iterator[Place]:
    """Raises: WarehouseInUse when another reprocessing is at work, JarMissing, RegistryUnavailable, SchemaMissing."""
    # It writes to no table that the lake's own job writes to, which may go on.
    with locked_warehouse(local_warehouse(settings), ".reprocess.lock"):
        wire = reprocess_wire(settings)
        spark = open_session("reprocess", settings, iceberg_config(settings))
        try:
            yield Place(spark, wire, settings, Lake(spark, settings.lake_namespace))
        finally:
            spark.stop()


def reprocess_wire(settings: ReprocessSettings) -> Wire:
    """What the topics carry. Raises: RegistryUnavailable, SchemaMissing."""
    schemas = load_catalogue().topics
    topics = [(settings.lake_topic_prefix + topic, schemas[topic].schema) for topic in CARRIED]
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, topics)
