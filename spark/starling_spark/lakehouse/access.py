"""Adapter: a Spark session with the lake's catalog, its tables with this installation's topics, and their maintenance."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from starling_common.telemetry.metrics import Metrics
from starling_spark.lakehouse.iceberg import Lake, exclusive_warehouse, iceberg_config
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lakehouse.maintenance import Compaction, Retention, maintain
from starling_spark.lakehouse.schema.tables import QUARANTINE, TABLES, LakeTable, renamed
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.warehouse_lock import locked_warehouse
from starling_spark.lineage.datasets import Flow
from starling_spark.lineage.runs import OFF, JobName, Lineage
from starling_spark.session.spark import open_session


@contextmanager
def opened(settings: LakeSettings, passed: Callable[[str], None] = lambda _point: None) -> Iterator[tuple[SparkSession, Lake]]:
    """Open a session with the lake's catalog, and lock a warehouse whose catalog knows one writer.

    `passed`: of `Lake`. Raises: WarehouseInUse, JarMissing.
    """
    with locked_warehouse(exclusive_warehouse(settings)):
        spark = open_session("lake", settings, iceberg_config(settings), is_streaming=True)
        try:
            yield spark, Lake(spark, settings.lake_namespace, passed=passed)
        finally:
            spark.stop()


def lake_tables(settings: LakeSettings) -> tuple[LakeTable, ...]:
    """Return the tables, with the topic prefix of this installation."""
    return renamed(TABLES, settings.lake_topic_prefix)


def upkeep_of(
    lake: Lake,
    tables: Sequence[LakeTable],
    settings: LakeSettings,
    metrics: Metrics,
    lineage: Lineage = OFF,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Callable[[], None]:
    """Return a function that maintains all tables once and records the seconds that each takes. A call is a run of `lineage`."""
    retention = Retention(settings.lake_keep_hours, settings.lake_orphan_hours)
    compaction = Compaction(settings.lake_compact_files, settings.lake_compact_mb)
    names = [*(table.name for table in tables), QUARANTINE]

    def upkeep() -> None:
        with lineage.run(JobName("lake_upkeep"), lambda: _rewritten(lake, names), is_stopping) as run:
            for table, seconds in maintain(lake, names, retention, compaction, exclusive_warehouse(settings)).items():
                metrics.gauge("starling_lake_upkeep_seconds").labels(table).set(seconds)
            run.knows(lambda: Flow((), table_datasets(lake, *names)))

    return upkeep


def _rewritten(lake: Lake, names: Sequence[str]) -> Flow:
    """Return each table as an input with its snapshot before maintenance, and as an output whose snapshot is unknown yet."""
    tables = table_datasets(lake, *names)
    return Flow(tables, tuple(one._replace(version=None) for one in tables))
