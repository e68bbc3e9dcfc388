"""Pure core: what would be so for one user under a segment that is not in force: by the plan and the steps that are used live.

The segment on trial stands in a plan beside what it is built on, and beside the segment that it would replace. A leaf that a
running segment keeps already is in the user's state; what the others would keep is folded from the user's past.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import attrgetter

from starling_segments.compile.compiler import compile_plan
from starling_segments.engine.accounts import waiting_for_accounts
from starling_segments.engine.evaluator import Evaluator
from starling_segments.engine.leaves import EventLeaf, EventView, FixedLeaf
from starling_segments.engine.plan import Plan
from starling_segments.engine.sequences.sequence import SequenceLeaf
from starling_segments.engine.state import UserState, traits_text
from starling_segments.engine.trait_conditions import HeldLeaf
from starling_segments.engine.window_leaves import CalendarLeaf
from starling_segments.language.tree import Segment, Unit

ON_TRIAL = "on-trial"
"""The key of the segment on trial, where no other segment has it."""

_BY_TIME = attrgetter("time")
_DAY_MS = 86_400_000
_CALENDAR_MS: Mapping[Unit, int] = {"day": 2 * _DAY_MS, "week": 14 * _DAY_MS, "month": 62 * _DAY_MS, "year": 366 * _DAY_MS}


@dataclass(frozen=True)
class Trial:
    """A segment on trial. `key`: its own in the plan; `replaces`: the key of the one that it would replace."""

    evaluator: Evaluator
    key: str
    replaces: str | None

    @property
    def plan(self) -> Plan:
        """The segment and what it is built on, compiled."""
        return self.evaluator.plan

    @property
    def leaves(self) -> frozenset[str]:
        """Of the plan: what keeps something of the past."""
        return frozenset(self.plan.leaves)


@dataclass(frozen=True, slots=True)
class Past:
    """What a trial needs of a user's past. `evaluator`: of the leaves that no state keeps (`fresh`).

    `reach_ms`: what is as old as that, or older, they do not look at; None: they look at all. `looks_inside`: whether they
    read what is in an event.
    """

    evaluator: Evaluator
    fresh: frozenset[str]
    reach_ms: int | None
    looks_inside: bool

    @property
    def plan(self) -> Plan:
        """The fresh leaves, compiled."""
        return self.evaluator.plan

    @property
    def follows_time(self) -> bool:
        """Whether it counts what stream time was when an event was folded."""
        return self.plan.follows_time


@dataclass(frozen=True, slots=True)
class Found:
    """What a trial found out: is the user in the segment as it is (False where there is none), and as it would be."""

    before: bool
    after: bool


def on_trial(segment: Segment, running: Mapping[str, Segment], replaces: str | None, paused: AbstractSet[str]) -> Trial:
    """Compile it with those it is built on. `running`: the segments in force, `paused`: those of them whose truth stands still.

    Raises: BrokenPlan when it is built on what is not there.
    """
    key = ON_TRIAL
    while key in running:
        key += "-"
    wanted = built_on(segment.uses | ({replaces} if replaces is not None else set()), running)
    plan = plan_in_force([*wanted, replace(segment, key=key)], paused)
    return Trial(Evaluator(plan), key, replaces)


def built_on(keys: Iterable[str], running: Mapping[str, Segment]) -> list[Segment]:
    """Those segments and all that they are built on, each once."""
    found: dict[str, Segment] = {}
    waiting = sorted(keys)
    while waiting:
        key = waiting.pop()
        if key not in found and key in running:
            found[key] = running[key]
            waiting += sorted(running[key].uses)
    return list(found.values())


def plan_in_force(segments: Sequence[Segment], paused: AbstractSet[str]) -> Plan:
    """The plan that the segmenter goes by: what asks for an account waits for it, what is paused stays as it is.

    Raises: BrokenPlan.
    """
    return _holding(waiting_for_accounts(compile_plan(segments)), paused)


def _holding(plan: Plan, paused: AbstractSet[str]) -> Plan:
    """The plan in which these segments' truth is what it was: their leaves are kept up, so that no history is lost."""
    if not paused:
        return plan
    segments = (replace(one, holds=_as_it_was(one.segment.key)) if one.segment.key in paused else one for one in plan.segments)
    return replace(plan, segments=tuple(segments))


def _as_it_was(key: str) -> Callable[[UserState, int], bool]:
    def holds(state: UserState, _now: int) -> bool:
        return is_member(state, key)

    return holds


