"""Adapter: the sink PostgreSQL: COPY into a staging table, then one INSERT … ON CONFLICT … DO UPDATE a batch."""

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Timer
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import errors, sql
from pydantic import SecretStr

from starling_spark.sinks.port import (
    MOST_REASON,
    VERSION,
    RejectedRow,
    Run,
    Shape,
    SinkRefused,
    SinkUnavailable,
    Written,
    check_rejected,
)

BATCH_ROWS: Final = 5_000
_CONNECT_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 120.0
"""Longest time of the checks, and of a batch. libpq itself waits for an answer without end, as long as the host acknowledges."""
_ATTEMPTS: Final = 5
_STAGING: Final = sql.Identifier("starling_staging")
_TYPES: Final = {"string": "text", "int64": "bigint", "int32": "integer", "double": "double precision", "bool": "boolean"}
_ROW_ERRORS: Final = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded, errors.RaiseException)
"""The errors of single rows: values that do not fit, constraints of the table, and triggers that refuse."""
_AGAIN: Final = (errors.DeadlockDetected, errors.SerializationFailure)


@dataclass(frozen=True, slots=True)
class Postgres:
    """One table. `uri`: without a password; `table`: with or without a schema; `secret`: the setting with the password;
    `answer_seconds`: longest time of the checks, and of a batch.
    """

    uri: str
    table: str
    password: SecretStr | None
    secret: str
    answer_seconds: float = _ANSWER_SECONDS

    def check(self, shape: Shape) -> None:
        """Check the login, the table, its columns, its unique key and the rights."""
        with self._connected() as connection, self._answering(connection):
            self._check(connection, shape)

    def write(self, shape: Shape, _run: Run, batches: Iterable[pa.RecordBatch], most_rejected: int) -> Written:
        """Write the rows, each batch in a transaction of its own."""
        accepted, rejected = 0, list[RejectedRow]()
        with self._connected() as connection:
            statements = self._statements(shape)
            for rows in _batches(batches):
                refused = list(self._loaded(connection, statements, shape, rows))
                rejected += refused
                accepted += len(rows) - len(refused)
                check_rejected(rejected, most_rejected)
        return Written(accepted, tuple(rejected))

    def complete(self, _shape: Shape, _run: Run, _written: Sequence[Written]) -> None:
        """Do nothing: each batch is visible once it is written."""

    def _loaded(
        self, connection: psycopg.Connection[Any], statements: "_Statements", shape: Shape, rows: Sequence[tuple[Any, ...]]
    ) -> Iterator[RejectedRow]:
        """Load the rows, and yield the rejected ones, which are found by halving."""
        problem = self._problem(connection, statements, rows)
        if problem is None:
            return
        if len(rows) == 1:
            yield _rejected(shape, rows[0], problem)
            return
        middle = len(rows) // 2
        yield from self._loaded(connection, statements, shape, rows[:middle])
        yield from self._loaded(connection, statements, shape, rows[middle:])

    def _problem(
        self, connection: psycopg.Connection[Any], statements: "_Statements", rows: Sequence[tuple[Any, ...]]
    ) -> Exception | None:
        """Load the rows in one transaction. Return None, or the error of at least one of the rows, of which then none is loaded."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._answering(connection), connection.transaction(), connection.cursor() as cursor:
                    cursor.execute(statements.stage)
                    with cursor.copy(statements.copy) as copy:
                        for row in rows:
                            copy.write_row(row)
                    cursor.execute(statements.merge)
            except _ROW_ERRORS as error:
                return error
            except _AGAIN as error:
                if attempt == _ATTEMPTS:
                    raise SinkUnavailable(f"{self.table}: {_text(error)}: end the other writers of the table") from error
            else:
                return None
        return None

    def _statements(self, shape: Shape) -> "_Statements":
        columns = sql.SQL(", ").join(map(sql.Identifier, shape.names))
        key = sql.SQL(", ").join(map(sql.Identifier, shape.key))
        set_ = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in shape.names if name not in shape.key
        )
        names = {"staging": _STAGING, "columns": columns, "key": key, "set": set_, "version": sql.Identifier(VERSION)}
        table = self._identifier()
        return _Statements(
            sql.SQL("CREATE TEMPORARY TABLE {staging} ON COMMIT DROP AS SELECT {columns} FROM {table} LIMIT 0").format(
                table=table, **names
            ),
            sql.SQL("COPY {staging} ({columns}) FROM STDIN").format(**names),
            # In the order of the key, so that two writers wait for one another and never each for the other.
            sql.SQL(
                "INSERT INTO {table} AS kept ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {staging} "
                "ORDER BY {key}, {version} DESC ON CONFLICT ({key}) DO UPDATE SET {set} WHERE kept.{version} < excluded.{version}"
            ).format(table=table, **names),
        )

    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection. Errors that concern no single row become SinkRefused or SinkUnavailable."""
        password = None if self.password is None else self.password.get_secret_value()
        try:
            connection = psycopg.connect(self.uri, password=password, connect_timeout=_CONNECT_SECONDS, autocommit=True)
        except psycopg.OperationalError as error:
            raise self._not_connected(_text(error)) from None
        except psycopg.ProgrammingError as error:
            raise SinkRefused(f"{self.uri}: {_text(error)}: write postgresql://user@host:5432/database") from None
        with connection:
            try:
                yield connection
            except psycopg.OperationalError as error:
                raise SinkUnavailable(f"{self.uri}: {_text(error)}: start the server, or wait until it answers") from error
            except psycopg.Error as error:
                raise SinkRefused(f"{self.table}: {_text(error)}: correct the table, or grant the user its rights") from error

    @contextmanager
    def _answering(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Raises: SinkUnavailable if the block takes longer than `answer_seconds`; the connection is then closed."""
        is_late = Event()

        def end() -> None:
            is_late.set()
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as found:
                found.shutdown(socket.SHUT_RDWR)

        timer = Timer(self.answer_seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.OperationalError as error:
            if is_late.is_set():
                reason = f"no answer for {self.answer_seconds:.0f} s: end what locks the table, or restart the server"
                raise SinkUnavailable(f"{self.uri}: {reason}") from error
            raise
        finally:
            timer.cancel()

    def _not_connected(self, text: str) -> Exception:
        if "password" in text:
            return SinkRefused(f"{self.uri}: {text}: correct {self.secret}")
        if "does not exist" in text or "pg_hba" in text or "not permitted" in text or "certificate" in text:
            return SinkRefused(f"{self.uri}: {text}: correct the address, or create the user and the database and grant the login")
        return SinkUnavailable(f"{self.uri}: {text}: correct host and port, or start the server")

    def _check(self, connection: psycopg.Connection[Any], shape: Shape) -> None:
        found = connection.execute("SELECT to_regclass(%s)::oid", (self._identifier().as_string(connection),)).fetchone()
        if found is None or found[0] is None:
            raise SinkRefused(f"{self.table}: there is no such table: create it with: {self._definition(connection, shape)}")
        (table,) = found
        missing_rights = connection.execute(
            "SELECT string_agg(one, ', ') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) one "
            "WHERE NOT has_table_privilege(%s::oid, one)",
            (table,),
        ).fetchone()
        if missing_rights is not None and missing_rights[0] is not None:
            grant = f"GRANT SELECT, INSERT, UPDATE ON {self.table} TO the user"
            raise SinkRefused(f"{self.table}: the user lacks the rights {missing_rights[0]}: {grant}")
        temporary = connection.execute("SELECT has_database_privilege(current_database(), 'TEMPORARY')").fetchone()
        if temporary is not None and not temporary[0]:
            raise SinkRefused(f"{self.uri}: the user may not create temporary tables: GRANT TEMPORARY ON DATABASE to the user")
        statement = "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
        columns = {name for (name,) in connection.execute(statement, (table,))}
        lacking = [name for name in shape.names if name not in columns]
        if lacking:
            kind = _type(shape.schema.field(lacking[0]).type)
            cure = f"ALTER TABLE {self.table} ADD COLUMN {lacking[0]} {kind}"
            raise SinkRefused(
                f"{self.table}: lacks the column {lacking[0]}: {cure}, or name the columns of the export in `columns`"
            )
        unique = (
            "SELECT array_agg(attname ORDER BY attname) FROM pg_index "
            "JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) "
            "WHERE indrelid = %s AND indisunique AND indpred IS NULL GROUP BY indexrelid"
        )
        if sorted(shape.key) not in [sorted(map(str, names)) for (names,) in connection.execute(unique, (table,))]:
            key = ", ".join(shape.key)
            raise SinkRefused(
                f"{self.table}: has no unique index of the columns {key}: ALTER TABLE {self.table} ADD PRIMARY KEY ({key})"
            )

    def _definition(self, connection: psycopg.Connection[Any], shape: Shape) -> str:
        columns = ", ".join(
            f"{sql.Identifier(field.name).as_string(connection)} {_type(field.type)}{' NOT NULL' if field.name == VERSION else ''}"
            for field in shape.schema
        )
        return f"CREATE TABLE {self.table} ({columns}, PRIMARY KEY ({', '.join(shape.key)}))"


@dataclass(frozen=True, slots=True)
class _Statements:
    """The statements of a batch, in the order of their execution."""

    stage: sql.Composed
    copy: sql.Composed
    merge: sql.Composed


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[list[tuple[Any, ...]]]:
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            yield list(zip(*(column.to_pylist() for column in part.columns), strict=True))


def _rejected(shape: Shape, row: Sequence[Any], error: Exception) -> RejectedRow:
    code = getattr(error, "sqlstate", None) or "bad_value"
    version = row[shape.names.index(VERSION)]
    return RejectedRow(shape.key_text(row), version, code, _text(error), "correct the table, and export again from the start")


def _type(kind: pa.DataType) -> str:
    return "timestamptz" if pa.types.is_timestamp(kind) else _TYPES[str(kind)]


def _text(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:MOST_REASON].rstrip(".")
