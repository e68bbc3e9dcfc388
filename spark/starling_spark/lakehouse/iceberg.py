"""Adapter: the lake's Iceberg tables: creation, schema changes, appends, and their Kafka position."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession, functions, types

from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_spark.directories import as_uri, local_path
from starling_spark.lakehouse.data_files import DataFile
from starling_spark.lakehouse.fence import OFFSETS, Fence, LakeFenced, PropertyFence
from starling_spark.lakehouse.position_files import PositionGone, as_statistics, found_position, read_position, write_position
from starling_spark.lakehouse.positions import Position, Tip, from_text, to_text
from starling_spark.lakehouse.schema.evolution import changes, merged
from starling_spark.lakehouse.schema.layout import Layout, UnknownLayout, layout_of
from starling_spark.lakehouse.schema.tables import COMPRESSED, ONE_BY_ONE, PROPERTIES
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.lakehouse.stores.discovery import Stores
from starling_spark.lakehouse.stores.files import probe
from starling_spark.lakehouse.stores.translation import FileStore, StoreUnknown

CATALOG: Final = "lake"
COMMITS: Final = ("lake_commit_begins", "lake_committed")
"""The points of a commit at which a test kills the process. At the first one, the file with the position is written."""
_HOUR_MS: Final = 3_600_000
_SAME_ROWS: Final = frozenset({"append", "replace"})
"""The operations of snapshots that keep the rows before them."""
_OF_NESSIE: Final = "nessie.catalog.content-id"
"""The property of a table in Nessie. It returns the newest snapshot alone, so the position is a property of the table too."""


class LakePositionLost(Exception):
    """A table's Kafka position is missing; an append could duplicate or lose rows."""


