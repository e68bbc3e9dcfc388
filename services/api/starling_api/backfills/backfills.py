"""Core: backfills: which segments need one, their progress, and the requests to pause, resume or cancel one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starling_api.definitions.definition import Change, used_lists, used_traits
from starling_api.definitions.in_force import Definitions
from starling_api.http.errors import BackfillEnded, NotFound
from starling_api.ports import AudienceReader, ReportedProgress
from starling_common.cassandra.read_models import SEGMENT
from starling_common.time.instants import format_instant
from starling_common.wire import Record
from starling_rules.definitions import Definitions as Waiting
from starling_rules.ledger import CANCELLED, DONE, ENDED, PAUSED, REQUEST, RUNNING, Run, of_segment, report
from starling_segments import InvalidPlan, Known, compile_preview, parse_segment, stored_leaves

Document = dict[str, Any]

_STATE_AFTER: Final = {"pause": PAUSED, "resume": RUNNING, "cancel": CANCELLED}
_NEW_MEANING: Final = frozenset({"DEFINED", "REVISED"})


@dataclass(frozen=True, slots=True)
class Backfills:
    """The backfill runs. `runs`: returns the known runs by name; `publish`: publishes a request and awaits its acknowledgement."""

    runs: Callable[[], Mapping[str, Run]]
    publish: Callable[[Record], None]
    now_micros: Callable[[], int]

    def of_segment(self, workspace: str, key: str, version: int) -> Document | None:
        """Return the progress of the newest backfill of that version; None without one."""
        run = of_segment(self.runs().values(), f"{workspace}/{key}", version)
        return None if run is None else self._progress(run)

    def all(self, workspace: str) -> Document:
        """Return the runs with segments of the workspace, the newest first."""
        concerned = [run for run in self.runs().values() if _concerns(run, workspace)]
        concerned.sort(key=lambda run: run.started_at, reverse=True)
        return {"items": [self._listed(run, workspace) for run in concerned]}

    def control(self, workspace: str, name: str, action: str, *, dry_run: bool = False) -> Document:
        """Request a run to `pause`, `resume` or `cancel`, which it does between two partitions. Raises: NotFound, BackfillEnded."""
        run = self.runs().get(name)
        if run is None or not _concerns(run, workspace):
            raise NotFound("backfill", name)
        requested = _STATE_AFTER[action]
        if run.state == DONE or (run.state in ENDED and requested != RUNNING):
            raise BackfillEnded(f"the backfill {name!r} is {run.state}")
        if not dry_run:
            self.publish(report(run, REQUEST, requested, self.now_micros()))
        return self._listed(replace(run, requested=requested), workspace)

    def _listed(self, run: Run, workspace: str) -> Document:
        prefix = f"{workspace}/"
        segments = {name.removeprefix(prefix): version for name, version in run.definitions.items() if name.startswith(prefix)}
        return {"run": run.name, "segments": segments, "asked": run.requested} | self._progress(run)

    def _progress(self, run: Run) -> Document:
        end = run.estimated_end(self.now_micros())
        return {
            "run": run.name,
            "state": run.state,
            "percent": run.percent,
            "records_done": run.records_done,
            "records_total": run.records_total,
            "records_refused": run.refused,
            "started_at": format_instant(run.started_at // 1000),
            "estimated_end": None if end is None else format_instant(end // 1000),
            "message": run.message,
        }


@dataclass(frozen=True, slots=True)
class BackfillPolicy:
    """Decides which changes of segments wait for a backfill. `from_records` 0: none.

    `largest_partition`: returns the number of records in the largest partition of events; may raise BrokerUnavailable.
    """

    from_records: int
    largest_partition: Callable[[], int]
    definitions: Definitions
    audience: AudienceReader
    partitions: int

    def awaits_backfill(self, change: Change) -> bool:
        """Return whether the change needs aggregates that no state has, over a history too long for the segmenter to replay."""
        if not self.from_records or change.kind != SEGMENT or change.action not in _NEW_MEANING:
            return False
        return self.largest_partition() >= self.from_records and self._needs_new_aggregates(change)

    def _needs_new_aggregates(self, change: Change) -> bool:
        in_force = self.definitions.running(change.workspace).segments
        others = {key: segment for key, segment in in_force.items() if key != change.key}
        uses = {key: segment.uses for key, segment in others.items()}
        known = Known(uses, used_traits(change.document), lists=used_lists(change.document), accounts=True)
        segment = parse_segment(change.document, known)
        progress = self.audience.progress()
        # Every state has the aggregates of the segments that all partitions apply, an earlier version of this segment included.
        active = [one for key, one in in_force.items() if self._is_active(progress, f"{change.workspace}/{key}", one.version)]
        try:
            return not compile_preview(segment, others, None, frozenset()).leaves <= stored_leaves(active)
        except InvalidPlan:
            return True  # a segment that it uses is not active in every partition

    def _is_active(self, progress: Mapping[int, ReportedProgress], name: str, version: int) -> bool:
        return len(progress) >= self.partitions and all(one.definitions.get(name) == version for one in progress.values())


def is_needed(definitions: Waiting, newest: Run | None) -> bool:
    """Return whether segments wait for a backfill and the newest run is not a cancelled one of the same segments."""
    awaited = definitions.awaited()
    was_cancelled = newest is not None and newest.requested == CANCELLED and dict(newest.definitions) == awaited
    return bool(awaited) and not was_cancelled


def _concerns(run: Run, workspace: str) -> bool:
    return any(name.startswith(f"{workspace}/") for name in run.definitions)
