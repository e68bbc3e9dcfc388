"""Pure core: what a switch of definitions needs of the past, so that a new segment counts what happened before it."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from starling_common.message_events import EVENT_NAMES
from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.topics import BEHAVIOUR, CLOCK, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_common.values import split_key, workspace_of
from starling_rules.backfills import narrowed
from starling_rules.events import Behaviour, Listed, Profile, Reported, parse_object, unreadable
from starling_rules.rules import NO_RULES, Rules
from starling_segments import Evaluator, Plan, UserState, adopt_history
from starling_stream.model.processor import Inbound

PAST: Final = (BEHAVIOUR, PROFILE, CLOCK, LIST_MEMBERSHIP, DELIVERY)
"""What makes up the past of a user; what others of their account said is asked anew. Of records of one instant that of an
earlier topic goes first.
"""

_NONE: Final[frozenset[str]] = frozenset()
_BY_RECEIPT = attrgetter("received_at")
REFUSED_CHANGES: Final = frozenset({"MERGED", "ERASED"})
"""Kinds of profile changes that are known and not done yet."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One task's way from one set of rules to the next.

    `before`: the rules it had, None when they are not known any more. `fresh`: the leaves that those lacked, by
    workspace. `doubtful`: those that they had, but perhaps under another identity, for another release compiled them.
    `past`: by key, what the task's past events left in all these leaves.
    """

    before: Mapping[bytes, Rules] | None
    fresh: Mapping[bytes, frozenset[str]]
    doubtful: Mapping[bytes, frozenset[str]]
    past: Mapping[bytes, UserState]

    def adopt(self, key: bytes, state: UserState) -> None:
        """Put the past of a key into the leaves that its state lacks.

        Doubtful ones that it has stay as they are: they may count what the topics no longer have.
        """
        past = self.past.get(key)
        if past is None:
            return
        workspace = workspace_of(key)
        lacking, doubtful = self.fresh.get(workspace, _NONE), self.doubtful.get(workspace)
        if doubtful:
            lacking |= doubtful.difference(state.accumulators, (match.leaf for match in state.waiting))
            past = narrowed(past, lacking)
        adopt_history(state, past, lacking)


def doubtful_leaves(after: Mapping[bytes, Rules], fresh: Mapping[bytes, frozenset[str]]) -> dict[bytes, frozenset[str]]:
    """All leaves but the fresh ones: when another release compiled them, a state may have them under other identities."""
    return {workspace: frozenset(rules.plan.leaves) - fresh.get(workspace, _NONE) for workspace, rules in after.items()}


def fresh_leaves(before: Mapping[bytes, Rules] | None, after: Mapping[bytes, Rules]) -> dict[bytes, frozenset[str]]:
    """The leaves that `after` has and `before` has not, by workspace; all of them when `before` is not known."""
    known = before or {}
    leaves = {
        workspace: frozenset(rules.plan.leaves).difference(known.get(workspace, NO_RULES).plan.leaves)
        for workspace, rules in after.items()
    }
    return {workspace: fresh for workspace, fresh in leaves.items() if fresh}


def all_of(*leaves: Mapping[bytes, frozenset[str]]) -> dict[bytes, frozenset[str]]:
    """Leaves by workspace, put together."""
    workspaces = {workspace for one in leaves for workspace in one}
    return {workspace: _NONE.union(*(one.get(workspace, _NONE) for one in leaves)) for workspace in workspaces}


def fold_past(
    records: Iterable[Inbound],
    fresh: Mapping[bytes, frozenset[str]],
    rules: Mapping[bytes, Rules],
    stream_time: "StreamTime",
    past: dict[bytes, UserState] | None = None,
) -> dict[bytes, UserState]:
    """Key -> a state that holds what the records left in the fresh leaves; `stream_time` says when each was folded.

    `past`: what came before those records, which is gone on with. Memory grows with the users who have such records, one
    task at a time.
    """
    evaluators = _narrowed(fresh, rules)
    past = {} if past is None else past
    for record in records:
        now, key = stream_time(record), record.key
        evaluator = evaluators.get(workspace_of(key))
        if evaluator is not None:
            _fold(evaluator, past, _dated(record, stream_time.clock, now), rules[workspace_of(key)], now)
    return past


def catch_up(
    past: Mapping[bytes, UserState], fresh: Mapping[bytes, frozenset[str]], rules: Mapping[bytes, Rules], now: int
) -> None:
    """Let time pass for what was folded in order, from its last record up to the switch."""
    evaluators = _narrowed(fresh, rules)
    for key, state in past.items():
        evaluators[workspace_of(key)].on_timer(state, now)


def _dated(record: Inbound, clock: Clock, now: int) -> Inbound:
    """With what became of a message as the event that it is."""
    value = record.value
    return record._replace(value=value.at(reported_ms(record.received_at, clock, now))) if isinstance(value, Reported) else record


def _fold(evaluator: Evaluator, past: dict[bytes, UserState], record: Inbound, rules: Rules, now: int) -> None:
    """What was refused when it came is no part of the past."""
    value, plan = record.value, evaluator.plan
    if isinstance(value, Behaviour):
        if (plan.needs_profiles or plan.touches(value.name)) and unreadable(value, rules) is None:
            evaluator.on_event(_of(past, record.key), value, now)
    elif isinstance(value, Profile) and plan.needs_profiles and value.change not in REFUSED_CHANGES:
        traits = parse_object(value.traits)
        if not isinstance(traits, Refused):
            evaluator.on_profile(_of(past, record.key), traits, [], now)
    elif isinstance(value, Listed) and plan.needs_profiles and value.on_list:
        state = _of(past, record.key)
        evaluator.on_profile(state, state.traits, [], now)  # whoever is put on a list is known from then on


def _of(past: dict[bytes, UserState], key: bytes) -> UserState:
    state = past.get(key)
    if state is None:
        state = past[key] = UserState(user_id=split_key(key)[1])
    return state


def past_topics(fresh: Mapping[bytes, frozenset[str]], rules: Mapping[bytes, Rules], clock: Clock) -> tuple[str, ...]:
    """What has to be read for the fresh leaves: all of `PAST`, and in order, if it counts when each record was folded."""
    plans = [evaluator.plan for evaluator in _narrowed(fresh, rules).values()]
    ask_for_outcomes = any(_asks_for_outcomes(plan) for plan in plans)
    if any(plan.follows_time for plan in plans) or (ask_for_outcomes and clock is Clock.EVENT):
        return PAST
    return (BEHAVIOUR, DELIVERY) if ask_for_outcomes else (BEHAVIOUR,)


def _asks_for_outcomes(plan: Plan) -> bool:
    """Whether any leaf may want to know what became of messages."""
    return any(plan.touches(name) for name in EVENT_NAMES.values())


def reported_ms(received_at: int, clock: Clock, stream_time_ms: int) -> int:
    """When what became of a message counts: when it was reported; under the event clock, at stream time when it is folded.

    Channels tell the wall clock's time, which events of another time must not be compared with.
    """
    return received_at // 1000 if clock is Clock.WALL else stream_time_ms


def _narrowed(fresh: Mapping[bytes, frozenset[str]], rules: Mapping[bytes, Rules]) -> dict[bytes, Evaluator]:
    return {workspace: Evaluator(rules[workspace].plan.restricted_to(leaves)) for workspace, leaves in fresh.items()}


def in_order(inputs: Iterable[Iterable[Inbound]]) -> Iterable[Inbound]:
    """The records of those inputs as they were folded: by when they were received."""
    return heapq.merge(*inputs, key=_BY_RECEIPT)


class StreamTime:
    """What stream time was when a record was folded: asked of each record of a task, in order."""

    def __init__(self, clock: Clock, so_far_ms: int = 0) -> None:
        self.clock = clock
        self._so_far = so_far_ms

    @property
    def so_far_ms(self) -> int:
        """What it is after the records that were asked of."""
        return self._so_far

    def __call__(self, record: Inbound) -> int:
        """Epoch ms."""
        instant = record.received_at // 1000 if self.clock is Clock.WALL else record.event_time_ms
        if instant is not None and instant > self._so_far:
            self._so_far = instant
        return self._so_far