def is_member(state: UserState, key: str) -> bool:
    """Whether the state says so, as of the last evaluation."""
    membership = state.memberships.get(key)
    return membership is not None and membership.member


def past_for(trial: Trial, kept: Collection[str], now: int) -> Past | None:
    """What has to be folded at `now` where the states keep the leaves `kept`; None when they keep all."""
    fresh = trial.leaves.difference(kept)
    if not fresh:
        return None
    plan = trial.plan.restricted_to(fresh)
    reaches = [_reach_ms(plan.event_leaves[leaf], now) for leaf in plan.event_leaves]
    known = [reach for reach in reaches if reach is not None]
    ways = [*plan.router.by_name.values(), *plan.router.by_prefix.values()]
    looks_inside = any(way.where is not None or plan.event_leaves[way.leaf.id].reads for group in ways for way in group)
    return Past(Evaluator(plan), fresh, max(known, default=0) if len(known) == len(reaches) else None, looks_inside)


def blind_spots(trial: Trial, kept: Collection[str], past: Past | None, remembered_ms: int) -> list[str]:
    """Why the answer may be wrong all the same, when events are known for so long and of the profile only what it is now.

    `kept`: as `kept_by` says it; `past`: as `past_for` says it for that.
    """
    told = []
    if any(asked.id not in kept for asked in trial.plan.accounts):
        told.append(
            "the account condition is new and its users have not been evaluated: users with an account are counted as they are now"
        )
    if past is None:
        return told
    if past.reach_ms is None or past.reach_ms > remembered_ms:
        told.append(f"events are stored for {remembered_ms // _DAY_MS} days after receipt, and the condition covers older events")
    if any(isinstance(leaf, HeldLeaf) for leaf in past.plan.trait_leaves.values()):
        told.append("the time since a trait has its value is unknown until a segment uses it: held_for counts from now on")
    if past.plan.reads_traits:
        told.append("events are compared with the current traits, not with the traits at the time of the event")
    if any(isinstance(leaf, SequenceLeaf) and leaf.pauses for leaf in past.plan.event_leaves.values()):
        told.append("the waiting time of a not step is evaluated as if all events had arrived on time")
    return told


def folded(past: Past, state: UserState, events: Iterable[tuple[EventView, int]], now: int) -> UserState:
    """What the events, in the order in which they came, each with stream time as it was then, leave in the fresh leaves."""
    memory = UserState(user_id=state.user_id, traits_json=traits_text(state.traits))
    for event, stream_time in events:
        past.evaluator.on_event(memory, event, stream_time if past.follows_time else now)
    past.evaluator.on_timer(memory, now)
    return memory


def judged(trial: Trial, state: UserState, memory: tuple[UserState, frozenset[str]] | None, now: int) -> Found:
    """As at a switch to the trial's plan at `now`: what is due fires first, each at its own instant. Changes the state."""
    if memory is not None:
        adopt(state, *memory)
    trial.evaluator.on_definition(state, now, trial.evaluator)
    before = trial.replaces is not None and is_member(state, trial.replaces)
    return Found(before, is_member(state, trial.key))


def adopt(state: UserState, past: UserState, fresh: frozenset[str]) -> None:
    """Put the past into a state's fresh leaves.

    It replaces what is there and adds to nothing, so that a switch that was broken off can be repeated. What the past
    left in a state that is gone by now is gone with it: a leaf that is missing in `past` is missing here too.
    """
    for leaf in fresh.difference(past.accumulators):
        state.accumulators.drop(leaf)
    state.accumulators.take_over(past.accumulators)
    waiting = [match for match in state.waiting if match.leaf not in fresh]
    state.waiting = sorted(waiting + past.waiting, key=_BY_TIME)


def kept_by(segments: Sequence[Segment]) -> frozenset[str]:
    """The leaves that the states of these segments keep, and the conditions that users of accounts answer for them.

    Raises: BrokenPlan.
    """
    plan = compile_plan(segments)
    return frozenset(plan.leaves).union(asked.id for asked in plan.accounts)


def _reach_ms(leaf: object, now: int) -> int | None:
    """How far back a leaf looks; None: for ever."""
    if isinstance(leaf, SequenceLeaf):
        return leaf.horizon_ms
    if isinstance(leaf, CalendarLeaf):
        return _CALENDAR_MS[leaf.unit]
    if isinstance(leaf, FixedLeaf):
        # What lies at the very beginning of the window is in it.
        return None if leaf.after_ms is None else max(0, now - leaf.after_ms + 1)
    return leaf.window_ms if isinstance(leaf, EventLeaf) else None
