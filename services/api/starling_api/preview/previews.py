"""Core: preview and diff of a condition, and the explanation of a membership.

All three use the plan, the event evaluation and the states of the live segmenter. This module has no evaluation rules of its own.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starling_api.definitions.in_force import Definitions, Running
from starling_api.definitions.kinds.kinds import SEGMENTS
from starling_api.http.errors import Archived, NotFound, SegmentBackfilling
from starling_api.ports import AudienceReader, PastReader, ReportedProgress, Snapshot, StateReader
from starling_api.preview.estimates import SampleSize
from starling_api.preview.explanation import explanation_json
from starling_api.preview.request import requested_segment
from starling_api.preview.sampling import ALL_USERS_LIMIT, CandidateEvaluator, Sample, Sampler, stopwatch
from starling_common.cassandra.read_models import ARCHIVED, DAY_MS
from starling_common.settings import Clock
from starling_common.time.instants import format_instant
from starling_segments import (
    Evaluator,
    Known,
    PreviewResult,
    SegmentPreview,
    compile_preview,
    decode_state,
    limitations,
    plan_in_force,
    required_history,
    required_segments,
)  # fmt: skip

Document = dict[str, Any]

SAMPLE: Final = 20
"""Maximum user ids in a response."""


@dataclass(frozen=True)
class Previews:
    """The preview operations. Each may raise the `…Unavailable` error of a store and can then be repeated."""

    definitions: Definitions
    audience: AudienceReader
    states: StateReader
    pasts: PastReader
    clock: Clock
    history_days: int = 30
    """Lifetime of the events of users in the read model."""
    rng: random.Random = field(default_factory=random.SystemRandom)

    def preview(self, workspace: str, document: object, known: Known) -> Document:
        """Return the estimated number of users of a condition, and a sample. Raises: DefinitionRefused with all errors."""
        elapsed = stopwatch()
        segment = requested_segment(document, known)
        running = self.definitions.running(workspace)
        preview = compile_preview(segment, running.segments, None, running.paused)
        sampler, limits, as_of = self._sampler(running, preview, elapsed)
        found = Sample(SampleSize(1, 0, 0)) if sampler is None else sampler.sample()
        counted = _counted(found, lambda answer: answer.after)
        return counted | _accuracy(found, limits) | {"as_of": as_of, "took_ms": round(elapsed() * 1000)}

    def diff(self, workspace: str, key: str, document: object, known: Known) -> Document:
        """Return the users that would enter, leave and stay. Raises: NotFound, Archived, DefinitionRefused with all errors."""
        elapsed = stopwatch()
        before = self._defined(workspace, key)
        segment = requested_segment(document, known, before)
        running = self.definitions.running(workspace)
        preview = compile_preview(segment, running.segments, key if key in running.segments else None, running.paused)
        sampler, limits, as_of = self._sampler(running, preview, elapsed)
        if sampler is None:
            found = members = Sample(SampleSize(1, 0, 0))
        else:
            few = self._members(workspace, key, sampler)
            found = sampler.sample()
            members = found if found.size.is_complete or few is None else few
        changes = {
            "enter": _counted(found, lambda answer: answer.after and not answer.before),
            "leave": _counted(members, lambda answer: answer.before and not answer.after),
            "stay": _counted(members, lambda answer: answer.before and answer.after),
        }
        return {"key": key, **changes, **_accuracy(found, limits), "as_of": as_of, "took_ms": round(elapsed() * 1000)}

    def explain(self, workspace: str, user_id: str, key: str) -> Document:
        """Return the reason why a user is in a segment or not. Raises: NotFound, Archived, SegmentBackfilling."""
        document = self._defined(workspace, key)
        reported = self.audience.progress()
        running, name = self.definitions.running(workspace), self.definitions.name()
        snapshot = self.states.partition_of(workspace, user_id)
        found = {} if snapshot is None else snapshot.some(workspace, [user_id])
        if snapshot is None or user_id not in found:
            raise NotFound("user", user_id)
        partition, state = found[user_id]
        progress = snapshot.partitions[partition]
        plan = plan_in_force(required_segments([key], running.segments), running.paused)
        maintained = running.maintained(progress, reported.get(partition), name)
        if key not in running.segments or not maintained.issuperset(plan.leaves):
            raise SegmentBackfilling(f"the newest version of {key!r} is not in force yet: retry when the segment is active")
        now = _instant(progress.stream_time_ms, reported.get(partition), whole=progress.whole)
        explained = Evaluator(plan).explain(decode_state(state), key, now)
        return {**explanation_json(explained, document), "paused": key in running.paused}

    def _sampler(
        self, running: Running, preview: SegmentPreview, elapsed: Callable[[], float]
    ) -> tuple[Sampler | None, list[str], str | None]:
        """Return the sampler (None: no states exist), the limitations of the preview, and its `as_of`."""
        reported, name = self.audience.progress(), self.definitions.name()
        snapshot = self.states.all_partitions()
        if snapshot is None:
            return None, [], None
        instants = _instants(snapshot, reported)
        maintained = {number: running.maintained(one, reported.get(number), name) for number, one in snapshot.partitions.items()}
        # Partitions usually maintain the same leaf nodes and then share the compiled history plan.
        by_leaves = {leaves: required_history(preview, leaves, max(instants.values())) for leaves in set(maintained.values())}
        pasts = {number: by_leaves[leaves] for number, leaves in maintained.items()}
        remembered_ms = self.history_days * DAY_MS
        limits = [limit for one, past in by_leaves.items() for limit in limitations(preview, one, past, remembered_ms)]
        times = [instant for instant in instants.values() if instant > 0]
        evaluator = CandidateEvaluator(running.workspace, preview, instants, pasts, self.pasts, self.clock)
        as_of = format_instant(min(times)) if times else None
        return Sampler(snapshot, evaluator, self.rng, elapsed), list(dict.fromkeys(limits)), as_of

    def _members(self, workspace: str, key: str, sampler: Sampler) -> Sample | None:
        """Return all members of a small segment, of which a sample of all users would contain almost none; else None."""
        entered, exited = self.audience.counts(workspace, key)
        most = ALL_USERS_LIMIT[sampler.evaluator.folds] // 3
        if entered - exited > most:
            return None
        rows = self.audience.members(workspace, key, (0, ""), most + 1)
        is_whole = entered - exited <= len(rows) <= most
        return sampler.evaluate_all([row.user_id for row in rows]) if is_whole else None

    def _defined(self, workspace: str, key: str) -> Mapping[str, Any]:
        found = self.definitions.reader.definition(workspace, SEGMENTS.name, key)
        if found is None:
            raise NotFound(SEGMENTS.title, key)
        if found.status == ARCHIVED:
            raise Archived(f"{key!r} is archived and has no members")
        return found.document


def _instants(snapshot: Snapshot, reported: Mapping[int, ReportedProgress]) -> dict[int, int]:
    return {
        number: _instant(one.stream_time_ms, reported.get(number), whole=one.whole) for number, one in snapshot.partitions.items()
    }


def _instant(stream_time_ms: int, reported: ReportedProgress | None, *, whole: bool) -> int:
    """Return the stream time of states: that of their last transaction, or a later report that precedes a whole snapshot."""
    return max(stream_time_ms, reported.stream_time_ms) if whole and reported is not None else stream_time_ms


def _counted(found: Sample, wanted: Callable[[PreviewResult], bool]) -> Document:
    users: Sequence[str] = found.users(wanted)
    return {**found.size.of(len(users))._asdict(), "sample": sorted(users[:SAMPLE])}


def _accuracy(found: Sample, limits: Sequence[str]) -> Document:
    all_limits = [*limits, *found.limits]
    size = found.size
    return {
        "exact": size.is_complete and not all_limits,
        "users": size.users.estimate,
        "asked": size.evaluated,
        "limits": all_limits,
    }
