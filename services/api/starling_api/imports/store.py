"""Adapter: imports in Cassandra. Every method may raise DatabaseUnavailable."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from starling_api.imports.imports import ImportFileRow, ImportRow, RejectRow
from starling_common.cassandra.database import Database
from starling_rules.imports import CANCELLED, ENDED, RUNNING, WAITING

_ADD: Final = (
    "INSERT INTO {ks}.imports (workspace, key, request, state, message, created_at_ms, changed_at_ms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
_ONE: Final = "SELECT key, request, state, message, created_at_ms, changed_at_ms FROM {ks}.imports WHERE workspace = ? AND key = ?"
_PAGE: Final = (
    "SELECT key, request, state, message, created_at_ms, changed_at_ms FROM {ks}.imports WHERE workspace = ? AND key > ? LIMIT ?"
)
_FILES: Final = (
    "SELECT file, rows_done, accepted, rejected, complete, message FROM {ks}.import_files WHERE workspace = ? AND key = ?"
)
_REJECTS: Final = (
    "SELECT file, row, column_name, code, reason, cure FROM {ks}.import_rejects "
    "WHERE workspace = ? AND key = ? AND (file, row) > (?, ?) LIMIT ?"
)
_STATES: Final = "SELECT state FROM {ks}.imports"
_REPEAT: Final = (
    "UPDATE {ks}.imports SET state = ?, message = NULL, request = ?, changed_at_ms = ? WHERE workspace = ? AND key = ? "
    "IF state IN (?, ?, ?)"
)
_REPLACE: Final = "UPDATE {ks}.imports SET request = ? WHERE workspace = ? AND key = ? IF request = ?"
_CANCEL: Final = "UPDATE {ks}.imports SET state = ?, changed_at_ms = ? WHERE workspace = ? AND key = ? IF state IN (?, ?)"


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

    def repeat(self, workspace: str, key: str, request: str, now_ms: int) -> bool:
        """Let an import that has ended wait again, with the request; return False if it has not ended."""
        return self._database.write_if(_REPEAT, (WAITING, request, now_ms, workspace, key, *sorted(ENDED)))

    def replace(self, workspace: str, key: str, former: str, request: str) -> bool:
        """Replace a request; return False if another call has changed it."""
        return self._database.write_if(_REPLACE, (request, workspace, key, former))

    def cancel(self, workspace: str, key: str, now_ms: int) -> bool:
        """Cancel an import; return False if it has ended."""
        return self._database.write_if(_CANCEL, (CANCELLED, now_ms, workspace, key, WAITING, RUNNING))

    def unfinished(self) -> Counter[str]:
        """Return the number of imports of all workspaces that wait or run, by state."""
        return Counter(row["state"] for row in self._database.read(_STATES) if row["state"] not in ENDED)
