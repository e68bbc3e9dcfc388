"""Adapter: one Cassandra session, opened at first use, with its prepared statements. Safe for use by several threads."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, RequestExecutionException
from cassandra.cluster import NoHostAvailable, ResponseFuture, Session
from cassandra.connection import ConnectionException
from cassandra.query import BatchStatement, BatchType, PreparedStatement, Statement

from starling_common.cassandra import DatabaseUnavailable, open_session
from starling_common.settings import Cassandra

Row: TypeAlias = dict[str, Any]
Write: TypeAlias = tuple[str, Sequence[Any]]
"""A statement and its values."""

_CONCURRENT_STATEMENTS = 64
"""In flight for one call; the driver spreads them over its connections."""


class Database:
    """Reads and writes at LOCAL_QUORUM. Every method raises DatabaseUnavailable when there is no answer.

    In statements `{ks}` stands for the keyspace of the settings: a session without a keyspace of its own can be shared.
    """

    def __init__(self, settings: Cassandra) -> None:
        """Opens nothing; the first call does, and every later one tries again while there is no session."""
        self._settings = settings
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._prepared: dict[tuple[str, int], PreparedStatement] = {}

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """All rows of a statement."""
        return self._execute(statement, values, ConsistencyLevel.LOCAL_QUORUM)

    def read_serially(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """As `read`, and sees every lightweight transaction that anybody was told of."""
        return self._execute(statement, values, ConsistencyLevel.LOCAL_SERIAL)

    def write(self, statement: str, values: Sequence[Any]) -> None:
        """One write."""
        self._execute(statement, values, ConsistencyLevel.LOCAL_QUORUM)

    def write_if(self, statement: str, values: Sequence[Any]) -> bool:
        """A lightweight transaction; False when its condition did not hold."""
        return bool(self._execute(statement, values, ConsistencyLevel.LOCAL_QUORUM)[0]["[applied]"])

    def read_each(self, statement: str, each: Sequence[Sequence[Any]]) -> list[list[Row]]:
        """One statement with many sets of values, side by side; the rows in the order of the values."""
        return self._side_by_side(statement, each)

    def write_each(self, statement: str, each: Sequence[Sequence[Any]]) -> None:
        """Many writes side by side; returns when all are done, and may be repeated as a whole."""
        self._side_by_side(statement, each)

    def write_batches(self, batches: Sequence[Sequence[Write]]) -> None:
        """Unlogged batches side by side; returns when all are done, and may be repeated as a whole.

        Each must stay in one Cassandra partition of one table: then it is one mutation, and goes straight to its owner.
        """
        if not batches:
            return
        with _translated():
            self._answers(self._batch(batch) for batch in batches)

    def pages(self, statement: str, values: Sequence[Any], rows_a_page: int) -> Iterator[list[Row]]:
        """All rows of a statement, a page at a time: for what may not fit into memory."""
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
            _let_go(future)

    def problem(self) -> str | None:
        """What is wrong, in words; None when the database answers. For readiness."""
        try:
            self.read("SELECT release_version FROM system.local")
        except DatabaseUnavailable as error:
            return str(error)
        return None

    def close(self) -> None:
        """Close the session; the object can be used again."""
        with self._lock:
            if self._session is not None:
                self._session.cluster.shutdown()
            self._session = None
            self._prepared.clear()

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
        """The rows of each, in their order."""
        session, found = self._opened(), []
        waiting: deque[ResponseFuture] = deque()
        for statement in statements:
            if len(waiting) == _CONCURRENT_STATEMENTS:
                found.append(_answer(waiting.popleft()))
            waiting.append(session.execute_async(statement))
        return found + [_answer(future) for future in waiting]

    def _batch(self, writes: Sequence[Write]) -> BatchStatement:
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.LOCAL_QUORUM)
        for statement, values in writes:
            batch.add(self._prepare(statement, ConsistencyLevel.LOCAL_QUORUM), values)
        return batch

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
    """Wait for the rows."""
    try:
        return list(future.result())
    finally:
        _let_go(future)


def _let_go(future: ResponseFuture) -> None:
    """The driver's future and its timer, which is not needed any more, hold one another, and with them all that was sent, until the
    interpreter looks for cycles. A worker that writes its states has that done once a minute.
    """
    future._timer = None  # noqa: SLF001


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (NoHostAvailable, OperationTimedOut, RequestExecutionException, ConnectionException) as cause:
        raise DatabaseUnavailable(f"Cassandra does not answer: {cause}") from cause
    except InvalidRequest as cause:
        raise DatabaseUnavailable(f"Cassandra refuses, run `python -m starling_common.deploy`: {cause}") from cause
