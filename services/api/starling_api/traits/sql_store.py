"""Adapter: the runs of SQL traits in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

from starling_api.traits.sql import SqlTraitRow
from starling_common.cassandra.database import Database
from starling_rules.sql.runs import WAITING, TraitSql

_COLUMNS: Final = ", ".join(SqlTraitRow._fields)
_EVERY: Final = f"SELECT {_COLUMNS} FROM {{ks}}.sql_traits"  # noqa: S608 - the names of our columns
_OF: Final = f"{_EVERY} WHERE workspace = ?"
_FIRST: Final = (
    "INSERT INTO {ks}.sql_traits (workspace, key, version, sql, timezone, archived, state, run, queued_at_ms, attempts) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0) IF NOT EXISTS"
)
_NEXT: Final = (
    "UPDATE {ks}.sql_traits SET version = ?, sql = ?, timezone = ?, archived = ?, state = ?, run = ?, queued_at_ms = ?, "
    "attempts = 0, computed_at_ms = null, message = null WHERE workspace = ? AND key = ? IF state = ? AND queued_at_ms = ?"
)


class CassandraSqlTraits:
    """The table that the Spark job `sql_traits` shares. The newest run changes by lightweight transactions only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def every(self) -> Sequence[SqlTraitRow]:
        """Return the traits of all workspaces. Scans the table, which has one row per trait."""
        return [SqlTraitRow(**row) for row in self._database.read(_EVERY)]

    def of(self, workspace: str) -> Sequence[SqlTraitRow]:
        """Return the traits of a workspace."""
        return [SqlTraitRow(**row) for row in self._database.read(_OF, (workspace,))]

    def queue(self, trait: TraitSql, run: str, now_ms: int, before: SqlTraitRow | None) -> bool:
        """Queue a run; return False if the newest run is not `before` any more."""
        values = (trait.version, trait.sql, trait.timezone, trait.archived, WAITING, run, now_ms)
        if before is None:
            return self._database.write_if(_FIRST, (trait.workspace, trait.key, *values))
        own = (trait.workspace, trait.key, before.state, before.queued_at_ms)
        return self._database.write_if(_NEXT, (*values, *own))
