"""Adapter: one Cassandra session, opened at first use, with its prepared statements. Thread-safe."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from cassandra import ConsistencyLevel, DriverException, InvalidRequest, OperationTimedOut, RequestExecutionException
from cassandra.cluster import NoHostAvailable, ResponseFuture, Session
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage
from cassandra.query import BatchStatement, BatchType, PreparedStatement, Statement

from starling_common.cassandra.encoding import row_encoder
from starling_common.cassandra.sessions import ConnectionsLost, DatabaseFailed, DatabaseUnavailable, StatementRefused, open_session
from starling_common.settings import Cassandra

Row: TypeAlias = dict[str, Any]
Write: TypeAlias = tuple[str, Sequence[Any]]
"""A statement and its values."""

_FULL_DISK = "disk usage"
"""In the message of Cassandra's guardrail for full disks. It refuses every write as invalid until there is space again."""

_CONCURRENT_STATEMENTS = 64
"""Most statements in flight for one call; the driver distributes them over its connections."""


class Database:
    """Reads and writes at LOCAL_QUORUM. Every method raises DatabaseUnavailable if Cassandra does not respond.

    In statements `{ks}` is the keyspace of the settings, because the session has no default keyspace.
    """

    def __init__(self, settings: Cassandra) -> None:
        """Open no session; the first call does, and later calls retry until a session is open."""
        self._settings = settings
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._prepared: dict[tuple[str, int], PreparedStatement] = {}
        self._encoders: dict[bytes, Callable[[Sequence[Any]], list[bytes | None]]] = {}

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a statement."""
        return self._execute(statement, values, ConsistencyLevel.LOCAL_QUORUM)

    def read_serially(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows at LOCAL_SERIAL: the result includes every acknowledged lightweight transaction."""
        return self._execute(statement, values, ConsistencyLevel.LOCAL_SERIAL)

    def write(self, statement: str, values: Sequence[Any]) -> None:
        """Execute one write."""
        self._execute(statement, values, ConsistencyLevel.LOCAL_QUORUM)

    def write_if(self, statement: str, values: Sequence[Any]) -> bool:
        """Execute a lightweight transaction; return False if its condition did not hold."""
        return bool(self._execute(statement, values, ConsistencyLevel.LOCAL_QUORUM)[0]["[applied]"])

    def read_each(self, statement: str, each: Sequence[Sequence[Any]]) -> list[list[Row]]:
        """Execute one statement with many sets of values concurrently; return the rows in the order of the values."""
        return self._side_by_side(statement, each)

    def write_each(self, statement: str, each: Sequence[Sequence[Any]]) -> None:
        """Execute many writes concurrently; return when all are done. The whole call is safe to repeat."""
        self._side_by_side(statement, each)

    def write_batches(self, batches: Sequence[Sequence[Write]]) -> None:
        """Execute unlogged batches concurrently; return when all are done. The whole call is safe to repeat.

        Each batch must stay in one Cassandra partition of one table: it is then a single mutation on its replicas.
        """
        if not batches:
            return
        with _translated():
            self._answers(self._batch(batch) for batch in batches)

    def pages(self, statement: str, values: Sequence[Any], rows_a_page: int) -> Iterator[list[Row]]:
        """Yield all rows of a statement page by page, for results that may not fit into memory."""
        with _translated():
            bound = self._prepare(statement, ConsistencyLevel.LOCAL_QUORUM).bind(values)
            bound.fetch_size = rows_a_page
            future = self._opened().execute_async(bound)
        try:
            with _translated():
                result = future.result()
            yield list(result.current_rows)
            while result.has_more_pages:
                with _translated():
                    result.fetch_next_page()
                yield list(result.current_rows)
        finally:
            _release(future)

    def problem(self) -> str | None:
        """Return the error of a test query, or None if the database responds. For readiness."""
        try:
            self.read("SELECT release_version FROM system.local")
        except DatabaseUnavailable as error:
            return str(error)
        return None

    def check(self, statements: Iterable[str]) -> None:
        """Let the database compile the statements again. Raises: StatementRefused if a table or a column of one is missing."""
        with _translated():
            for statement in statements:
                self._prepared.pop((statement, ConsistencyLevel.LOCAL_QUORUM), None)
                self._prepare(statement, ConsistencyLevel.LOCAL_QUORUM)

    def close(self) -> None:
        """Close the session. A later call opens a new one."""
        with self._lock:
            if self._session is not None:
                self._session.cluster.shutdown()
            self._session = None
            self._prepared.clear()
            self._encoders.clear()

    def _execute(self, statement: str, values: Sequence[Any], consistency: int) -> list[Row]:
        with _translated():
            return _answer(self._opened().execute_async(self._prepare(statement, consistency), values))

    def _side_by_side(self, statement: str, each: Sequence[Sequence[Any]]) -> list[list[Row]]:
        if not each:
            return []
        with _translated():
            prepared = self._prepare(statement, ConsistencyLevel.LOCAL_QUORUM)
            return self._answers(prepared.bind(values) for values in each)

    def _answers(self, statements: Iterable[Statement]) -> list[list[Row]]:
        """Execute the statements concurrently; return the rows of each, in order."""
        session, found = self._opened(), []
        waiting: deque[ResponseFuture] = deque()
        for statement in statements:
            if len(waiting) == _CONCURRENT_STATEMENTS:
                found.append(_answer(waiting.popleft()))
            waiting.append(session.execute_async(statement))
        return found + [_answer(future) for future in waiting]

    def _batch(self, writes: Sequence[Write]) -> BatchStatement:
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.LOCAL_QUORUM)
        # The driver binds the first write, which routes the batch to its replicas. For all of them its `bind` would take too long.
        batch.add(self._prepare(writes[0][0], ConsistencyLevel.LOCAL_QUORUM), writes[0][1])
        add = batch._statements_and_parameters.append  # noqa: SLF001 - as `add` does with the values of a bound statement
        for statement, values in writes[1:]:
            prepared = self._prepare(statement, ConsistencyLevel.LOCAL_QUORUM)
            add((True, prepared.query_id, self._encoder(prepared)(values)))
        return batch

    def _encoder(self, prepared: PreparedStatement) -> Callable[[Sequence[Any]], list[bytes | None]]:
        found = self._encoders.get(prepared.query_id)
        if found is None:
            found = self._encoders[prepared.query_id] = row_encoder([column.type for column in prepared.column_metadata])
        return found

    def _prepare(self, statement: str, consistency: int) -> PreparedStatement:
        found = self._prepared.get((statement, consistency))
        if found is None:
            found = self._opened().prepare(statement.format(ks=self._settings.keyspace))
            found.consistency_level = consistency
            found.serial_consistency_level = ConsistencyLevel.LOCAL_SERIAL
            self._prepared[statement, consistency] = found
        return found

    def _opened(self) -> Session:
        with self._lock:
            if self._session is None:
                self._session = open_session(self._settings)
            return self._session


def _answer(future: ResponseFuture) -> list[Row]:
    """Wait for the rows and return them."""
    try:
        return list(future.result())
    finally:
        _release(future)


def _release(future: ResponseFuture) -> None:
    """Break the reference cycle of a finished future and its timer. It would keep the sent values in memory until the next garbage
    collection, which a worker runs once a minute.
    """
    future._timer = None  # noqa: SLF001


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (NoHostAvailable, ConnectionException) as cause:
        raise ConnectionsLost(f"Cassandra does not respond: {cause}") from cause
    except (OperationTimedOut, RequestExecutionException) as cause:
        raise DatabaseUnavailable(f"Cassandra does not respond: {cause}") from cause
    except InvalidRequest as cause:
        if _FULL_DISK in str(cause):
            raise DatabaseUnavailable(f"Cassandra accepts no write: {cause}") from cause
        raise StatementRefused(f"Cassandra refuses the statement, run `python -m starling_common.deploy`: {cause}") from cause
    except (DriverException, ErrorMessage) as cause:
        raise DatabaseFailed(f"Cassandra failed: {cause}") from cause
