"""Adapter: the rows of an Iceberg table as a DataFrame, at one snapshot."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 - as in every guide of Spark

from starling_rules.iceberg import iceberg_table, is_of_lake, is_permitted
from starling_rules.imports import ImportRequest
from starling_rules.jdbc import SourceError
from starling_spark.jobs.imports.rows import UnusableFile, check_columns
from starling_spark.jobs.imports.sources.frames import TIMES, TableRows, after, check_cursor, quoted
from starling_spark.jobs.imports.sources.reading import SourceUnavailable
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.lineage import table_datasets
from starling_spark.lineage.datasets import Flow

_EMPTY: Final = "empty"
"""The snapshot of a table without one."""
_PLAIN: Final = (types.BooleanType, types.StringType, types.NumericType, *TIMES)
"""The types with a form in JSON, beside lists and structures of them."""
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_ABSENT: Final = ("NoSuchTableException", "NoSuchNamespaceException", "NoSuchDatabaseException", "NoSuchIcebergTableException")
_REFUSED: Final = ("ForbiddenException", "NotAuthorizedException", "AccessControlException")
_UNREADABLE: Final = ("UnsupportedOperationException", "ValidationException", "IllegalArgumentException", "AnalysisException")
_NO_JAR: Final = ("ClassNotFoundException", "CatalogNotFoundException")
"""The ends of names of classes of errors."""


class IcebergAccess(NamedTuple):
    """What an operator permits. `tables`: tables with their namespaces, or namespaces; `lake`: the namespace of the lake."""

    tables: tuple[str, ...] = ()
    lake: str = "starling"
    has_catalog: bool = False


class IcebergTable:
    """A table that an import may read."""

    def __init__(self, spark: SparkSession, request: ImportRequest, access: IcebergAccess) -> None:
        """Raises: UnusableFile for a table that may not be read."""
        self._request = request
        *namespace, table = (quoted(part) for part in _permitted(request.uri, access).split("."))
        self._lake = Lake(spark, ".".join(namespace))
        self._table = table

    def snapshot(self) -> str:
        """Return the current snapshot. Raises: UnusableFile, SourceUnavailable."""
        with _translated(self._request.uri):
            found = self._lake.snapshot(self._table)
        return _EMPTY if found is None else str(found)

    def rows(self, snapshot: str, last: str | None) -> TableRows:
        """Return the rows to read. `last`: the greatest cursor of the last run. Raises: UnusableFile, SourceUnavailable."""
        request, source = self._request, self._request.source
        cursor = None if source is None else source.cursor_column
        with _translated(request.uri):
            frame = self._at(snapshot)
            fields = {field.name: field.dataType for field in frame.schema.fields}
        check_columns(request, frame.columns, "the table, which has")
        check_cursor(fields, cursor)
        wanted = request.read() or frame.columns
        for name in wanted:
            if not _has_form(fields[name]):
                kind = fields[name].simpleString()
                raise UnusableFile(f"the column {name!r} is {kind}, which has no form in JSON: leave it out by columns")
        if cursor is not None and last is not None:
            frame = frame.where(after(cursor, last, fields[cursor]))
        # Python has no time after the year 9999: one would fail the whole task, and as text its row alone.
        as_text = [name for name in wanted if isinstance(fields[name], TIMES) and name != cursor]
        chosen = [_text(name, fields[name]) if name in as_text else F.col(quoted(name)) for name in wanted]
        return TableRows(frame.select(*chosen), dict.fromkeys(as_text, "time"))

    def flow(self, snapshot: str) -> Flow:
        """Return the table as the input of a run."""
        version = None if snapshot == _EMPTY else snapshot
        return Flow(tuple(one._replace(version=version) for one in table_datasets(self._lake, self._table, versions=False)))

    def _at(self, snapshot: str) -> DataFrame:
        """Return all rows of a snapshot, which needs no right to write to the table. Raises: UnusableFile."""
        if snapshot == _EMPTY:
            return self._lake.rows(self._table).where(F.lit(False))
        if not self._lake.has_snapshot(self._table, int(snapshot)):
            raise UnusableFile(
                f"{self._request.uri}: the snapshot {snapshot}, which this run began to read, has expired: run the import again, "
                "and keep snapshots of the table for longer than a run"
            )
        return self._lake.rows(self._table, int(snapshot))


def _permitted(uri: str, access: IcebergAccess) -> str:
    """Return the table of a URI. Raises: UnusableFile if it may not be read."""
    table = iceberg_table(uri)
    if isinstance(table, SourceError):
        raise UnusableFile(f"uri: {table.reason}: {table.cure}")
    if is_of_lake(table, access.lake):
        raise UnusableFile(f"{uri}: is a table of the lake, which has rows of all workspaces: name a table of another namespace")
    if not is_permitted(table, access.tables):
        known = ", ".join(access.tables) or "none"
        raise UnusableFile(f"{uri}: is not permitted: add it, or its namespace, to STARLING_IMPORTS_ICEBERG_TABLES (now: {known})")
    if not access.has_catalog:
        raise UnusableFile(f"{uri}: the job has no catalog: set its STARLING_LAKE_WAREHOUSE and STARLING_LAKE_CATALOG")
    return table


def _has_form(kind: types.DataType) -> bool:
    if isinstance(kind, types.ArrayType):
        return _has_form(kind.elementType)
    if isinstance(kind, types.StructType):
        return all(_has_form(field.dataType) for field in kind.fields)
    return isinstance(kind, _PLAIN)


def _text(name: str, kind: types.DataType) -> Column:
    """Return a time as text in ISO 8601, with its zone if it has one."""
    found = F.col(quoted(name))
    return (F.date_format(found, _ISO) if isinstance(kind, types.TimestampType) else found.cast("string")).alias(name)


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Raise UnusableFile or SourceUnavailable for an error of the catalog, or of Iceberg."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
        classes, text = _chain(cause) if cause is not None else ([type(error).__name__], str(error))
        text = " ".join(text.split())[:300]
        if _is_one(classes, _ABSENT):
            raise UnusableFile(f"{uri}: there is no such table in the catalog: correct the URI, or create the table") from error
        if _is_one(classes, _REFUSED):
            raise UnusableFile(f"{uri}: the catalog refuses: {text}: grant the job the right to read the table") from error
        if _is_one(classes, _NO_JAR):
            raise UnusableFile(f"{uri}: {text}: add the jars of Iceberg and of its catalog to STARLING_SPARK_JARS") from error
        if _is_one(classes, _UNREADABLE):
            raise UnusableFile(f"{uri}: Spark cannot read the table: {text}: correct the table, or name another one") from error
        raise SourceUnavailable(
            f"{uri}: the catalog does not answer: {text}: start it, or correct STARLING_LAKE_CATALOG"
        ) from error


def _chain(cause: Any) -> tuple[list[str], str]:
    """Return the classes of an error and its causes, and the text of the last one."""
    classes, text = list[str](), ""
    while cause is not None:
        classes.append(str(cause.getClass().getName()))
        text = str(cause.getMessage() or cause.toString())
        cause = cause.getCause()
    return classes, text


def _is_one(classes: list[str], ends: tuple[str, ...]) -> bool:
    return any(one.endswith(ends) for one in classes)
