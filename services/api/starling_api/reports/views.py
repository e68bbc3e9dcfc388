"""Core: materialised views. What they hold is written by a job elsewhere; here it is only asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from starling_api.http.errors import BadRequest, NotFound
from starling_api.http.pagination import PageOf, cut
from starling_common.instants import format_instant, parse_instant

_BEGINNING: Final = -(2**62)
_END: Final = 2**62


class ViewEntry(NamedTuple):
    """What is known of a view. Rows are sums of `measures` by `dimensions` and window."""

    version: int
    dimensions: Sequence[str]
    measures: Sequence[str]
    window_ms: int


class ViewRow(NamedTuple):
    """One row. `place` says where it stands among the rows of its window; sums are numbers as text."""

    window_start_ms: int
    place: str
    row: Mapping[str, str]


class ViewReader(Protocol):
    """The rows, as the read models have them. Every method may raise DatabaseUnavailable."""

    def entry(self, view: str) -> ViewEntry | None:
        """None for a view that nobody computes."""

    def time_ms(self, view: str, version: int) -> int | None:
        """The stream time up to which the rows of every source partition are there; None before the first record."""

    def windows(self, workspace: str, view: str, version: int, span: tuple[int, int]) -> Sequence[int]:
        """Starts of the windows that have rows, from the first of the span to before the second, in order."""

    def rows(self, workspace: str, view: str, version: int, window_start_ms: int, after: str, most: int) -> Sequence[ViewRow]:
        """Rows of one window whose place is after that one, in order."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asked for. `since`, `until`: instants as text; `filters`: dimension -> the value it must have."""

    since: str | None
    until: str | None
    filters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Materialised:
    """Answers questions."""

    reader: ViewReader

    def page(self, workspace: str, view: str, asked: Asked, page: PageOf) -> dict[str, Any]:
        """Rows by window, then by place. Raises: NotFound, BadRequest."""
        entry = self.reader.entry(view)
        if entry is None:
            raise NotFound("view", view)
        if unknown := sorted(asked.filters.keys() - set(entry.dimensions)):
            raise BadRequest("unknown_dimension", f"{', '.join(unknown)}: {view} has {', '.join(entry.dimensions)}")
        name = f"view {view} {entry.version}"
        start_ms, place = page.after(name, (_BEGINNING, ""))
        span = (max(_instant("from", asked.since, _BEGINNING), start_ms), _instant("to", asked.until, _END))
        # Before the rows: what they show is then at least as new as that.
        time_ms = self.reader.time_ms(view, entry.version)
        found = self._rows(workspace, view, (entry.version, span), (start_ms, place), (asked.filters, page.limit + 1))
        rows, cursor = cut(found, page.limit, name, lambda row: (row.window_start_ms, row.place))
        return {
            "view": view,
            "version": entry.version,
            "items": [_shown(row, entry) for row in rows],
            "next_cursor": cursor,
            "as_of": None if time_ms is None else format_instant(time_ms),
        }

    def _rows(
        self,
        workspace: str,
        view: str,
        within: tuple[int, tuple[int, int]],
        after: tuple[int, str],
        wanted: tuple[Mapping[str, str], int],
    ) -> list[ViewRow]:
        (version, span), (filters, most) = within, wanted
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


def _shown(row: ViewRow, entry: ViewEntry) -> dict[str, Any]:
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
    if text is None:
        return default
    try:
        return parse_instant(text)
    except ValueError as error:
        raise BadRequest("bad_instant", f"{name}: {error}") from error
