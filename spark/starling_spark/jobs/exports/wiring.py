"""Wiring: builds the job from its settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starling_spark.jobs.exports.job import ExportJob, Exports
from starling_spark.jobs.exports.settings import ExportSettings
from starling_spark.lakehouse.iceberg import Lake, iceberg_config, local_warehouse
from starling_spark.lakehouse.pinned import pinning_of
from starling_spark.lakehouse.warehouse_lock import locked_warehouse
from starling_spark.session.lineage import opened_lineage
from starling_spark.session.spark import open_session

_LOCK: Final = ".exports.lock"


@contextmanager
def export_job(settings: ExportSettings) -> Iterator[ExportJob]:
    """Yield the job; close its session at the end. Raises: JarMissing, WarehouseInUse."""
    exports = Exports(settings.exports, settings.exports_passwords, settings.kafka.brokers)
    with locked_warehouse(local_warehouse(settings), _LOCK):
        spark = open_session("exports", settings, iceberg_config(settings))
        try:
            with opened_lineage(settings) as lineage:
                yield ExportJob(spark, Lake(spark, settings.lake_namespace), exports, pinning_of(settings, "exports"), lineage)
        finally:
            spark.stop()
