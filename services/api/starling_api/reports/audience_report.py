"""Core: the audience report. A job elsewhere makes it, whole; here it is only asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, NamedTuple, Protocol

from starling_api.http.errors import BadRequest, NotFound
from starling_api.http.pagination import PageOf, cut
from starling_common.instants import format_instant

DAYS: Final = "days"
RETENTION: Final = "retention"
OVERLAP: Final = "overlap"

_BEYOND: Final = "\U0010ffff"
"""After every place."""


class ReportRun(NamedTuple):
    """The newest report of a workspace. `run` is its number, `segments` those it is about, in order."""

    run: int
    until_ms: int
    timezone: str
    segments: Sequence[str]
    records_missing: int
    records_unreadable: int


class ReportRow(NamedTuple):
    """`place`: the day, or the other segment; it begins with that and tells the rows of one segment apart."""

    segment_key: str
    place: str
    row: Mapping[str, Any]


class ReportReader(Protocol):
    """What the job wrote. Every method may raise DatabaseUnavailable."""

    def run(self, workspace: str) -> ReportRun | None:
        """None before the first report."""

    def rows(self, workspace: str, run: int, part: str, segment_key: str, span: tuple[str, str], most: int) -> Sequence[ReportRow]:
        """Rows of one segment whose place is in the span, the second end not included, in order."""


@dataclass(frozen=True, slots=True)
class AskedReport:
    """What a client asked for. `segment`: None for all; `since`, `until`: days as text, the second not included."""

    part: str
    segment: str | None
    since: str | None
    until: str | None


@dataclass(frozen=True, slots=True)
class Reports:
    """Answers questions."""

    reader: ReportReader

    def page(self, workspace: str, asked: AskedReport, page: PageOf) -> dict[str, Any]:
        """Rows by segment, then by place. Raises: NotFound, BadRequest."""
        span, run = _span(asked), self._run(workspace, asked)
        while True:
            name = f"report audience {run.run} {asked.part} {asked.segment or ''}"
            found = self._rows(workspace, run, (asked, span), page.after(name, ("", "")), page.limit + 1)
            newest = self._run(workspace, asked)
            if newest.run == run.run:
                break
            run = newest  # the rows of the one before may have been deleted while we read them
        rows, cursor = cut(found, page.limit, name, lambda row: (row.segment_key, row.place))
        return {
            "report": "audience",
            "show": asked.part,
            "items": [{"segment": row.segment_key, **row.row} for row in rows],
            "next_cursor": cursor,
            "as_of": format_instant(run.until_ms),
            "timezone": run.timezone,
            "records_missing": run.records_missing,
            "records_unreadable": run.records_unreadable,
        }

    def _run(self, workspace: str, asked: AskedReport) -> ReportRun:
        run = self.reader.run(workspace)
        if run is None:
            raise NotFound("report", "audience")
        if asked.segment is not None and asked.segment not in run.segments:
            raise NotFound("segment", asked.segment)
        return run

    def _rows(
        self, workspace: str, run: ReportRun, wanted: tuple[AskedReport, tuple[str, str]], after: tuple[str, ...], most: int
    ) -> list[ReportRow]:
        asked, (first, before) = wanted
        found: list[ReportRow] = []
        for key in [asked.segment] if asked.segment is not None else run.segments:
            if key < after[0] or len(found) >= most:
                continue
            begin = max(first, f"{after[1]}\0") if key == after[0] else first
            found += self.reader.rows(workspace, run.run, asked.part, key, (begin, before), most - len(found))
        return found


def _span(asked: AskedReport) -> tuple[str, str]:
    if asked.part == OVERLAP and (asked.since or asked.until):
        raise BadRequest("bad_parameter", "from and to: an overlap is of one instant, the report's end")
    return _day("from", asked.since, ""), _day("to", asked.until, _BEYOND)


def _day(name: str, text: str | None, default: str) -> str:
    if text is None:
        return default
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise BadRequest("bad_day", f"{name}: {text!r} is no day such as 2026-01-31") from error
