"""Adapter: imports, their progress by file, and rejected rows, in Cassandra.

Every method may raise DatabaseUnavailable.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from starling_common.cassandra.database import Database
from starling_common.time.instants import wall_clock_ms
from starling_rules.imports import RUNNING, WAITING, ImportRequest
from starling_spark.jobs.imports.rows import RejectedRow

_ALL: Final = "SELECT workspace, key, request, state, created_at_ms, deletions FROM {ks}.imports"
_STATE: Final = "SELECT state FROM {ks}.imports WHERE workspace = ? AND key = ?"
_SET_STATE: Final = (
    "UPDATE {ks}.imports SET state = ?, message = ?, changed_at_ms = ? WHERE workspace = ? AND key = ? IF state IN (?, ?)"
)
_FILES: Final = (
    "SELECT file, version, rows_done, accepted, rejected, complete, message FROM {ks}.import_files WHERE workspace = ? AND key = ?"
)
_SET_FILE: Final = (
    "INSERT INTO {ks}.import_files (workspace, key, file, version, size_bytes, rows_done, accepted, rejected, complete, message) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_REJECT: Final = (
    "INSERT INTO {ks}.import_rejects (workspace, key, file, row, column_name, code, reason, cure) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_FORGET: Final = "DELETE FROM {ks}.import_rejects WHERE workspace = ? AND key = ? AND file = ?"
_FORGET_FILES: Final = "DELETE FROM {ks}.import_files WHERE workspace = ? AND key = ?"
_FORGET_REJECTS: Final = "DELETE FROM {ks}.import_rejects WHERE workspace = ? AND key = ?"
_PIN: Final = "UPDATE {ks}.imports SET snapshot = ? WHERE workspace = ? AND key = ? IF state = ?"
_PINNED: Final = "SELECT snapshot FROM {ks}.imports WHERE workspace = ? AND key = ?"
_LAST: Final = "SELECT snapshot FROM {ks}.import_cursors WHERE workspace = ? AND key = ?"
_SET_LAST: Final = "INSERT INTO {ks}.import_cursors (workspace, key, snapshot) VALUES (?, ?, ?)"
_CURSOR: Final = "SELECT position FROM {ks}.import_cursors WHERE workspace = ? AND key = ?"
_SET_CURSOR: Final = "INSERT INTO {ks}.import_cursors (workspace, key, position) VALUES (?, ?, ?)"


class Place(NamedTuple):
    """The identity of an import."""

    workspace: str
    key: str


class Progress(NamedTuple):
    """Progress of one file. `version`: of the content; `message`: why the file failed.

    `rows_done` = accepted + rejected, and with a database the rows that are unchanged.
    """

    version: str
    rows_done: int = 0
    accepted: int = 0
    rejected: int = 0
    complete: bool = False
    message: str | None = None


class ImportStore:
    """Reads and writes the tables of imports."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def unfinished(self) -> list[tuple[Place, ImportRequest]]:
        """Return the imports that wait or run, the oldest first."""
        rows = sorted(self._database.read(_ALL), key=lambda row: (row["created_at_ms"], row["workspace"], row["key"]))
        return [
            (Place(row["workspace"], row["key"]), _request(row["request"], row["deletions"]))
            for row in rows
            if row["state"] in {WAITING, RUNNING}
        ]

    def is_running(self, place: Place) -> bool:
        """Return whether the import has not been cancelled."""
        rows = self._database.read_serially(_STATE, place)
        return bool(rows) and rows[0]["state"] == RUNNING

    def set_state(self, place: Place, state: str, message: str | None = None) -> bool:
        """Set the state of an import that waits or runs; return False if it has ended."""
        return self._database.write_if(_SET_STATE, (state, message, wall_clock_ms(), *place, WAITING, RUNNING))

    def progress(self, place: Place) -> dict[str, Progress]:
        """Return the progress by file."""
        return {row.pop("file"): Progress(**row) for row in map(dict, self._database.read(_FILES, place))}

    def set_progress(self, place: Place, file: str, size_bytes: int, progress: Progress) -> None:
        """Store the progress of a file."""
        self._database.write(_SET_FILE, (*place, file, progress.version, size_bytes, *progress[1:]))

    def add_rejects(self, place: Place, file: str, rows: Sequence[RejectedRow]) -> None:
        """Store rejected rows. A repetition replaces them."""
        self._database.write_each(_REJECT, [(*place, file, *row[:-1]) for row in rows])

    def forget_rejects(self, place: Place, file: str) -> None:
        """Delete the rejected rows of a file whose content has changed."""
        self._database.write(_FORGET, (*place, file))

    def forget_run(self, place: Place) -> None:
        """Delete the progress and the rejected rows of the last run."""
        self._database.write(_FORGET_FILES, place)
        self._database.write(_FORGET_REJECTS, place)

    def pin(self, place: Place, snapshot: str) -> None:
        """Store the snapshot that a run reads. Only a new run has none; a cancelled one is left as it is."""
        self._database.write_if(_PIN, (snapshot, *place, RUNNING))

    def pinned(self, place: Place) -> str | None:
        """Return the snapshot of a run that was interrupted."""
        rows = self._database.read_serially(_PINNED, place)
        return rows[0]["snapshot"] if rows else None

    def last_snapshot(self, place: Place) -> str | None:
        """Return the snapshot of which every row is imported; None without one."""
        rows = self._database.read(_LAST, place)
        return rows[0]["snapshot"] if rows else None

    def set_last_snapshot(self, place: Place, snapshot: str | None) -> None:
        """Store the snapshot of which every row is imported."""
        self._database.write(_SET_LAST, (*place, snapshot))

    def cursor(self, place: Place) -> str | None:
        """Return the greatest cursor of the last complete run."""
        rows = self._database.read(_CURSOR, place)
        return rows[0]["position"] if rows else None

    def set_cursor(self, place: Place, position: str) -> None:
        """Store the greatest cursor of a complete run."""
        self._database.write(_SET_CURSOR, (*place, position))


def _request(text: str, deletions: str | None) -> ImportRequest:
    """Return a stored request. `deletions`: those of this run alone, if other ones."""
    return msgspec.json.decode(text, type=ImportRequest).with_deletions(deletions)
