"""Adapter: the runs of statements in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

from starling_api.sql.runs import RunRow
from starling_common.cassandra.database import Database
from starling_rules.sql.runs import WAITING, ScheduledSql

_COLUMNS: Final = ", ".join(RunRow._fields)
_EVERY: Final = f"SELECT {_COLUMNS} FROM {{ks}}.TABLE"  # noqa: S608 - the names of our columns
_OF: Final = f"{_EVERY} WHERE workspace = ?"
_FIRST: Final = (
    "INSERT INTO {ks}.TABLE (workspace, key, version, sql, timezone, archived, checks, check_results, incremental, state, run, "
    "queued_at_ms, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) IF NOT EXISTS"
)
_NEXT: Final = (
    "UPDATE {ks}.TABLE SET version = ?, sql = ?, timezone = ?, archived = ?, checks = ?, check_results = ?, incremental = ?, "
    "state = ?, run = ?, queued_at_ms = ?, attempts = 0, computed_at_ms = null, message = null WHERE workspace = ? AND key = ? "
    "IF state = ? AND queued_at_ms = ?"
)


class CassandraRuns:
    """The table that the Spark job `sql_traits` shares. The newest run changes by lightweight transactions only.

    `table`: `sql_traits`, `sql_views` or `event_type_checks`.
    """

    def __init__(self, database: Database, table: str = "sql_traits") -> None:
        self._database = database
        self._every, self._of, self._first, self._next = (one.replace("TABLE", table) for one in (_EVERY, _OF, _FIRST, _NEXT))

    def every(self) -> Sequence[RunRow]:
        """Return the statements of all workspaces. Scans the table, which has one row for each of them."""
        return [RunRow(**row) for row in self._database.read(self._every)]

    def of(self, workspace: str) -> Sequence[RunRow]:
        """Return the statements of a workspace."""
        return [RunRow(**row) for row in self._database.read(self._of, (workspace,))]

    def queue(self, statement: ScheduledSql, run: str, now_ms: int, before: RunRow | None) -> bool:
        """Queue a run; return False if the newest run is not `before` any more."""
        # The results of checks stay until those of this run replace them, unless it has none.
        results = None if before is None or statement.checks is None else before.check_results
        kept = (statement.checks, results, statement.incremental)
        values = (statement.version, statement.sql, statement.timezone, statement.archived, *kept, WAITING, run, now_ms)
        if before is None:
            return self._database.write_if(self._first, (statement.workspace, statement.key, *values))
        own = (statement.workspace, statement.key, before.state, before.queued_at_ms)
        return self._database.write_if(self._next, (*values, *own))
