"""Adapter: the audience report in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

import msgspec

from starling_api.reports.audience_report import ReportRow, ReportRun
from starling_common.cassandra.database import Database

_RUN: Final = (
    "SELECT run, until_ms, timezone, segments, records_missing, records_unreadable FROM {ks}.report_runs WHERE workspace = ?"
)
_ROWS: Final = (
    "SELECT place, row FROM {ks}.report_rows "
    "WHERE workspace = ? AND run = ? AND part = ? AND segment_key = ? AND place >= ? AND place < ? LIMIT ?"
)


class CassandraReports:
    """Reads the tables of the Spark job `audience_report`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, workspace: str) -> ReportRun | None:
        """Return the newest run; None before the first report."""
        rows = self._database.read(_RUN, (workspace,))
        return ReportRun(**rows[0]) if rows else None

    def rows(self, workspace: str, run: int, part: str, segment_key: str, span: tuple[str, str], most: int) -> Sequence[ReportRow]:
        """Return the rows in the table's clustering order."""
        found = self._database.read(_ROWS, (workspace, run, part, segment_key, *span, most))
        return [ReportRow(segment_key, row["place"], msgspec.json.decode(row["row"])) for row in found]
