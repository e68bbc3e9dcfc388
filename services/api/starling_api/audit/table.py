"""Adapter: the table of the audit log, which the projector writes."""

from collections.abc import Sequence
from typing import Final

from starling_api.audit.audit import AuditPosition, AuditRow
from starling_common.cassandra.database import Database

_READ: Final = (
    f"SELECT {', '.join(AuditRow._fields)} FROM {{ks}}.audit_log WHERE workspace = ? AND period = ? "  # noqa: S608 - constants
    "AND (recorded_at_micros, resource, key, correlation_id) > (?, ?, ?, ?) LIMIT ?"
)


class CassandraAudit:
    """Rows in the order of the table's key. Every method may raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, workspace: str, period: int, after: AuditPosition, most: int) -> Sequence[AuditRow]:
        """Return the first rows of a period after a position, the oldest first."""
        return [AuditRow(**row) for row in self._database.read(_READ, (workspace, period, *after, most))]
