"""Core: queries on materialised views, which a Spark job maintains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from starling_api.http.errors import BadRequest, NotFound
from starling_api.http.pagination import PageOf, cut, instant_parameter
from starling_common.time.instants import format_instant

_BEGINNING: Final = -(2**62)
_END: Final = 2**62


class ViewEntry(NamedTuple):
    """The catalogue entry of a view. Its rows are sums of `measures` by `dimensions` and window."""

    version: int
    dimensions: Sequence[str]
    measures: Sequence[str]
    window_ms: int


class ViewRow(NamedTuple):
    """One row. `place` sorts the rows of a window; sums are numbers as text."""

    window_start_ms: int
    place: str
    row: Mapping[str, str]


class ViewReader(Protocol):
    """The tables of materialised views. Every method may raise DatabaseUnavailable."""

    def entry(self, view: str) -> ViewEntry | None:
        """Return the catalogue entry; None for an unknown view."""

    def time_ms(self, view: str, version: int) -> int | None:
        """Return the stream time that the rows of every source partition reflect; None before the first record."""

    def windows(self, workspace: str, view: str, version: int, span: tuple[int, int]) -> Sequence[int]:
        """Return the starts of the windows with rows, span[0] <= start < span[1], in order."""

    def rows(self, workspace: str, view: str, version: int, window_start_ms: int, after: str, most: int) -> Sequence[ViewRow]:
        """Return the rows of one window with a place after `after`, in order."""


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A request for rows. `since`, `until`: instants as text, `until` exclusive; `filters`: dimension -> required value."""

    since: str | None
    until: str | None
    filters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MaterialisedViews:
    """The queries on materialised views."""

    reader: ViewReader

    def page(self, workspace: str, view: str, wanted: ViewRequest, page: PageOf) -> dict[str, Any]:
        """Return a page of rows, sorted by window, then by place. Raises: NotFound, BadRequest."""
        entry = self.reader.entry(view)
        if entry is None:
            raise NotFound("view", view)
        if unknown := sorted(wanted.filters.keys() - set(entry.dimensions)):
            raise BadRequest(
                "unknown_dimension", f"{', '.join(unknown)}: the dimensions of {view} are {', '.join(entry.dimensions)}"
            )
        name = f"view {view} {entry.version}"
        start_ms, place = page.after(name, (_BEGINNING, ""))
        span = (max(_instant("from", wanted.since, _BEGINNING), start_ms), _instant("to", wanted.until, _END))
        # Read before the rows, so that the rows are at least as new as `as_of`.
        time_ms = self.reader.time_ms(view, entry.version)
        found = self._rows(workspace, view, (entry.version, span), (start_ms, place), (wanted.filters, page.limit + 1))
        rows, cursor = cut(found, page.limit, name, lambda row: (row.window_start_ms, row.place))
        return {
            "view": view,
            "version": entry.version,
            "items": [_item(row, entry) for row in rows],
            "next_cursor": cursor,
            "as_of": None if time_ms is None else format_instant(time_ms),
        }

    def _rows(
        self,
        workspace: str,
        view: str,
        within: tuple[int, tuple[int, int]],
        after: tuple[int, str],
        query: tuple[Mapping[str, str], int],
    ) -> list[ViewRow]:
        (version, span), (filters, most) = within, query
        found: list[ViewRow] = []
        for start_ms in self.reader.windows(workspace, view, version, span):
            place = after[1] if start_ms == after[0] else ""
            while len(found) < most:
                rows = self.reader.rows(workspace, view, version, start_ms, place, most)
                found += [row for row in rows if all(row.row.get(name) == value for name, value in filters.items())]
                if len(rows) < most:
                    break
                place = rows[-1].place
        return found[:most]


def _item(row: ViewRow, entry: ViewEntry) -> dict[str, Any]:
    return {
        "window_start": format_instant(row.window_start_ms),
        "window_end": format_instant(row.window_start_ms + entry.window_ms),
        **{name: row.row[name] for name in entry.dimensions},
        **{name: _number(row.row[name]) for name in entry.measures},
    }


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _instant(name: str, text: str | None, default: int) -> int:
    return default if text is None else instant_parameter(name, text)
