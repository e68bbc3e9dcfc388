"""Adapter: the lake's tables in Iceberg: made, grown, appended to, asked how far they go."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession, functions, types

from starling_common.logs import log
from starling_spark.lakehouse.data_files import DataFile
from starling_spark.lakehouse.evolution import changes, merged
from starling_spark.lakehouse.layout import Layout, layout_of
from starling_spark.lakehouse.positions import Position, from_text, to_text
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.tables import PROPERTIES

CATALOG: Final = "lake"
_OFFSETS: Final = "starling.offsets"


class LakeBroken(Exception):
    """A table no longer says how far it goes; to append to it could double or lose rows."""


def iceberg_config(settings: LakeSettings) -> Mapping[str, str]:
    """Spark's settings for the catalog `lake`."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.warehouse": warehouse_uri(settings.lake_warehouse),
        # What another process did must be seen.
        f"{prefix}.cache-enabled": "false",
        **{f"{prefix}.{name}": value for name, value in settings.lake_catalog.items()},
    }


def warehouse_uri(text: str) -> str:
    """A URI as it is; a path as a URI."""
    return text if urlsplit(text).scheme else Path(text).absolute().as_uri()


def local_warehouse(settings: LakeSettings) -> Path | None:
    """The warehouse as a directory of this machine; None if it is anywhere else."""
    parts = urlsplit(warehouse_uri(settings.lake_warehouse))
    return Path(parts.path) if parts.scheme == "file" else None


