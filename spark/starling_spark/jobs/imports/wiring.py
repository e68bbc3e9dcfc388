"""Wiring: builds the job from its settings."""

from collections.abc import Iterator
from contextlib import contextmanager

from starling_common.cassandra.database import Database
from starling_spark.jobs.imports.job import ImportJob, Target
from starling_spark.jobs.imports.settings import ImportSettings, write_keys
from starling_spark.jobs.imports.store import ImportStore
from starling_spark.session.spark import open_session


@contextmanager
def import_job(settings: ImportSettings) -> Iterator[ImportJob]:
    """Yield the job; close its session and connections at the end. Raises: JarMissing."""
    keys = write_keys(settings.imports_write_keys)

    def target(workspace: str) -> Target | None:
        key = keys.get(workspace)
        return None if key is None else Target(settings.cassandra, settings.imports_ingest_url, key)

    database = Database(settings.cassandra)
    spark = open_session("imports", settings)
    try:
        yield ImportJob(spark, ImportStore(database), target, settings.roots())
    finally:
        spark.stop()
        database.close()