def iceberg_config(settings: LakeSettings) -> Mapping[str, str]:
    """Return Spark's settings for the catalog `lake`."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    # Spark asks for views, which the older schema of this catalog's database refuses.
    views = {f"{prefix}.jdbc.schema-version": "V1"} if settings.lake_catalog.get("type") == "jdbc" else {}
    return {
        **views,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        # A catalog service has names for its warehouses.
        f"{prefix}.warehouse": settings.lake_warehouse if _is_rest(settings) else as_uri(settings.lake_warehouse),
        # Commits of other processes must be visible.
        f"{prefix}.cache-enabled": "false",
        **{f"{prefix}.{name}": value for name, value in settings.lake_catalog.items()},
        **{f"{prefix}.{name}": value.get_secret_value() for name, value in settings.lake_catalog_secrets.items()},
    }


def local_warehouse(settings: LakeSettings) -> Path | None:
    """Return the directory of the warehouse; None if it is not on this machine, or known to a catalog service alone."""
    return None if _is_rest(settings) else local_path(settings.lake_warehouse)


def exclusive_warehouse(settings: LakeSettings) -> Path | None:
    """Return the directory of a warehouse without a catalog service, to which one process at a time may write; else None."""
    return local_warehouse(settings) if settings.lake_catalog.get("type") == "hadoop" else None


def _is_rest(settings: LakeSettings) -> bool:
    return settings.lake_catalog.get("type") == "rest"


class Lake:
    """The tables of one namespace. `properties`: Iceberg's table properties for new tables; `passed` is called at `COMMITS`.

    Of two processes that append with a position to the same table, one fails: `LakeFenced`.
    """

    def __init__(
        self,
        spark: SparkSession,
        namespace: str,
        properties: Mapping[str, str] = PROPERTIES,
        passed: Callable[[str], None] = lambda _point: None,
    ) -> None:
        self.spark = spark
        self.namespace = namespace
        self._properties = properties
        self._passed = passed
        self._read: dict[str, tuple[str, Position]] = {}
        """Table -> the place of the last position, and the position."""
        self._stores = Stores()

    def name(self, table: str) -> str:
        """Return the table's name in SQL."""
        return f"{CATALOG}.{self.namespace}.{table}"

    def exists(self, table: str) -> bool:
        """Return whether the table exists."""
        return bool(self.spark.catalog.tableExists(self.name(table)))

    def ensure(
        self, table: str, wanted: types.StructType, partitioning: tuple[str, ...], sorted_by: tuple[str, ...]
    ) -> types.StructType:
        """Create the table or add its missing columns. Return its columns, in the table's order.

        Raises: SchemaConflict.
        """
        if not self.exists(table):
            self._create(table, wanted, partitioning, sorted_by)
        actual = self.spark.table(self.name(table)).schema
        for clause in changes(actual, wanted):
            log(__name__).info("table_changed", table=table, change=clause)
            self.spark.sql(f"ALTER TABLE {self.name(table)} {clause}")
        return merged(actual, wanted)

    def position(self, table: str) -> Position:
        """Return the Kafka position of the table; empty before the first append. Raises: LakePositionLost."""
        return self.tip(table).position

    def tip(self, table: str) -> Tip:
        """Return the position of the table and its snapshot, which the next append needs. Raises: LakePositionLost."""
        return self._tip(table, self._load(table))

    def append(self, table: str, rows: DataFrame, position: Position, tip: Tip) -> int:
        """Append rows and the position after them in one commit, if the table is still at `tip`. Return the number of rows.

        Raises: LakeFenced, errors of Spark.
        """
        files = self._written(self._appendable(table), rows)
        self._publish(table, self._load(table), files, position, tip)
        return sum(int(file.recordCount()) for file in files)

    def location(self, table: str) -> str:
        """Return the location of the table's files, as a URI."""
        return str(self._load(table).location())

    def collects_garbage(self, table: str) -> bool:
        """Return whether Iceberg may delete files of the table. Catalogs with branches of their own forbid it."""
        return str(self._load(table).properties().get("gc.enabled")) != "false"

    def lists_by_hadoop(self, table: str) -> bool:
        """Return whether a file system of Hadoop has the table's files; without it Iceberg's own client has them."""
        return str(self._load(table).io().getClass().getName()).startswith("org.apache.iceberg.hadoop.")

    def layout_tip_and_store(self, table: str) -> tuple[Layout, Tip, FileStore]:
        """Return the layout of the files and the tip, of the same snapshot, and how workers write the files.

        Raises: UnknownLayout, StoreUnknown, LakePositionLost.
        """
        loaded = self._load(table)
        return self._layout(loaded), self._tip(table, loaded), self._stores.of(self._jvm(), loaded)

    def check_store(self, table: str) -> None:
        """Check that workers can write files of the table; in S3 by a small object, which is deleted again.

        Raises: StoreUnknown, OSError.
        """
        loaded = self._load(table)
        store = self._stores.of(self._jvm(), loaded)
        if store.is_directory:
            return
        try:
            self._layout(loaded)
        except UnknownLayout as error:
            raise StoreUnknown(str(error)) from error
        probe(store, str(loaded.location()))

    def hour_column(self, table: str) -> str | None:
        """Return the column by whose hours the table is partitioned; None: there is no such field."""
        loaded = self._load(table)
        found = [field.sourceId() for field in loaded.spec().fields() if str(field.transform()) == "hour"]
        return str(loaded.schema().findColumnName(found[0])) if found else None

    def append_files(self, table: str, files: Sequence[DataFile], position: Position, tip: Tip) -> int:
        """Append written files as `append` does rows. Return the number of rows. Raises: LakeFenced."""
        loaded = self._appendable(table)
        self._publish(table, loaded, [self._data_file(loaded, file) for file in files], position, tip)
        return sum(file.rows for file in files)

    def protect_position(self, table: str) -> int | None:
        """Return the commit time (epoch ms) of the newest snapshot with a position; None without one.

        If other statistics of the snapshot have replaced its file in the metadata, the file is listed again: an unlisted file
        would be deleted as an orphan.
        """
        loaded = self._load(table)
        snapshot = next((one for one in self._ancestors(table, loaded) if one.summary().get(OFFSETS) is not None), None)
        if snapshot is None:
            return None
        place, listed = str(snapshot.summary().get(OFFSETS)), {str(one.path()) for one in loaded.statisticsFiles()}
        if _is_file(place) and place not in listed:
            entry = as_statistics(self._jvm(), found_position(loaded, place), int(snapshot.snapshotId()))
            loaded.updateStatistics().setStatistics(entry).commit()
            log(__name__).warning("position_listed_again", table=table)
        return int(snapshot.timestampMillis())

    def tag(self, table: str, tag: str, snapshot: int, hours: float) -> None:
        """Keep a snapshot until `untag`, or for so many hours. An existing tag is replaced. In Nessie nothing keeps it."""
        loaded = self._load(table)
        if _is_in_nessie(loaded):  # it returns the newest snapshot alone
            return
        # Iceberg counts the age of a tag from the commit of its snapshot.
        since_ms = max(0, wall_clock_ms() - int(loaded.snapshot(snapshot).timestampMillis()))
        change = loaded.manageSnapshots()
        change = change.replaceTag(tag, snapshot) if loaded.refs().containsKey(tag) else change.createTag(tag, snapshot)
        change.setMaxRefAgeMs(tag, since_ms + round(hours * _HOUR_MS)).commit()

    def untag(self, table: str, tag: str) -> None:
        """Drop a tag, if it exists."""
        loaded = self._load(table)
        if loaded.refs().containsKey(tag):
            loaded.manageSnapshots().removeTag(tag).commit()

    def replace(self, table: str, rows: DataFrame) -> None:
        """Replace all rows of the table, in one commit."""
        rows.writeTo(self.name(table)).overwrite(functions.lit(True))

    def put(
        self, table: str, rows: DataFrame, partitioning: str | None = None, summary: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Create the table, or replace its columns and all its rows, in one commit.

        Shape: `rows` may be of another session. `partitioning`: a column, whose values get files of their own; `summary`: of the
        snapshot.
        """
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{self.namespace}")
        writer = _summarised(rows.writeTo(self.name(table)).using("iceberg"), summary)
        properties = {**self._properties, **self._of_catalog()}
        if partitioning is not None:
            writer, properties = writer.partitionedBy(functions.col(partitioning)), {**properties, **ONE_BY_ONE}
        for name, value in properties.items():
            writer = writer.tableProperty(name, value)
        writer.createOrReplace()

    def put_values(self, table: str, rows: DataFrame, column: str, values: Sequence[Any], summary: Mapping[str, str]) -> None:
        """Replace the rows with these values of the column by which the table is partitioned, in one commit.

        `summary`: of the snapshot.
        """
        _summarised(rows.writeTo(self.name(table)), summary).overwrite(functions.col(column).isin(list(values)))

    def drop(self, table: str) -> None:
        """Delete the table and its files, if it exists."""
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name(table)} PURGE")

    def sibling(self, suffix: str, properties: Mapping[str, str] | None = None) -> "Lake":
        """Return the tables of the namespace with this one's name and the suffix."""
        return Lake(self.spark, f"{self.namespace}_{suffix}", self._properties if properties is None else properties)

    def siblings(self) -> list[str]:
        """Return the suffixes of the namespaces whose names begin with this one's."""
        found = [row[0].split(".")[-1] for row in self.spark.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()]
        own = f"{self.namespace}_"
        return sorted(name.removeprefix(own) for name in found if name.startswith(own))

    def rows(self, table: str, snapshot: int | None = None) -> DataFrame:
        """Return all rows of a snapshot; None: of the current one."""
        return self.spark.read.options(**({} if snapshot is None else {"versionAsOf": str(snapshot)})).table(self.name(table))

    def snapshot(self, table: str) -> int | None:
        """Return the id of the current snapshot; None while the table is empty."""
        current = self._head(table, self._load(table))
        return None if current is None else int(current.snapshotId())

    def summary(self, table: str, name: str) -> str | None:
        """Return an entry of the summary of the current snapshot; None without it, and for a table that does not exist."""
        current = self._head(table, self._load(table)) if self.exists(table) else None
        value = None if current is None else current.summary().get(name)
        return None if value is None else str(value)

    def appended(self, table: str, since: int) -> DataFrame | None:
        """Return the rows that were appended after a snapshot. Compactions in between do not matter.

        None: rows were changed or deleted since, or the snapshot is not of the table's history any more.
        """
        last = None
        for one in self._ancestors(table, self._load(table)):
            last = last or one.snapshotId()
            if one.snapshotId() == since:
                rows = self.spark.read.option("start-snapshot-id", str(since)).option("end-snapshot-id", str(last))
                return self.rows(table).limit(0) if last == since else rows.table(self.name(table))
            if one.operation() not in _SAME_ROWS:
                return None
        return None

    def has_snapshot(self, table: str, snapshot: int) -> bool:
        """Return whether a snapshot exists: an expired one does not."""
        return self._load(table).snapshot(snapshot) is not None

    def reached(self, table: str, before_ms: int | None = None) -> tuple[int, Position] | None:
        """Return the newest snapshot with a position, and the position. `before_ms`: committed by this instant (epoch ms).

        None: there is none, or it has expired. Raises: LakePositionLost.
        """
        loaded = self._load(table)
        for snapshot in self._ancestors(table, loaded):
            place = loaded.properties().get(OFFSETS) if _is_in_nessie(loaded) else snapshot.summary().get(OFFSETS)
            if place is not None and (before_ms is None or int(snapshot.timestampMillis()) <= before_ms):
                return int(snapshot.snapshotId()), self._position(table, loaded, str(place))
        return None

    def call(self, procedure: str, table: str, arguments: str = "") -> Mapping[str, Any]:
        """Call an Iceberg procedure on a table, and return its result."""
        # Without its catalog, Iceberg looks for a catalog of the namespace's name first, and logs the failure with its stack.
        given = f"table => '{self.name(table)}'{arguments and ', '}{arguments}"
        done = self.spark.sql(f"CALL {CATALOG}.system.{procedure}({given})").collect()
        return done[0].asDict() if done else {}

    def _create(self, table: str, wanted: types.StructType, partitioning: tuple[str, ...], sorted_by: tuple[str, ...]) -> None:
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in wanted.fields)
        own = {**self._properties, **self._of_catalog()}
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in own.items())
        parts = f"PARTITIONED BY ({', '.join(partitioning)}) " if partitioning else ""
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{self.namespace}")
        self.spark.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {parts}TBLPROPERTIES ({properties})")
        if sorted_by:
            self.spark.sql(f"ALTER TABLE {self.name(table)} WRITE LOCALLY ORDERED BY {', '.join(sorted_by)}")

    def _written(self, loaded: Any, rows: DataFrame) -> list[Any]:
        """Write rows into files that no snapshot has, by the writer of Iceberg's compactions, and return the files.

        A staged snapshot would be simpler, but Nessie publishes it at once.
        """
        group = uuid4().hex
        tables, written = self._cached_tables(), self._java().spark.FileRewriteCoordinator.get()
        tables.add(group, loaded)
        try:
            rows.write.format("iceberg").mode("append").save(group)
            return list(written.fetchNewFiles(loaded, group))
        finally:
            written.clearRewrite(loaded, group)
            tables.remove(group)

    def _appendable(self, table: str) -> Any:
        """Return the table. One of an earlier release gets the properties of its catalog."""
        loaded = self._load(table)
        missing = {name: value for name, value in self._of_catalog().items() if loaded.properties().get(name) != value}
        if missing:
            update = loaded.updateProperties()
            for name, value in missing.items():
                update.set(name, value)
            update.commit()
        return loaded

    def _publish(self, table: str, loaded: Any, files: Iterable[Any], position: Position, tip: Tip) -> None:
        """Commit files and the position after them. The position is first written into a file, which the commit lists."""
        change, in_nessie = loaded.newTransaction(), _is_in_nessie(loaded)
        fence = PropertyFence(tip, lambda: self.tip(table)) if in_nessie else Fence(tip.snapshot)
        append = change.newAppend()
        for file in files:
            append.appendFile(file)
        file_of_position = None if in_nessie else write_position(self._jvm(), loaded, position)
        place = to_text(position) if file_of_position is None else file_of_position.location
        self._passed(COMMITS[0])
        gateway = self.spark.sparkContext._gateway  # noqa: SLF001 - PySpark's own foreachBatch does the same
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        try:
            append.set(OFFSETS, place).validateWith(fence).commit()
            if file_of_position is None:
                change.updateProperties().set(OFFSETS, place).commit()
            else:
                entry = as_statistics(self._jvm(), file_of_position, int(change.table().currentSnapshot().snapshotId()))
                change.updateStatistics().setStatistics(entry).commit()
            change.commitTransaction()
        except Py4JJavaError as error:
            if fence.moved_to is None:
                raise
            raise LakeFenced(
                f"{self.name(table)}: another process has appended to it (snapshot {fence.moved_to}) since this one read its "
                "position. This process ends and has appended nothing; run one process of the job"
            ) from error
        self._read[table] = place, position
        self._passed(COMMITS[1])

    def _tip(self, table: str, loaded: Any) -> Tip:
        if _is_in_nessie(loaded):
            current, text = loaded.currentSnapshot(), loaded.properties().get(OFFSETS)
            return Tip({} if text is None else from_text(text), None if current is None else int(current.snapshotId()))
        snapshot = self._positioned(table, loaded)
        if snapshot is None:
            return Tip({})
        return Tip(self._position(table, loaded, str(snapshot.summary().get(OFFSETS))), int(snapshot.snapshotId()))

    def _position(self, table: str, loaded: Any, place: str) -> Position:
        """Return the position at a place: the location of its file, or of earlier releases the position itself."""
        if not _is_file(place):
            return from_text(place)
        known = self._read.get(table)
        if known is None or known[0] != place:
            try:
                known = self._read[table] = place, read_position(self._jvm(), loaded, place)
            except PositionGone as error:
                raise LakePositionLost(
                    f"{self.name(table)}: the file with the table's Kafka position was deleted: {place}; "
                    "roll back to a snapshot whose file in `starling.offsets` exists"
                ) from error
        return known[1]

    def _positioned(self, table: str, loaded: Any) -> Any:
        """Return the newest snapshot with a position. The snapshots of maintenance have none and are skipped."""
        last = None
        for last in self._ancestors(table, loaded):
            if last.summary().get(OFFSETS) is not None:
                return last
        if last is not None and last.parentId() is not None:
            raise LakePositionLost(
                f"{self.name(table)}: the snapshot with the table's Kafka position was expired; "
                "roll back to one that has `starling.offsets` in its summary"
            )
        return None

    def _ancestors(self, table: str, loaded: Any) -> Iterator[Any]:
        """Yield the snapshots of the table that exist, the newest first."""
        snapshot = self._head(table, loaded)
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else loaded.snapshot(parent)

    def _head(self, _table: str, loaded: Any) -> Any:
        """Return the snapshot that is read: the current one; None while the table is empty."""
        return loaded.currentSnapshot()

    def _layout(self, loaded: Any) -> Layout:
        iceberg = self._java()
        schema, spec = iceberg.SchemaParser.toJson(loaded.schema()), iceberg.PartitionSpecParser.toJson(loaded.spec())
        return layout_of(loaded.location(), schema, spec)

    def _data_file(self, loaded: Any, file: DataFile) -> Any:
        iceberg = self._java()
        # The footer has counts and bounds of each column, by which queries skip files. The file itself is not read.
        footer = iceberg.inmemory.InMemoryInputFile(file.path, file.footer)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(footer, iceberg.MetricsConfig.forTable(loaded))
        made = iceberg.DataFiles.builder(loaded.spec()).withPath(file.path).withFileSizeInBytes(file.size)
        made = made.withFormat("parquet").withMetrics(metrics).withPartitionValues(file.partition)
        return made.withSortOrder(loaded.sortOrder()).build()

    def _of_catalog(self) -> Mapping[str, str]:
        """Return the properties of tables that depend on the catalog."""
        return {} if self.spark.conf.get(f"spark.sql.catalog.{CATALOG}.type", None) == "hadoop" else COMPRESSED

    def _load(self, table: str) -> Any:
        session: Any = self.spark._jsparkSession  # noqa: SLF001 - as below
        # Iceberg takes Spark's own catalog if this one cannot be opened, and its error then hides the reason.
        session.sessionState().catalogManager().catalog(CATALOG)
        return self._java().spark.Spark3Util.loadIcebergTable(session, self.name(table))

    def _cached_tables(self) -> Any:
        """Return Iceberg's `SparkTableCache`, in which its writer finds a table by a name of ours.

        The class has a static `get()` and a `get(key)`. py4j looks at the first one that the JVM lists, whose order differs from
        process to process, and does not find a static method if that is the other one. So the JVM is asked for the method itself.
        """
        jvm: Any = self._jvm()
        gateway: Any = self.spark.sparkContext._gateway  # noqa: SLF001 - as below
        get = self._java().spark.SparkTableCache._java_lang_class.getMethod("get", gateway.new_array(jvm.java.lang.Class, 0))  # noqa: SLF001 - of py4j
        return get.invoke(None, gateway.new_array(jvm.java.lang.Object, 0))

    def _java(self) -> Any:
        return self._jvm().org.apache.iceberg

    def _jvm(self) -> Any:
        return self.spark._jvm  # noqa: SLF001 - PySpark has no public access to the JVM


def _summarised(writer: DataFrameWriterV2, summary: Mapping[str, str]) -> DataFrameWriterV2:
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    return writer


def _is_file(place: str) -> bool:
    """Return whether a place is a location, not JSON."""
    return not place.startswith("{")


def _is_in_nessie(loaded: Any) -> bool:
    return loaded.properties().get(_OF_NESSIE) is not None
