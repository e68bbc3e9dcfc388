"""Adapter: tables of the lake as datasets: the name by their files, that in the catalog, the snapshot and the columns."""

from starling_spark.lakehouse.iceberg import CATALOG, Lake
from starling_spark.lineage.datasets import Column, Dataset, TableName, files


def table_datasets(lake: Lake, *tables: str, versions: bool = True) -> tuple[Dataset, ...]:
    """Return the tables that exist. `versions`: with the current snapshot, or that to which a run is pinned."""
    return tuple(_dataset(lake, table, has_version=versions) for table in tables if lake.exists(table))


def _dataset(lake: Lake, table: str, *, has_version: bool) -> Dataset:
    snapshot = lake.snapshot(table) if has_version else None
    fields = lake.spark.table(lake.name(table)).schema.fields
    warehouse = files(lake.spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse", None) or CATALOG)
    name = lake.name(table).removeprefix(f"{CATALOG}.").replace("`", "")
    return files(lake.location(table))._replace(
        version=None if snapshot is None else str(snapshot),
        columns=tuple(Column(field.name, field.dataType.simpleString()) for field in fields),
        table=TableName(_catalog(warehouse), name),
    )


def _catalog(warehouse: Dataset) -> str:
    return f"{warehouse.namespace}:{warehouse.name}" if warehouse.namespace == "file" else f"{warehouse.namespace}/{warehouse.name}"
