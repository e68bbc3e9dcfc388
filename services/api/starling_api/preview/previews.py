"""Core: what a marketer asks before and after defining: how many would be in, who would come and go, and why somebody is in or out.

All of it is answered by the plan, the fold and the states that are used live; nothing here decides by rules of its own.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starling_api.definitions.in_force import Definitions, Running
from starling_api.definitions.kinds import SEGMENTS
from starling_api.http.errors import Archived, NotFound, NotTakenOver
from starling_api.ports import AudienceReader, PastReader, Reported, Snapshot, StateReader
from starling_api.preview.estimates import Drawn
from starling_api.preview.explanation import in_words
from starling_api.preview.request import asked_segment
from starling_api.preview.sampling import EVERYBODY, Questions, Surveyed, Surveyor, stopwatch
from starling_common.instants import format_instant
from starling_common.read_models import ARCHIVED
from starling_common.settings import Clock
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
"""User ids in an answer, so that one can look at some."""
REMEMBERED_MS: Final = 30 * 86_400_000
"""How long the read model keeps what users did (`user_events` in tables.cql)."""


@dataclass(frozen=True)
class Trials:
    """What one can ask. Every question may raise the `…Unavailable` of a store, and can then be asked again."""

    definitions: Definitions
    audience: AudienceReader
    states: StateReader
    pasts: PastReader
    clock: Clock
    lots: random.Random = field(default_factory=random.SystemRandom)

    def preview(self, workspace: str, document: object, known: Known) -> Document:
        """How many would be in a segment, and some of them. Raises: DefinitionRefused with all faults."""
        elapsed = stopwatch()
        segment = asked_segment(document, known)
        running = self.definitions.running(workspace)
        trial = compile_preview(segment, running.segments, None, running.paused)
        surveyor, limits, as_of = self._surveyor(running, trial, elapsed)
        found = Surveyed(Drawn(1, 0, 0)) if surveyor is None else surveyor.survey()
        counted = _counted(found, lambda answer: answer.after)
        return counted | _how(found, limits) | {"as_of": as_of, "took_ms": round(elapsed() * 1000)}

    def diff(self, workspace: str, key: str, document: object, known: Known) -> Document:
        """Who would enter and leave. Raises: NotFound, Archived, DefinitionRefused with all faults."""
        elapsed = stopwatch()
        before = self._defined(workspace, key)
        segment = asked_segment(document, known, before)
        running = self.definitions.running(workspace)
        trial = compile_preview(segment, running.segments, key if key in running.segments else None, running.paused)
        surveyor, limits, as_of = self._surveyor(running, trial, elapsed)
        if surveyor is None:
            found = members = Surveyed(Drawn(1, 0, 0))
        else:
            few = self._members(workspace, key, surveyor)
            found = surveyor.survey()
            members = found if found.drawn.everybody or few is None else few
        told = {
            "enter": _counted(found, lambda answer: answer.after and not answer.before),
            "leave": _counted(members, lambda answer: answer.before and not answer.after),
            "stay": _counted(members, lambda answer: answer.before and answer.after),
        }
        return {"key": key, **told, **_how(found, limits), "as_of": as_of, "took_ms": round(elapsed() * 1000)}

    def explain(self, workspace: str, user_id: str, key: str) -> Document:
        """Why a user is in a segment or not. Raises: NotFound, Archived, NotTakenOver."""
        document = self._defined(workspace, key)
        reported = self.audience.progress()
        running, name = self.definitions.running(workspace), self.definitions.name()
        snapshot = self.states.partition_of(workspace, user_id)
        found = {} if snapshot is None else snapshot.some(workspace, [user_id])
        if snapshot is None or user_id not in found:
            raise NotFound("user", user_id)
        partition, state = found[user_id]
        standing = snapshot.partitions[partition]
        plan = plan_in_force(required_segments([key], running.segments), running.paused)
        kept = running.kept(standing, reported.get(partition), name)
        if key not in running.segments or not kept.issuperset(plan.leaves):
            raise NotTakenOver(f"{key!r} is being worked out from what happened before it: ask again in a moment")
        now = _instant(standing.stream_time_ms, reported.get(partition), whole=standing.whole)
        told = Evaluator(plan).explain(decode_state(state), key, now)
        return {**in_words(told, document), "paused": key in running.paused}

    def _surveyor(
        self, running: Running, trial: SegmentPreview, elapsed: Callable[[], float]
    ) -> tuple[Surveyor | None, list[str], str | None]:
        """Who draws and asks, what limits the answer, and as of when it is."""
        reported, name = self.audience.progress(), self.definitions.name()
        snapshot = self.states.everybody()
        if snapshot is None:
            return None, [], None
        instants = _instants(snapshot, reported)
        kept = {number: running.kept(one, reported.get(number), name) for number, one in snapshot.partitions.items()}
        # Partitions keep the same almost always, and then share what is compiled for them.
        by_kept = {leaves: required_history(trial, leaves, max(instants.values())) for leaves in set(kept.values())}
        pasts = {number: by_kept[leaves] for number, leaves in kept.items()}
        limits = [spot for one, past in by_kept.items() for spot in limitations(trial, one, past, REMEMBERED_MS)]
        times = [instant for instant in instants.values() if instant > 0]
        questions = Questions(running.workspace, trial, instants, pasts, self.pasts, self.clock)
        as_of = format_instant(min(times)) if times else None
        return Surveyor(snapshot, questions, self.lots, elapsed), list(dict.fromkeys(limits)), as_of

    def _members(self, workspace: str, key: str, surveyor: Surveyor) -> Surveyed | None:
        """All members, where they are few: a sample of everybody would hold next to none of those who can leave."""
        entered, exited = self.audience.counts(workspace, key)
        most = EVERYBODY[surveyor.questions.folds] // 3
        if entered - exited > most:
            return None
        rows = self.audience.members(workspace, key, (0, ""), most + 1)
        is_whole = entered - exited <= len(rows) <= most
        return surveyor.ask_all([row.user_id for row in rows]) if is_whole else None

    def _defined(self, workspace: str, key: str) -> Mapping[str, Any]:
        found = self.definitions.reader.definition(workspace, SEGMENTS.name, key)
        if found is None:
            raise NotFound(SEGMENTS.title, key)
        if found.status == ARCHIVED:
            raise Archived(f"{key!r} is archived: nobody is in it any more")
        return found.document


def _instants(snapshot: Snapshot, reported: Mapping[int, Reported]) -> dict[int, int]:
    return {
        number: _instant(one.stream_time_ms, reported.get(number), whole=one.whole) for number, one in snapshot.partitions.items()
    }


def _instant(stream_time_ms: int, reported: Reported | None, *, whole: bool) -> int:
    """Stream time of states: that of their last transaction, or what was reported before they were seen whole."""
    return max(stream_time_ms, reported.stream_time_ms) if whole and reported is not None else stream_time_ms


def _counted(found: Surveyed, wanted: Callable[[PreviewResult], bool]) -> Document:
    users: Sequence[str] = found.users(wanted)
    return {**found.drawn.of(len(users))._asdict(), "sample": sorted(users[:SAMPLE])}


def _how(found: Surveyed, limits: Sequence[str]) -> Document:
    """How the answer came about."""
    told = [*limits, *found.limits]
    drawn = found.drawn
    return {"exact": drawn.everybody and not told, "users": drawn.users.estimate, "asked": drawn.asked, "limits": told}
