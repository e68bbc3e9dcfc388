"""Wiring: builds the context of a replay from the settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from starling_spark.jobs.replay.place import TOPICS, ReplayContext
from starling_spark.jobs.replay.settings import ReplaySettings
from starling_spark.kafka.codec import Wire, topic_schemas
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.lakehouse.pinned import reading
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session


@contextmanager
def opened(settings: ReplaySettings) -> Iterator[ReplayContext]:
    """Yield the context of a run. Raises: JarMissing, RegistryUnavailable, SchemaMissing."""
    wire = replay_wire(settings)
    spark = open_session("replay", settings, iceberg_config(settings) if settings.lake_warehouse else {})
    try:
        with opened_lineage(settings) as lineage, reading(spark, settings, "replay") as lake:
            yield ReplayContext(spark, wire, located(settings), lake, lineage)
    finally:
        spark.stop()


def replay_wire(settings: ReplaySettings) -> Wire:
    """Return the schemas of the topics. Raises: RegistryUnavailable, SchemaMissing."""
    schemas = load_catalogue().topics
    topics = [(settings.replay_topic_prefix + topic, schemas[topic].schema) for topic in TOPICS]
    return topic_schemas(Registry(settings.registry.url), settings.registry.url, topics)


def located(settings: ReplaySettings) -> ReplaySettings:
    """Return the settings with the location of replays as a URI; Spark resolves a path in its default file system."""
    text = settings.replay_dir
    return settings.model_copy(update={"replay_dir": text if urlsplit(text).scheme else Path(text).absolute().as_uri()})
