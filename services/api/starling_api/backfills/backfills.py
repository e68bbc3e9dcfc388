"""Core: which new segments wait for Spark to gather their past, how far that is, and what can be asked of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starling_api.definitions.definition import Change, used_lists, used_traits
from starling_api.definitions.in_force import Definitions
from starling_api.http.errors import BackfillEnded, NotFound
from starling_api.ports import AudienceReader, Reported
from starling_common.instants import format_instant
from starling_common.read_models import SEGMENT
from starling_common.wire import Record
from starling_rules.ledger import CANCELLED, DONE, ENDED, PAUSED, REQUEST, RUNNING, Run, of_segment, report
from starling_segments import InvalidPlan, Known, compile_preview, parse_segment, stored_leaves

Document = dict[str, Any]

_ASKED_BY: Final = {"pause": PAUSED, "resume": RUNNING, "cancel": CANCELLED}
_NEW_MEANING: Final = frozenset({"DEFINED", "REVISED"})


@dataclass(frozen=True, slots=True)
class Backfills:
    """`runs`: what is known of them; `ask`: tells the job, and returns once the broker has it."""

    runs: Callable[[], Mapping[str, Run]]
    ask: Callable[[Record], None]
    now_micros: Callable[[], int]

    def of_segment(self, workspace: str, key: str, version: int) -> Document | None:
        """How far the newest backfill for that version is; None when there was none."""
        run = of_segment(self.runs().values(), f"{workspace}/{key}", version)
        return None if run is None else self._shown(run)

    def all(self, workspace: str) -> Document:
        """The runs that concern the workspace, the newest first."""
        concerned = [run for run in self.runs().values() if _concerns(run, workspace)]
        concerned.sort(key=lambda run: run.started_at, reverse=True)
        return {"items": [self._listed(run, workspace) for run in concerned]}

    def turn(self, workspace: str, name: str, what: str, *, dry_run: bool = False) -> Document:
        """Ask a run to `pause`, `resume` or `cancel`; it does so between two partitions. Raises: NotFound, Conflict."""
        run = self.runs().get(name)
        if run is None or not _concerns(run, workspace):
            raise NotFound("backfill", name)
        asked = _ASKED_BY[what]
        if run.state == DONE or (run.state in ENDED and asked != RUNNING):
            raise BackfillEnded(f"the backfill {name!r} is {run.state}")
        if not dry_run:
            self.ask(report(run, REQUEST, asked, self.now_micros()))
        return self._listed(replace(run, requested=asked), workspace)

    def _listed(self, run: Run, workspace: str) -> Document:
        mine = f"{workspace}/"
        segments = {place.removeprefix(mine): version for place, version in run.definitions.items() if place.startswith(mine)}
        return {"run": run.name, "segments": segments, "asked": run.requested} | self._shown(run)

    def _shown(self, run: Run) -> Document:
        end = run.estimated_end(self.now_micros())
        return {
            "run": run.name,
            "state": run.state,
            "percent": run.percent,
            "records_done": run.records_done,
            "records_total": run.records_total,
            "started_at": format_instant(run.started_at // 1000),
            "estimated_end": None if end is None else format_instant(end // 1000),
            "message": run.message,
        }


@dataclass(frozen=True, slots=True)
class Waits:
    """Says which changes of segments have to wait for a backfill. `from_records` 0: none. `largest_past`: records of the
    largest partition of events; may raise BrokerUnavailable.
    """

    from_records: int
    largest_past: Callable[[], int]
    definitions: Definitions
    audience: AudienceReader
    partitions: int

    def awaits_backfill(self, change: Change) -> bool:
        """Whether it asks for what no state keeps, of a past that is too long for the segmenter to stand still for."""
        if not self.from_records or change.kind != SEGMENT or change.action not in _NEW_MEANING:
            return False
        return self.largest_past() >= self.from_records and self._asks_for_more(change)

    def _asks_for_more(self, change: Change) -> bool:
        here = self.definitions.running(change.workspace).segments
        others = {key: segment for key, segment in here.items() if key != change.key}
        uses = {key: segment.uses for key, segment in others.items()}
        known = Known(uses, used_traits(change.document), lists=used_lists(change.document), accounts=True)
        segment = parse_segment(change.document, known)
        told = self.audience.progress()
        # Only the leaves of what every partition works by are kept everywhere; another version of the same segment is, too.
        kept = [one for key, one in here.items() if self._is_active(told, f"{change.workspace}/{key}", one.version)]
        try:
            return not compile_preview(segment, others, None, frozenset()).leaves <= stored_leaves(kept)
        except InvalidPlan:
            return True  # what it is built on, or what one of them is, has not been taken over everywhere

    def _is_active(self, told: Mapping[int, Reported], place: str, version: int) -> bool:
        return len(told) >= self.partitions and all(one.definitions.get(place) == version for one in told.values())


def _concerns(run: Run, workspace: str) -> bool:
    return any(place.startswith(f"{workspace}/") for place in run.definitions)
