"""Adapter: the rows of a database as a DataFrame, and batches of it as rows."""

import math
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, DataFrameReader, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 - as in every guide of Spark

from starling_common.http.outbound.addresses import is_public
from starling_rules.imports import ImportRequest
from starling_rules.jdbc import JdbcSource, SourceError, jdbc_address
from starling_spark.jobs.imports.rows import RejectedRow, UnusableFile, check_columns
from starling_spark.jobs.imports.sources.frames import NUMBERS, TIMES, TableRows, after, check_cursor, check_type, quoted
from starling_spark.jobs.imports.sources.reading import SourceUnavailable

SHIPPED: Final = MappingProxyType({"postgresql": "org.postgresql.Driver"})
"""The drivers that every installation permits, by the name in the URL."""
_ALIAS: Final = "starling_source"
_AS_TEXT: Final = (types.DecimalType, *TIMES)
"""The types whose values the driver may fail to convert, such as NaN and infinity, which would fail the whole task."""
_POSTGRESQL: Final = MappingProxyType({"readOnly": "true", "connectTimeout": "10", "tcpKeepAlive": "true"})
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK: Final = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?([+-]\d\d(:\d\d)?)?")
_SHOWN: Final = 60
_CURES: Final = (
    (("28",), "correct jdbc/user and jdbc/password: run the import again with the password"),
    (("3D", "08004"), "correct the database in the URI"),
    (("42P01", "42S02", "3F"), "correct jdbc/table, or create the table again"),
    (("42703", "42S22"), "correct the names of the columns"),
    (("42501",), "grant the user the right to read the table"),
    (("42", "25006"), "correct jdbc/query, which may only read"),
    (("22",), "correct the value in the database, or leave it out by a query"),
)
"""The prefixes of SQLSTATE, and the cure. The import fails."""
_AGAIN: Final = ("08", "40", "53", "57", "58")
"""The prefixes of SQLSTATE of a database that does not answer now."""


class JdbcAccess(NamedTuple):
    """What an operator permits. `drivers`: the class by the name in the URL; `allow_private`: hosts in private networks too;
    `answer_seconds`: how long PostgreSQL may send nothing before the import waits again.
    """

    drivers: Mapping[str, str] = SHIPPED
    allow_private: bool = False
    answer_seconds: int = 900


def opened_rows(
    spark: SparkSession, request: ImportRequest, password: str | None, last: str | None, access: JdbcAccess
) -> TableRows:
    """Return the rows to read. `last`: the greatest cursor of the last run. Raises: UnusableFile, SourceUnavailable."""
    try:
        return _opened(spark, request, password, last, access)
    except Py4JJavaError as error:
        raise_translated(spark, error)
        raise


def _opened(spark: SparkSession, request: ImportRequest, password: str | None, last: str | None, access: JdbcAccess) -> TableRows:
    source = request.jdbc
    assert source is not None  # noqa: S101 - the import has the format jdbc
    quote = _quoting(spark, request.uri)
    table = _table(source, quote)

    def reader() -> DataFrameReader:
        return _reader(spark, request, source, password, access).option("dbtable", table)

    fields = {field.name: field.dataType for field in _checked(request, reader().load()).schema.fields}
    check_cursor(fields, source.cursor_column)
    check_type(fields, source.partition_column, NUMBERS, "partition_column", "a whole number")
    as_text = {name: kind for name, kind in fields.items() if isinstance(kind, _AS_TEXT) and name not in source.columns()}
    chosen = reader()
    if as_text:
        chosen = chosen.option("customSchema", ", ".join(f"{quoted(name)} STRING" for name in as_text))
    if source.partition_column is not None:
        chosen = chosen.options(**_bounds(reader(), source, table, quote))
    frame = chosen.load()
    if source.cursor_column is not None and last is not None:
        frame = frame.where(after(source.cursor_column, last, fields[source.cursor_column]))
    if (wanted := request.read()) is not None:
        frame = frame.select(*[F.col(quoted(name)) for name in wanted])
    return TableRows(frame, {name: "number" if isinstance(kind, types.DecimalType) else "time" for name, kind in as_text.items()})


def _checked(request: ImportRequest, frame: DataFrame) -> DataFrame:
    check_columns(request, frame.columns, "the source, which has")
    return frame


def rows_of_batches(
    batches: Iterable[pa.RecordBatch], text_columns: Mapping[str, str], id_column: str | None = None
) -> Iterator[tuple[int, dict[str, Any]] | RejectedRow]:
    """Yield the number of each row, 1 for the first one of the task, and its values, or why it is rejected.

    `text_columns`: as of `TableRows`. Raises: UnusableFile.
    """
    number = 0
    for batch in batches:
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:
            raise UnusableFile(f"a time is not before the year 10000 ({error}): correct it in the source") from error
        for values in rows:
            number += 1
            found = _converted(number, values, text_columns)
            if isinstance(found, RejectedRow) and id_column is not None:
                found = found._replace(key=key_text(values.get(id_column), text_columns.get(id_column)))
            yield found


def cursor_text(value: Any) -> str:
    """Return a cursor as text. Texts of times have the order of their times."""
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat(timespec="microseconds")
    return value.isoformat() if isinstance(value, date) else str(value)


def greatest(cursors: Iterable[str]) -> str | None:
    """Return the greatest of the cursors of one column; None without one."""
    found = list(cursors)
    try:
        return max(found, key=Decimal, default=None)
    except InvalidOperation:
        return max(found)


