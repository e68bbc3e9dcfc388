"""Wiring: builds the job from its settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starling_common.cassandra.database import Database
from starling_common.wire import Registry
from starling_spark.jobs.sql_traits.job import Limits, Place, SqlTraitJob, Stores
from starling_spark.jobs.sql_traits.products import Listing
from starling_spark.jobs.sql_traits.results import Target
from starling_spark.jobs.sql_traits.settings import SqlTraitsSettings
from starling_spark.jobs.sql_traits.store import EVENT_TYPE_CHECKS, VIEWS, RunStore
from starling_spark.kafka.codec import topic_schemas
from starling_spark.kafka.sinks import Letters
from starling_spark.lakehouse.iceberg import iceberg_config, local_warehouse
from starling_spark.lakehouse.pinned import pinning_of
from starling_spark.lakehouse.warehouse_lock import locked_warehouse
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session

_LOCK: Final = ".sql-traits.lock"
_STAGE: Final = "profiles"


@contextmanager
def sql_trait_job(settings: SqlTraitsSettings) -> Iterator[SqlTraitJob]:
    """Yield the job; close its session and connections at the end.

    Raises: JarMissing, WarehouseInUse, RegistryUnavailable, SchemaMissing.
    """
    database = Database(settings.cassandra)
    with locked_warehouse(local_warehouse(settings), _LOCK):
        place = Place(
            settings.lake_namespace,
            *_topics(settings),
            settings.clock,
            settings.lake_orphan_hours,
            settings.lake_keep_hours,
            pinning_of(settings, "sql-traits"),
            settings.sql_checks_keep_days,
        )
        seconds = settings.sql_traits_max_minutes * 60
        limits = Limits(settings.sql_traits_max_bytes, settings.sql_traits_max_users, seconds, settings.sql_views_max_rows)
        spark = open_session("sql-traits", settings, iceberg_config(settings))
        try:
            with opened_lineage(settings) as lineage:
                stores = Stores(RunStore(database), RunStore(database, VIEWS), RunStore(database, EVENT_TYPE_CHECKS))
                yield SqlTraitJob(spark, stores, place, limits, lineage)
        finally:
            spark.stop()
            database.close()


def _topics(settings: SqlTraitsSettings) -> tuple[Target, Listing]:
    topic, letters = settings.sql_traits_aggregates_topic, settings.sql_traits_dead_letters_topic
    products, brokers = settings.sql_traits_products_topic, settings.kafka.brokers
    records = [(topic, "AggregateComputed"), (letters, "DeadLetter"), (products, "ProductListed")]
    wire = topic_schemas(Registry(settings.registry.url), settings.registry.url, records)
    return Target(brokers, topic, wire, Letters(_STAGE, letters, wire)), Listing(brokers, products, wire)
