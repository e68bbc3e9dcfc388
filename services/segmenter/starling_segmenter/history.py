"""Pure core: what a switch of definitions needs of the past, so that a new segment counts what happened before it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from starling_segmenter.events import Behaviour, unreadable
from starling_segmenter.rules import NO_RULES, Rules, workspace_of
from starling_segments import Plan, UserState

_BY_TIME = attrgetter("time")


@dataclass(frozen=True, slots=True)
class Switch:
    """One task's way from one set of rules to the next.

    `before`: the rules it had, None when they are not known any more. `fresh`: the leaves that those lacked, by
    workspace. `past`: by key, what the task's past events left in those leaves.
    """

    before: Mapping[bytes, Rules] | None
    fresh: Mapping[bytes, frozenset[str]]
    past: Mapping[bytes, UserState]


def fresh_leaves(before: Mapping[bytes, Rules] | None, after: Mapping[bytes, Rules]) -> dict[bytes, frozenset[str]]:
    """The leaves that `after` has and `before` has not, by workspace; all of them when `before` is not known."""
    known = before or {}
    leaves = {
        workspace: frozenset(rules.plan.leaves).difference(known.get(workspace, NO_RULES).plan.leaves)
        for workspace, rules in after.items()
    }
    return {workspace: fresh for workspace, fresh in leaves.items() if fresh}


def fold_past(
    events: Iterable[tuple[bytes, Behaviour]],
    fresh: Mapping[bytes, frozenset[str]],
    rules: Mapping[bytes, Rules],
    stream_time_ms: int,
) -> dict[bytes, UserState]:
    """Key -> a state that holds what the events left in the fresh leaves, as of `stream_time_ms`.

    Memory grows with the users who have such events, one task at a time.
    """
    narrowed = {workspace: rules[workspace].plan.restricted_to(leaves) for workspace, leaves in fresh.items()}
    past: dict[bytes, UserState] = {}
    for key, event in events:
        workspace = workspace_of(key)
        plan = narrowed.get(workspace)
        # An unreadable event was refused when it came, and is no part of the past.
        if plan is not None and plan.touches(event.name) and unreadable(event, rules[workspace]) is None:
            _fold(plan, past, key, event, stream_time_ms)
    return past


def _fold(plan: Plan, past: dict[bytes, UserState], key: bytes, event: Behaviour, stream_time_ms: int) -> None:
    state = past.get(key)
    if state is None:
        state = past[key] = UserState(clock=stream_time_ms)
    plan.fold_history(state, event)


def remember(state: UserState, past: UserState, fresh: frozenset[str]) -> None:
    """Put the past into a state's fresh leaves.

    It replaces what is there and adds to nothing, so that a switch that was broken off can be repeated.
    """
    state.accumulators.update(past.accumulators)
    waiting = [match for match in state.waiting if match.leaf not in fresh]
    state.waiting = sorted(waiting + past.waiting, key=_BY_TIME)
