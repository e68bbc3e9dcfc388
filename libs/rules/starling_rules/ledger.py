"""Pure core: the runs of the backfill, as a fold over `segments.backfills`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from starling_common.outcome import Done, Outcome, Skipped
from starling_common.wire import Record
from starling_rules.backfills import Backfill, Part

RUN: Final = "run"
PARTITION: Final = "partition"
REQUEST: Final = "asked"

RUNNING: Final = "running"
PAUSED: Final = "paused"
DONE: Final = "done"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"
PLANNED: Final = "planned"
ENDED: Final = frozenset({DONE, CANCELLED})
"""The next start of the job continues a failed run."""


@dataclass(frozen=True, slots=True)
class Share:
    """One partition of a run. `inputs`: topic -> end offset of its history; `part`: the result, None until it is done.

    `refused`: the number of records that make the code raise; the result is as without them.
    """

    number: int
    state: str
    inputs: Mapping[str, int]
    stream_time_ms: int
    records_done: int
    records_total: int
    part: Part | None = None
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `definitions`: `workspace/key` -> version; `leaves`: by workspace; times are wall clock, epoch µs.

    `requested`: the state that an operator requested: running, paused or cancelled. `base`: the run whose states it continues.
    """

    name: str
    state: str
    started_at: int
    recorded_at: int
    definitions: Mapping[str, int]
    leaves: Mapping[str, list[str]]
    shares: Mapping[int, Share] = field(default_factory=dict)
    requested: str = RUNNING
    message: str | None = None
    base: str | None = None

    @property
    def records_done(self) -> int:
        """Sum over all partitions."""
        return sum(share.records_done for share in self.shares.values())

    @property
    def records_total(self) -> int:
        """Sum over all partitions."""
        return sum(share.records_total for share in self.shares.values())

    @property
    def refused(self) -> int:
        """Sum over all partitions."""
        return sum(share.refused for share in self.shares.values())

    @property
    def percent(self) -> float:
        """Percentage of the records, one decimal."""
        total = self.records_total
        return 100.0 if not total else round(100.0 * min(1.0, self.records_done / total), 1)

    def estimated_end(self, now: int) -> int | None:
        """Return epoch µs, extrapolated from the records so far; None without such records, or if the run is not running."""
        if self.state != RUNNING or not self.records_done:
            return None
        pace = (now - self.started_at) / self.records_done
        return now + int(pace * max(0, self.records_total - self.records_done))

    def outcome(self) -> Backfill:
        """Return the result of a run whose partitions are all done."""
        parts = {number: share.part for number, share in self.shares.items() if share.part is not None}
        return Backfill(self.name, dict(self.definitions), {name: list(leaves) for name, leaves in self.leaves.items()}, parts)


def applied(runs: Mapping[str, Run], record: Record) -> Mapping[str, Run]:
    """Return the runs after one `BackfillReported`, by name, in the order of their start."""
    name = record["run"]
    run = runs.get(name) or Run(name, PLANNED, record["started_at"], record["recorded_at"], {}, {})
    if record["kind"] == RUN:
        run = replace(
            run,
            state=record["state"],
            started_at=record["started_at"],
            definitions=record["definitions"],
            leaves=record["leaves"],
            message=record["message"],
            base=record["base"],
        )
    elif record["kind"] == REQUEST:
        run = replace(run, requested=record["state"])
    else:
        share = _share(record)
        known = run.shares.get(share.number)
        if known is None or known.part is None or share.part is not None:  # an abandoned worker may still report
            run = replace(run, shares={**run.shares, share.number: share})
    return {**runs, name: replace(run, recorded_at=max(run.recorded_at, record["recorded_at"]))}


def fold_topic(runs: Mapping[str, Run], _key: bytes, record: Record | None) -> Outcome[Mapping[str, Run]]:
    """As `applied`, for a `FoldedTopic`."""
    return Skipped("a tombstone") if record is None else Done(applied(runs, record))


def unfinished(runs: Iterable[Run]) -> Run | None:
    """Return the newest run that is neither done nor cancelled."""
    return next((run for run in sorted(runs, key=_by_start, reverse=True) if run.state not in ENDED), None)


def of_segment(runs: Iterable[Run], name: str, version: int) -> Run | None:
    """Return the newest run for that version of a segment (`workspace/key`)."""
    found = (run for run in sorted(runs, key=_by_start, reverse=True) if run.definitions.get(name) == version)
    return next(found, None)


def report(run: Run, kind: str, state: str, now: int, share: Share | None = None) -> dict[str, Any]:
    """Return a `BackfillReported` of the run, of one of its partitions, or of a request."""
    part = None if share is None else share.part
    return {
        "recorded_at": now,
        "run": run.name,
        "kind": kind,
        "state": state,
        "partition": None if share is None else share.number,
        "started_at": run.started_at,
        "records_done": run.records_done if share is None else share.records_done,
        "records_total": run.records_total if share is None else share.records_total,
        "users": 0 if part is None else part.users,
        "stream_time": 0 if share is None else share.stream_time_ms if part is None else part.stream_time_ms,
        "inputs": {} if share is None else dict(share.inputs),
        "first": 0 if part is None else part.first,
        "end": 0 if part is None else part.end,
        "definitions": dict(run.definitions) if kind == RUN else {},
        "leaves": dict(run.leaves) if kind == RUN else {},
        "message": run.message if kind == RUN else None,
        "base": run.base if kind == RUN else None,
        "refused": run.refused if share is None else share.refused,
    }


def report_key(record: Record) -> bytes:
    """Return the record's key in the compacted topic. A report of progress never replaces another kind of record."""
    if record["kind"] != PARTITION:
        return f"{record['run']}/{record['kind']}".encode()
    return f"{record['run']}/{record['partition']}{'/running' * (record['state'] == RUNNING)}".encode()


def _share(record: Record) -> Share:
    done = record["state"] == DONE
    inputs, stream_time_ms = record["inputs"], record["stream_time"]
    part = Part(inputs, stream_time_ms, record["first"], record["end"], record["users"]) if done else None
    counts = (record["records_done"], record["records_total"])
    return Share(record["partition"], record["state"], inputs, stream_time_ms, *counts, part, record["refused"])


def _by_start(run: Run) -> tuple[int, str]:
    return run.started_at, run.name