class Lake:
    """The tables of one namespace. One process writes to them at a time. `properties`: Iceberg's own, of tables that it makes."""

    def __init__(self, spark: SparkSession, namespace: str, properties: Mapping[str, str] = PROPERTIES) -> None:
        self._spark = spark
        self._namespace = namespace
        self._properties = properties

    def name(self, table: str) -> str:
        """As SQL names it."""
        return f"{CATALOG}.{self._namespace}.{table}"

    def exists(self, table: str) -> bool:
        """Whether it was ever made."""
        return bool(self._spark.catalog.tableExists(self.name(table)))

    def ensure(
        self, table: str, wanted: types.StructType, partitioning: tuple[str, ...], sorted_by: tuple[str, ...]
    ) -> types.StructType:
        """Make the table if it is not there, add the columns that it lacks; its columns then, in the table's order.

        Raises: SchemaConflict.
        """
        if not self.exists(table):
            self._create(table, wanted, partitioning, sorted_by)
        actual = self._spark.table(self.name(table)).schema
        for clause in changes(actual, wanted):
            log(__name__).info("table_changed", table=table, change=clause)
            self._spark.sql(f"ALTER TABLE {self.name(table)} {clause}")
        return merged(actual, wanted)

    def position(self, table: str) -> Position:
        """How far the table goes; empty for one that nothing was ever appended to. Raises: LakeBroken."""
        return _position(self._told(table, self._load(table)))

    def told_at_ms(self, table: str) -> int | None:
        """When the newest snapshot that says how far the table goes was made; None before the first. Raises: LakeBroken."""
        snapshot = self._told(table, self._load(table))
        return None if snapshot is None else int(snapshot.timestampMillis())

    def append(self, table: str, rows: DataFrame, position: Position) -> int:
        """Rows and the position after them, in one commit: both are there or none. Returns the number of rows."""
        rows.writeTo(self.name(table)).option(f"snapshot-property.{_OFFSETS}", to_text(position)).append()
        return int(self._told(table, self._load(table)).summary().get("added-records") or 0)

    def location(self, table: str) -> str:
        """Where its files are, as a URI."""
        return str(self._load(table).location())

    def standing(self, table: str) -> tuple[Layout, Position]:
        """How its files must look, and as `position`; of one look at the table. Raises: UnknownLayout, LakeBroken."""
        loaded, iceberg = self._load(table), self._java()
        schema, spec = iceberg.SchemaParser.toJson(loaded.schema()), iceberg.PartitionSpecParser.toJson(loaded.spec())
        return layout_of(loaded.location(), schema, spec), _position(self._told(table, loaded))

    def append_files(self, table: str, files: Sequence[DataFile], position: Position) -> int:
        """Files that are written already, and the position after them, in one commit. Returns the number of rows."""
        loaded = self._load(table)
        append = loaded.newAppend()
        for file in files:
            append.appendFile(self._data_file(loaded, file))
        append.set(_OFFSETS, to_text(position)).commit()
        return sum(file.rows for file in files)

    def replace(self, table: str, rows: DataFrame) -> None:
        """These rows in place of all that the table has, in one commit."""
        rows.writeTo(self.name(table)).overwrite(functions.lit(True))

    def drop(self, table: str) -> None:
        """The table and its files, if it is there."""
        self._spark.sql(f"DROP TABLE IF EXISTS {self.name(table)} PURGE")

    def sibling(self, suffix: str, properties: Mapping[str, str] | None = None) -> "Lake":
        """The tables of the namespace that is named like this one, and the suffix."""
        return Lake(self._spark, f"{self._namespace}_{suffix}", self._properties if properties is None else properties)

    def siblings(self) -> list[str]:
        """The suffixes of the namespaces that are named like this one."""
        found = [row[0].split(".")[-1] for row in self._spark.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()]
        own = f"{self._namespace}_"
        return sorted(name.removeprefix(own) for name in found if name.startswith(own))

    def rows(self, table: str, snapshot: int | None = None) -> DataFrame:
        """All rows, as of a snapshot, or as they are."""
        return self._spark.read.options(**({} if snapshot is None else {"versionAsOf": str(snapshot)})).table(self.name(table))

    def snapshot(self, table: str) -> int | None:
        """The newest one; None while the table is empty."""
        current = self._load(table).currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def reached(self, table: str, before_ms: int | None = None) -> tuple[int, Position] | None:
        """The newest snapshot that says how far the table goes, and what it says; committed by then (epoch ms), or whenever."""
        at = "" if before_ms is None else f"committed_at <= timestamp_millis({before_ms}) AND "
        found = (
            self._spark.table(f"{self.name(table)}.snapshots")
            .where(f"{at}summary['{_OFFSETS}'] IS NOT NULL")
            .orderBy("committed_at", ascending=False)
        )
        first = found.selectExpr("snapshot_id", f"summary['{_OFFSETS}'] AS offsets").first()
        return None if first is None else (int(first["snapshot_id"]), from_text(first["offsets"]))

    def call(self, procedure: str, table: str, arguments: str = "") -> Mapping[str, Any]:
        """One of Iceberg's procedures on a table; what it says it did."""
        given = f"table => '{self._namespace}.{table}'{arguments and ', '}{arguments}"
        done = self._spark.sql(f"CALL {CATALOG}.system.{procedure}({given})").collect()
        return done[0].asDict() if done else {}

    def _create(self, table: str, wanted: types.StructType, partitioning: tuple[str, ...], sorted_by: tuple[str, ...]) -> None:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in wanted.fields)
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self._properties.items())
        parts = f"PARTITIONED BY ({', '.join(partitioning)}) " if partitioning else ""
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{self._namespace}")
        self._spark.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {parts}TBLPROPERTIES ({properties})")
        if sorted_by:
            self._spark.sql(f"ALTER TABLE {self.name(table)} WRITE LOCALLY ORDERED BY {', '.join(sorted_by)}")

    def _told(self, table: str, loaded: Any) -> Any:
        """The newest snapshot with a position; those of an upkeep have none, and are stepped over."""
        snapshot = loaded.currentSnapshot()
        while snapshot is not None:
            if snapshot.summary().get(_OFFSETS) is not None:
                return snapshot
            parent = snapshot.parentId()
            snapshot, lost = (None, False) if parent is None else (loaded.snapshot(parent), True)
            if snapshot is None and lost:
                raise LakeBroken(
                    f"{self.name(table)}: the snapshot that says how far the table goes was expired; "
                    "roll back to one that has `starling.offsets` in its summary"
                )
        return None

    def _data_file(self, loaded: Any, file: DataFile) -> Any:
        iceberg = self._java()
        there = loaded.io().newInputFile(file.path)
        # Counts and bounds of each column, by which queries leave files out: from the file's own footer.
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(there, iceberg.MetricsConfig.forTable(loaded))
        made = iceberg.DataFiles.builder(loaded.spec()).withInputFile(there).withFormat("parquet").withMetrics(metrics)
        return made.withPartitionValues(file.partition).withSortOrder(loaded.sortOrder()).build()

    def _load(self, table: str) -> Any:
        return self._java().spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self.name(table))  # noqa: SLF001 - as below

    def _java(self) -> Any:
        return self._spark._jvm.org.apache.iceberg  # type: ignore[union-attr]  # noqa: SLF001 - the only way to it


def _position(snapshot: Any) -> Position:
    return {} if snapshot is None else from_text(snapshot.summary().get(_OFFSETS))
