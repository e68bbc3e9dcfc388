"""Pure core: preview of a segment for one user: membership before and after the segment would take effect.

The plan of a preview contains the segment, the segments that it uses and the segment that it would replace. The accumulators of
leaf nodes that active segments share are in the user's state; the others are folded from the user's history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import attrgetter

from starling_segments.compile.compiler import compile_plan
from starling_segments.engine.accounts import defer_account_conditions
from starling_segments.engine.evaluator import Evaluator
from starling_segments.engine.leaves import EventLeaf, EventView, FixedLeaf
from starling_segments.engine.plan import Plan
from starling_segments.engine.sequences.sequence import SequenceLeaf
from starling_segments.engine.state import UserState, traits_text
from starling_segments.engine.trait_conditions import HeldLeaf
from starling_segments.engine.window_leaves import CalendarLeaf
from starling_segments.language.tree import Segment, Unit

PREVIEW_KEY = "preview"
"""The key of the previewed segment in its plan, extended by dashes if another segment has it."""

_BY_TIME = attrgetter("time")
_DAY_MS = 86_400_000
_CALENDAR_MS: Mapping[Unit, int] = {"day": 2 * _DAY_MS, "week": 14 * _DAY_MS, "month": 62 * _DAY_MS, "year": 366 * _DAY_MS}


@dataclass(frozen=True)
class SegmentPreview:
    """A compiled preview. `key`: of the previewed segment in the plan; `replaces`: key of the segment that it would replace."""

    evaluator: Evaluator
    key: str
    replaces: str | None

    @property
    def plan(self) -> Plan:
        """The segment and the segments that it uses, compiled."""
        return self.evaluator.plan

    @property
    def leaves(self) -> frozenset[str]:
        """The ids of the leaf nodes that keep an accumulator."""
        return frozenset(self.plan.leaves)


@dataclass(frozen=True, slots=True)
class RequiredHistory:
    """The history of a user that a preview needs. `evaluator`: of the leaf nodes without stored accumulators (`fresh`).

    `reach_ms`: only younger events matter; None: all events. `looks_inside`: whether the content of events is read.
    """

    evaluator: Evaluator
    fresh: frozenset[str]
    reach_ms: int | None
    looks_inside: bool

    @property
    def plan(self) -> Plan:
        """The fresh leaf nodes, compiled."""
        return self.evaluator.plan

    @property
    def follows_time(self) -> bool:
        """Return whether the result depends on the stream time at which each event was folded."""
        return self.plan.follows_time


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """The user's membership of the replaced segment (False without one), and of the previewed one."""

    before: bool
    after: bool


def compile_preview(
    segment: Segment, running: Mapping[str, Segment], replaces: str | None, paused: AbstractSet[str]
) -> SegmentPreview:
    """Compile a segment with the segments that it uses. `running`: the segments in force; `paused`: keys of paused ones.

    Raises: InvalidPlan if it uses a segment that is not in force.
    """
    key = PREVIEW_KEY
    while key in running:
        key += "-"
    wanted = required_segments(segment.uses | ({replaces} if replaces is not None else set()), running)
    plan = plan_in_force([*wanted, replace(segment, key=key)], paused)
    return SegmentPreview(Evaluator(plan), key, replaces)


def required_segments(keys: Iterable[str], running: Mapping[str, Segment]) -> list[Segment]:
    """Return these segments and all segments that they use, each once."""
    found: dict[str, Segment] = {}
    waiting = sorted(keys)
    while waiting:
        key = waiting.pop()
        if key not in found and key in running:
            found[key] = running[key]
            waiting += sorted(running[key].uses)
    return list(found.values())


def plan_in_force(segments: Sequence[Segment], paused: AbstractSet[str]) -> Plan:
    """Return the plan as the segmenter evaluates it: with deferred account conditions, and with paused segments unchanged.

    Raises: InvalidPlan.
    """
    return _paused(defer_account_conditions(compile_plan(segments)), paused)


def _paused(plan: Plan, paused: AbstractSet[str]) -> Plan:
    """Return the plan with the truth of these segments fixed. Their leaf nodes still fold, so that no history is lost."""
    if not paused:
        return plan
    segments = (replace(one, holds=_unchanged(one.segment.key)) if one.segment.key in paused else one for one in plan.segments)
    return replace(plan, segments=tuple(segments))


def _unchanged(key: str) -> Callable[[UserState, int], bool]:
    def holds(state: UserState, _now: int) -> bool:
        return is_member(state, key)

    return holds


def is_member(state: UserState, key: str) -> bool:
    """Return whether the user was a member at the last evaluation."""
    membership = state.memberships.get(key)
    return membership is not None and membership.member


