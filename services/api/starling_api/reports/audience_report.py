"""Core: queries on the audience report, which a Spark job computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple, Protocol

from starling_api.http.errors import BadRequest, NotFound
from starling_api.http.pagination import PageOf, cut
from starling_common.time.instants import format_instant

DAYS: Final = "days"
RETENTION: Final = "retention"
OVERLAP: Final = "overlap"

_BEYOND: Final = "\U0010ffff"
"""Sorts after every place."""


class ReportRun(NamedTuple):
    """The newest report of a workspace. `run`: its number; `segments`: the keys of its segments in order."""

    run: int
    until_ms: int
    timezone: str
    segments: Sequence[str]
    records_missing: int
    records_unreadable: int


class ReportRow(NamedTuple):
    """One row. `place` identifies and sorts the rows of a segment; it starts with the day or the other segment's key."""

    segment_key: str
    place: str
    row: Mapping[str, Any]


class ReportReader(Protocol):
    """The tables of the job. Every method may raise DatabaseUnavailable."""

    def run(self, workspace: str) -> ReportRun | None:
        """Return the newest run; None before the first report."""

    def rows(self, workspace: str, run: int, part: str, segment_key: str, span: tuple[str, str], most: int) -> Sequence[ReportRow]:
        """Return the rows of one segment with span[0] <= place < span[1], in order."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A request for rows. `segment`: None for all segments; `since`, `until`: days as text, `until` exclusive."""

    part: str
    segment: str | None
    since: str | None
    until: str | None


@dataclass(frozen=True, slots=True)
class Reports:
    """The queries on the audience report."""

    reader: ReportReader

    def page(self, workspace: str, wanted: ReportRequest, page: PageOf) -> dict[str, Any]:
        """Return a page of rows, sorted by segment, then by place. Raises: NotFound, BadRequest."""
        span, run = _span(wanted), self._run(workspace, wanted)
        while True:
            name = f"report audience {run.run} {wanted.part} {wanted.segment or ''}"
            found = self._rows(workspace, run, (wanted, span), page.after(name, ("", "")), page.limit + 1)
            newest = self._run(workspace, wanted)
            if newest.run == run.run:
                break
            run = newest  # the rows of an older run may be deleted during the read
        rows, cursor = cut(found, page.limit, name, lambda row: (row.segment_key, row.place))
        return {
            "report": "audience",
            "show": wanted.part,
            "items": [{"segment": row.segment_key, **row.row} for row in rows],
            "next_cursor": cursor,
            "as_of": format_instant(run.until_ms),
            "timezone": run.timezone,
            "records_missing": run.records_missing,
            "records_unreadable": run.records_unreadable,
        }

    def _run(self, workspace: str, wanted: ReportRequest) -> ReportRun:
        run = self.reader.run(workspace)
        if run is None:
            raise NotFound("report", "audience")
        if wanted.segment is not None and wanted.segment not in run.segments:
            raise NotFound("segment", wanted.segment)
        return run

    def _rows(
        self, workspace: str, run: ReportRun, query: tuple[ReportRequest, tuple[str, str]], after: tuple[str, ...], most: int
    ) -> list[ReportRow]:
        wanted, (first, before) = query
        found: list[ReportRow] = []
        for key in [wanted.segment] if wanted.segment is not None else run.segments:
            if key < after[0] or len(found) >= most:
                continue
            begin = max(first, f"{after[1]}\0") if key == after[0] else first
            found += self.reader.rows(workspace, run.run, wanted.part, key, (begin, before), most - len(found))
        return found


def _span(wanted: ReportRequest) -> tuple[str, str]:
    if wanted.part == OVERLAP and (wanted.since or wanted.until):
        raise BadRequest("bad_parameter", "from and to: the overlap has no days, it is computed at the end of the report")
    return _day("from", wanted.since, ""), _day("to", wanted.until, _BEYOND)


def _day(name: str, text: str | None, default: str) -> str:
    if text is None:
        return default
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise BadRequest("bad_day", f"{name}: {text!r} is not a day such as 2026-01-31") from error