def raise_translated(spark: SparkSession, error: Py4JJavaError) -> None:
    """Raise UnusableFile or SourceUnavailable for an error of the driver or the database; return for another one."""
    cause = error.java_exception
    while cause is not None:
        text = str(cause.getMessage() or cause.toString()).splitlines()[0]
        if is_instance_of(spark.sparkContext._gateway, cause, "java.sql.SQLException"):  # noqa: SLF001 - the only way to the class
            _raise_sql(str(cause.getSQLState() or ""), text)
        if cause.getClass().getName() == "java.lang.ClassNotFoundException":
            raise UnusableFile(f"there is no class {text}: add the jar of the driver to STARLING_SPARK_JARS") from None
        if cause.getClass().getName() == "java.lang.ArithmeticException":
            raise UnusableFile(f"a cursor is too large ({text}), such as infinity: correct it in the database") from None
        cause = cause.getCause()


def _raise_sql(state: str, text: str) -> None:
    if state.startswith(_AGAIN) and not state.startswith("08004"):
        raise SourceUnavailable(f"the database does not answer: {text}: correct host and port, or start it") from None
    cure = next((cure for prefixes, cure in _CURES if state.startswith(prefixes)), "correct the source, or the database")
    raise UnusableFile(f"the database refuses to be read: {text}: {cure}") from None


def _reader(
    spark: SparkSession, request: ImportRequest, source: JdbcSource, password: str | None, access: JdbcAccess
) -> DataFrameReader:
    """Return a reader of the database. Raises: UnusableFile, SourceUnavailable."""
    address = jdbc_address(request.uri)
    if isinstance(address, SourceError):
        raise UnusableFile(f"uri: {address.reason}: {address.cure}")
    driver = access.drivers.get(address.driver)
    if driver is None:
        known = ", ".join(access.drivers)
        raise UnusableFile(f"jdbc:{address.driver} is not permitted: add it to STARLING_IMPORTS_JDBC_DRIVERS (now: {known})")
    if not access.allow_private:
        _check_public(address.host)
    options = {
        "url": request.uri,
        "user": source.user,
        "driver": driver,
        "fetchsize": str(source.fetch_size),
        # A time without a zone is one of UTC, whatever the zone of the JVM.
        "preferTimestampNTZ": "true",
    }
    if address.driver == "postgresql":
        options |= {**_POSTGRESQL, "socketTimeout": str(access.answer_seconds)}
    return spark.read.format("jdbc").options(**options, **({} if password is None else {"password": password}))


def _check_public(host: str) -> None:
    """Raises: UnusableFile for a host in a private network, SourceUnavailable for an unknown one."""
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise SourceUnavailable(f"the host {host} has no address ({error}): correct it, or its entry in DNS") from error
    if not all(is_public(address) for address in found):
        raise UnusableFile(f"the host {host} is in a private network: set STARLING_ALLOW_PRIVATE_ADDRESSES=true of the job")


def _table(source: JdbcSource, quote: Callable[[str], str]) -> str:
    if source.table is not None:
        return ".".join(quote(part) for part in source.table.split("."))
    return f"({source.query}) {_ALIAS}"


def _quoting(spark: SparkSession, url: str) -> Callable[[str], str]:
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to the dialects
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
    return lambda name: str(dialect.quoteIdentifier(name))


def _bounds(reader: DataFrameReader, source: JdbcSource, table: str, quote: Callable[[str], str]) -> dict[str, str]:
    """Return the options by which tasks share the rows; empty for an empty table."""
    assert source.partition_column is not None  # noqa: S101 - the caller has checked it
    column = quote(source.partition_column)
    ends = f"(SELECT MIN({column}) AS low, MAX({column}) AS high FROM {table}) starling_ends"  # noqa: S608 - quoted by the dialect
    low, high = reader.option("dbtable", ends).load().collect()[0]
    if low is None:
        return {}
    # The bounds divide the rows and leave none out.
    return {
        "partitionColumn": source.partition_column,
        "lowerBound": str(int(low)),
        "upperBound": str(int(high) + 1),
        "numPartitions": str(source.partitions),
    }


def _converted(number: int, values: dict[str, Any], text_columns: Mapping[str, str]) -> tuple[int, dict[str, Any]] | RejectedRow:
    for column, kind in text_columns.items():
        text = values.get(column)
        if text is not None:
            try:
                values[column] = _number(text) if kind == "number" else _time(text)
            except ValueError:
                reason = f"{ascii(text)[:_SHOWN]} has no form in JSON"
                return RejectedRow(number, column, "bad_value", reason, "store null instead, or leave the row out by a query")
    # A cursor or a partition column keeps its type. Its whole numbers may be ids.
    for name, one in values.items():
        if type(one) is Decimal and one == one.to_integral_value():
            values[name] = int(one)
    return number, values


def key_text(value: Any, kind: str | None) -> str | None:
    """Return an id as the text that identifies the row; None if it is none. `kind`: of `TableRows.text_columns`."""
    if kind == "number" and isinstance(value, str):
        return str(int(value)) if value.lstrip("-").isdecimal() else None
    if isinstance(value, Decimal):
        return str(int(value)) if value == value.to_integral_value() else None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _number(text: str) -> int | float:
    """Raises: ValueError for what is no number of JSON."""
    if text.lstrip("-").isdecimal():
        return int(text)
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def _time(text: str) -> datetime | date | str:
    """Raises: ValueError for what is no time, such as infinity."""
    if _DAY.fullmatch(text):
        return date.fromisoformat(text)
    if _CLOCK.fullmatch(text):
        return text  # a time of day
    return datetime.fromisoformat(text)
