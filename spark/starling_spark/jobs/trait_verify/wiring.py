"""Wiring: builds the context of a run from the settings."""

from collections.abc import Iterator
from contextlib import contextmanager

from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from starling_spark.jobs.trait_verify.context import TOPICS, VerifyContext
from starling_spark.jobs.trait_verify.settings import TraitVerifySettings
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.lakehouse.pinned import reading
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session


@contextmanager
def opened(settings: TraitVerifySettings) -> Iterator[VerifyContext]:
    """Yield the context of a run. Raises: JarMissing, RegistryUnavailable, SchemaMissing."""
    wire = verify_wire(settings)
    spark = open_session("trait-verify", settings, iceberg_config(settings) if settings.lake_warehouse else {})
    try:
        with opened_lineage(settings) as lineage, reading(spark, settings, "trait-verify") as lake:
            yield VerifyContext(spark, wire, settings, lake, lineage=lineage)
    finally:
        spark.stop()


def verify_wire(settings: TraitVerifySettings) -> Wire:
    """Return the schemas of the topics. Raises: RegistryUnavailable, SchemaMissing."""
    schemas = load_catalogue().topics
    topics = [(settings.trait_verify_topic_prefix + topic, schemas[topic].schema) for topic in TOPICS]
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, topics)
