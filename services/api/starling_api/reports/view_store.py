"""Adapter: the rows of materialised views in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Final

import msgspec

from starling_api.reports.views import ViewEntry, ViewRow
from starling_common.cassandra.database import Database

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
    """Reads the tables of the Spark job `views`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entry(self, view: str) -> ViewEntry | None:
        """Return the catalogue entry; None for an unknown view."""
        rows = self._database.read(_ENTRY, (view,))
        return ViewEntry(**rows[0]) if rows else None

    def time_ms(self, view: str, version: int) -> int | None:
        """Return the lowest stream time of the partitions with records; None before the first record."""
        return min((row["stream_time_ms"] for row in self._database.read(_TIMES, (view, version))), default=None)

    def windows(self, workspace: str, view: str, version: int, span: tuple[int, int]) -> Sequence[int]:
        """Return the window starts in the table's clustering order."""
        return [row["window_start_ms"] for row in self._database.read(_WINDOWS, (workspace, view, version, *span))]

    def rows(self, workspace: str, view: str, version: int, window_start_ms: int, after: str, most: int) -> Sequence[ViewRow]:
        """Return the rows in the table's clustering order."""
        found = self._database.read(_ROWS, (workspace, view, version, window_start_ms, after, most))
        return [ViewRow(window_start_ms, row["place"], msgspec.json.decode(row["row"], type=dict[str, str])) for row in found]