def required_history(preview: SegmentPreview, kept: Collection[str], now: int) -> RequiredHistory | None:
    """Return the history to fold at `now`, given the leaf nodes `kept` in the states; None if none is needed."""
    fresh = preview.leaves.difference(kept)
    if not fresh:
        return None
    plan = preview.plan.restricted_to(fresh)
    reaches = [_reach_ms(plan.event_leaves[leaf], now) for leaf in plan.event_leaves]
    known = [reach for reach in reaches if reach is not None]
    subscriptions = [*plan.router.by_name.values(), *plan.router.by_prefix.values()]
    looks_inside = any(
        subscription.where is not None or plan.event_leaves[subscription.leaf.id].reads
        for group in subscriptions
        for subscription in group
    )
    return RequiredHistory(Evaluator(plan), fresh, max(known, default=0) if len(known) == len(reaches) else None, looks_inside)


def limitations(preview: SegmentPreview, kept: Collection[str], past: RequiredHistory | None, remembered_ms: int) -> list[str]:
    """Return the reasons for which the result may be wrong, as texts for users.

    Events are stored for `remembered_ms`; of a profile only the present traits are known. `kept`: ids of the
    conditions whose state the segmenter stores; `past`: the history that the others need.
    """
    reasons = []
    if any(condition.id not in kept for condition in preview.plan.accounts):
        reasons.append(
            "users of accounts have not been evaluated for this new condition: users with an account are counted as they are now"
        )
    if past is None:
        return reasons
    if past.reach_ms is None or past.reach_ms > remembered_ms:
        reasons.append(
            f"events are stored for {remembered_ms // _DAY_MS} days after receipt, and the condition covers older events"
            if remembered_ms
            else "this installation stores no events of users: the condition counts from now on"
        )
    if any(isinstance(leaf, HeldLeaf) for leaf in past.plan.trait_leaves.values()):
        reasons.append("the time since a trait has its value is unknown until a segment uses it: held_for counts from now on")
    if past.plan.reads_traits:
        reasons.append("events are compared with the current traits, not with the traits at the time of the event")
    if any(isinstance(leaf, SequenceLeaf) and leaf.pauses for leaf in past.plan.event_leaves.values()):
        reasons.append("the waiting time of a not step is evaluated as if all events had arrived on time")
    return reasons


def fold_history(past: RequiredHistory, state: UserState, events: Iterable[tuple[EventView, int]], now: int) -> UserState:
    """Return a state with the fresh accumulators after these events, in order of arrival, each with its stream time."""
    memory = UserState(user_id=state.user_id, traits_json=traits_text(state.traits))
    for event, stream_time in events:
        past.evaluator.on_event(memory, event, stream_time if past.follows_time else now)
    past.evaluator.on_timer(memory, now)
    return memory


def evaluate(preview: SegmentPreview, state: UserState, memory: tuple[UserState, frozenset[str]] | None, now: int) -> PreviewResult:
    """Evaluate the preview as a switch of plans at `now`, after all timers due before it. Changes the state."""
    if memory is not None:
        adopt_history(state, *memory)
    preview.evaluator.on_definition(state, now, preview.evaluator)
    before = preview.replaces is not None and is_member(state, preview.replaces)
    return PreviewResult(before, is_member(state, preview.key))


def adopt_history(state: UserState, past: UserState, fresh: frozenset[str]) -> None:
    """Replace the accumulators and future matches of the `fresh` leaf nodes in a state by those of `past`.

    Idempotent, so that an interrupted switch can be repeated: nothing is added up, and what `past` lacks is dropped.
    """
    for leaf in fresh.difference(past.accumulators):
        state.accumulators.drop(leaf)
    state.accumulators.take_over(past.accumulators)
    waiting = [match for match in state.waiting if match.leaf not in fresh]
    state.waiting = sorted(waiting + past.waiting, key=_BY_TIME)


def stored_leaves(segments: Sequence[Segment]) -> frozenset[str]:
    """Return the ids of the leaf nodes with accumulators and of the account conditions of these segments.

    Raises: InvalidPlan.
    """
    plan = compile_plan(segments)
    return frozenset(plan.leaves).union(condition.id for condition in plan.accounts)


def _reach_ms(leaf: object, now: int) -> int | None:
    """Return the maximum age of events that a leaf node counts; None: unlimited."""
    if isinstance(leaf, SequenceLeaf):
        return leaf.horizon_ms
    if isinstance(leaf, CalendarLeaf):
        return _CALENDAR_MS[leaf.unit]
    if isinstance(leaf, FixedLeaf):
        # The window includes its start.
        return None if leaf.after_ms is None else max(0, now - leaf.after_ms + 1)
    return leaf.window_ms if isinstance(leaf, EventLeaf) else None
