"""Wiring: builds the job from its settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from starling_common.cassandra.database import Database
from starling_common.security.sealing import Sealer
from starling_spark.jobs.imports.job import Databases, ImportJob, Outputs
from starling_spark.jobs.imports.sending import Target
from starling_spark.jobs.imports.settings import ImportSettings, api_tokens, drivers, write_keys
from starling_spark.jobs.imports.sources.iceberg import IcebergAccess
from starling_spark.jobs.imports.sources.jdbc import JdbcAccess
from starling_spark.jobs.imports.store import ImportStore
from starling_spark.lakehouse.iceberg import iceberg_config
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session

SESSION: Final = MappingProxyType({
    # A worker has one batch of the rows of a database in memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Columns of a database may differ in case alone.
    "spark.sql.caseSensitive": "true",
})  # fmt: skip
"""The properties of the job's session."""


@contextmanager
def import_job(settings: ImportSettings) -> Iterator[ImportJob]:
    """Yield the job; close its session and connections at the end. Raises: JarMissing, ValueError for the keys."""
    keys, sealer = write_keys(settings.imports_write_keys), Sealer.of(settings.secrets)
    tokens = api_tokens(settings.imports_api_tokens)

    def target(workspace: str) -> Target:
        key, token = keys.get(workspace), tokens.get(workspace)
        return Target(
            settings.cassandra,
            settings.imports_ingest_url,
            key,
            settings.imports_api_url,
            token,
            settings.kafka.brokers,
            settings.registry.url,
        )

    database = Database(settings.cassandra)
    access = JdbcAccess(
        drivers(settings.imports_jdbc_drivers), settings.allow_private_addresses, settings.imports_jdbc_answer_seconds
    )
    iceberg = IcebergAccess(settings.iceberg_tables(), settings.lake_namespace, bool(settings.lake_warehouse))
    catalog = iceberg_config(settings) if iceberg.tables and iceberg.has_catalog else {}
    spark = open_session("imports", settings, {**SESSION, **catalog})
    try:
        with opened_lineage(settings) as lineage:
            outputs = Outputs(settings.kafka.brokers, lineage)
            yield ImportJob(spark, ImportStore(database), target, settings.roots(), Databases(access, sealer, iceberg), outputs)
    finally:
        spark.stop()
        database.close()
