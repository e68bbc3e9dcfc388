"""Adapter: rows of views from Cassandra, where the Spark job `views` writes them. Every method raises DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

import msgspec

from starling_api.reports.views import ViewEntry, ViewRow
from starling_common.database import Database

_ENTRY: Final = "SELECT version, dimensions, measures, window_ms FROM {ks}.view_catalogue WHERE name = ?"
_TIMES: Final = "SELECT stream_time_ms FROM {ks}.view_progress WHERE name = ? AND version = ?"
_WINDOWS: Final = (
    "SELECT window_start_ms FROM {ks}.view_windows "
    "WHERE workspace = ? AND name = ? AND version = ? AND window_start_ms >= ? AND window_start_ms < ?"
)
_ROWS: Final = (
    "SELECT place, row FROM {ks}.view_rows "
    "WHERE workspace = ? AND name = ? AND version = ? AND window_start_ms = ? AND place > ? LIMIT ?"
)


class CassandraViews:
    """Reads what the job has written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entry(self, view: str) -> ViewEntry | None:
        """None for a view that nobody computes."""
        rows = self._database.read(_ENTRY, (view,))
        return ViewEntry(**rows[0]) if rows else None

    def time_ms(self, view: str, version: int) -> int | None:
        """The least of the partitions that had a record."""
        return min((row["stream_time_ms"] for row in self._database.read(_TIMES, (view, version))), default=None)

    def windows(self, workspace: str, view: str, version: int, span: tuple[int, int]) -> Sequence[int]:
        """In order, as the table clusters them."""
        return [row["window_start_ms"] for row in self._database.read(_WINDOWS, (workspace, view, version, *span))]

    def rows(self, workspace: str, view: str, version: int, window_start_ms: int, after: str, most: int) -> Sequence[ViewRow]:
        """In order, as the table clusters them."""
        found = self._database.read(_ROWS, (workspace, view, version, window_start_ms, after, most))
        return [ViewRow(window_start_ms, row["place"], msgspec.json.decode(row["row"], type=dict[str, str])) for row in found]
