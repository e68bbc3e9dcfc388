"""Adapter: imports in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

from starling_api.imports.imports import ImportFileRow, ImportRow, RejectRow
from starling_common.cassandra.database import Database
from starling_rules.imports import CANCELLED, ENDED, WAITING, ImportState

_COLUMNS: Final = ", ".join(ImportRow._fields)
_ADD: Final = f"INSERT INTO {{ks}}.imports (workspace, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"  # noqa: S608
_ONE: Final = f"SELECT {_COLUMNS} FROM {{ks}}.imports WHERE workspace = ? AND key = ?"  # noqa: S608 - the names of our columns
_PAGE: Final = f"SELECT {_COLUMNS} FROM {{ks}}.imports WHERE workspace = ? AND key > ? LIMIT ?"  # noqa: S608
_FILES: Final = (
    "SELECT file, rows_done, accepted, rejected, complete, message FROM {ks}.import_files WHERE workspace = ? AND key = ?"
)
_REJECTS: Final = (
    "SELECT file, row, column_name, code, reason, cure FROM {ks}.import_rejects "
    "WHERE workspace = ? AND key = ? AND (file, row) > (?, ?) LIMIT ?"
)
_STATES: Final = f"SELECT {', '.join(ImportState._fields)} FROM {{ks}}.imports"  # noqa: S608
_REPEAT: Final = (
    "UPDATE {ks}.imports SET state = ?, message = NULL, request = ?, changed_at_ms = ?, due_after_ms = ?, "
    "deletions = ?, snapshot = NULL WHERE workspace = ? AND key = ? IF state IN (?, ?, ?)"
)
_QUEUE: Final = (
    "UPDATE {ks}.imports SET state = ?, message = NULL, changed_at_ms = ?, due_after_ms = ?, deletions = NULL, "
    "snapshot = NULL WHERE workspace = ? AND key = ? IF state = ? AND due_after_ms = ?"
)
_SCHEDULE: Final = "UPDATE {ks}.imports SET schedule = ?, timezone = ?, due_after_ms = ? WHERE workspace = ? AND key = ? IF EXISTS"
_REPLACE: Final = "UPDATE {ks}.imports SET request = ? WHERE workspace = ? AND key = ? IF request = ?"
_CANCEL: Final = "UPDATE {ks}.imports SET state = ?, changed_at_ms = ? WHERE workspace = ? AND key = ? IF state IN ?"


class CassandraImports:
    """The tables that the Spark job `imports` shares. The state changes by lightweight transactions only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, workspace: str, row: ImportRow) -> bool:
        """Store a new import; return False if there is one with this key."""
        return self._database.write_if(_ADD, (workspace, *row))

    def find(self, workspace: str, key: str) -> ImportRow | None:
        """Return one import, after every acknowledged change of its state."""
        rows = self._database.read_serially(_ONE, (workspace, key))
        return ImportRow(**rows[0]) if rows else None

    def page(self, workspace: str, after: str, most: int) -> Sequence[ImportRow]:
        """Return the imports after a key, by key."""
        return [ImportRow(**row) for row in self._database.read(_PAGE, (workspace, after, most))]

    def files(self, workspace: str, key: str) -> Sequence[ImportFileRow]:
        """Return the files of an import, by name."""
        return [ImportFileRow(**row) for row in self._database.read(_FILES, (workspace, key))]

    def rejects(self, workspace: str, key: str, after: tuple[str, int], most: int) -> Sequence[RejectRow]:
        """Return the rejected rows after a file and a row, in this order."""
        rows = self._database.read(_REJECTS, (workspace, key, *after, most))
        return [RejectRow(*(row[name] for name in ("file", "row", "column_name", "code", "reason", "cure"))) for row in rows]

    def repeat(self, workspace: str, key: str, request: str, deletions: str | None, now_ms: int) -> bool:
        """Let an import that has ended wait again; return False if it has not ended. `deletions`: of this run alone."""
        values = (WAITING, request, now_ms, now_ms, deletions, workspace, key)
        return self._database.write_if(_REPEAT, (*values, *sorted(ENDED)))

    def every(self) -> Sequence[ImportState]:
        """Return the states of the imports of all workspaces. Scans the table, which has one row for each of them."""
        return [ImportState(**row) for row in self._database.read(_STATES)]

    def queue(self, one: ImportState, now_ms: int) -> bool:
        """Let an import wait again by its schedule; return False if its state or its schedule is another one meanwhile."""
        return self._database.write_if(_QUEUE, (WAITING, now_ms, now_ms, one.workspace, one.key, one.state, one.due_after_ms))

    def set_schedule(self, workspace: str, key: str, schedule: str | None, timezone: str | None, now_ms: int) -> bool:
        """Replace the schedule, whose earlier times are past; return False if there is no such import."""
        return self._database.write_if(_SCHEDULE, (schedule, timezone, now_ms, workspace, key))

    def replace(self, workspace: str, key: str, former: str, request: str) -> bool:
        """Replace a request; return False if another call has changed it."""
        return self._database.write_if(_REPLACE, (request, workspace, key, former))

    def cancel(self, workspace: str, key: str, states: Sequence[str], now_ms: int) -> bool:
        """Cancel an import in one of these states; return False if it has another one."""
        return self._database.write_if(_CANCEL, (CANCELLED, now_ms, workspace, key, states))
