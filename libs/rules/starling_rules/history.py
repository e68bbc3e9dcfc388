"""Pure core: the history that a switch of definitions needs, so that a new segment counts what happened before it."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeAlias

from starling_common.failpoints.raising import Raising
from starling_common.failures import is_of_installation, poison
from starling_common.kafka.topics import BEHAVIOUR, CLOCK, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_common.outcome import Refused
from starling_common.records.message_events import EVENT_NAMES
from starling_common.settings import Clock
from starling_common.values import split_key, workspace_of
from starling_rules.backfills import narrowed
from starling_rules.events import Behaviour, Listed, Profile, Reported, json_error, parse_object
from starling_rules.rules import NO_RULES, Rules
from starling_segments import Evaluator, Plan, UserState, adopt_history, decode_state, encode_state
from starling_stream.model.processor import Inbound

PAST: Final = (BEHAVIOUR, PROFILE, CLOCK, LIST_MEMBERSHIP, DELIVERY)
"""The topics of a user's history, without the answers of the account's other users, which are sent again after a switch. Of
records with the same `received_at`, the record of the earlier topic is folded first.
"""

_NONE: Final[frozenset[str]] = frozenset()
_NONE_OF_USERS: Final[frozenset[bytes]] = frozenset()
_BY_RECEIPT = attrgetter("received_at")
REFUSED_CHANGES: Final = frozenset({"MERGED", "ERASED"})
"""Kinds of profile changes that are not implemented."""


@dataclass(frozen=True, slots=True)
class Switch:
    """The switch of one task from one set of rules to the next.

    `before`: the rules before it, None if they are unknown. `fresh`: the leaf nodes that those lacked, by workspace.
    `doubtful`: leaf nodes that they had, perhaps under another id, because another release compiled them. `past`: by
    key, the history of all these leaf nodes. `changed`: the workspaces that have other rules than before; None: perhaps all.
    """

    before: Mapping[bytes, Rules] | None
    fresh: Mapping[bytes, frozenset[str]]
    doubtful: Mapping[bytes, frozenset[str]]
    past: Mapping[bytes, UserState]
    changed: frozenset[bytes] | None = None

    def adopt(self, key: bytes, state: UserState) -> None:
        """Fill the leaf nodes that `state` lacks with the values that the topics' records of `key` give.

        A leaf node of `doubtful` that the state has keeps its value: it may count records that the topics no longer contain.
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
    """Return the leaf nodes that are not fresh, by workspace: another release may have stored them under other ids."""
    return {workspace: frozenset(rules.plan.leaves) - fresh.get(workspace, _NONE) for workspace, rules in after.items()}


def fresh_leaves(before: Mapping[bytes, Rules] | None, after: Mapping[bytes, Rules]) -> dict[bytes, frozenset[str]]:
    """Return the leaf nodes in `after` and not in `before`, by workspace; all of them if `before` is None."""
    known = before or {}
    leaves = {
        workspace: frozenset(rules.plan.leaves).difference(known.get(workspace, NO_RULES).plan.leaves)
        for workspace, rules in after.items()
    }
    return {workspace: fresh for workspace, fresh in leaves.items() if fresh}


def changed_workspaces(before: Mapping[bytes, Rules] | None, after: Mapping[bytes, Rules]) -> frozenset[bytes] | None:
    """Return the workspaces whose rules were compiled again; None without known rules before."""
    if before is None:
        return None
    return frozenset(workspace for workspace in before.keys() | after if before.get(workspace) is not after.get(workspace))


def all_of(*leaves: Mapping[bytes, frozenset[str]]) -> dict[bytes, frozenset[str]]:
    """Return the union of leaf nodes by workspace."""
    workspaces = {workspace for one in leaves for workspace in one}
    return {workspace: _NONE.union(*(one.get(workspace, _NONE) for one in leaves)) for workspace in workspaces}


Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record. For a whole user the topic is `(user)` and the key, and the offset -1."""


def user_place(partition: int, key: bytes) -> Place:
    """Return the place of a user whose state makes the code raise."""
    return f"(user) {key.decode(errors='replace')}", partition, -1


@dataclass(slots=True)
class Isolation:
    """Records and users that make the fold of a history raise.

    At its first failure a user goes to `failed`, without a state. The next fold of the same records has these users in `fragile`:
    it copies their state before each record, so that a record that raises changes nothing and goes to `refused`. `armed`: the
    failpoint of the process, which may be `fold`.
    """

    fragile: frozenset[bytes] = _NONE_OF_USERS
    failed: set[bytes] = field(default_factory=set)
    refused: dict[Place, Refused] = field(default_factory=dict)
    keys: dict[Place, bytes] = field(default_factory=dict)
    """The keys of what was refused."""
    armed: Raising | None = None

    def refuse(self, place: Place, key: bytes, why: Refused) -> None:
        """Note what is no part of the history."""
        self.refused[place], self.keys[place] = why, key


def fold_past(
    records: Iterable[Inbound],
    fresh: Mapping[bytes, frozenset[str]],
    rules: Mapping[bytes, Rules],
    stream_time: "StreamTime",
    past: dict[bytes, UserState] | None = None,
    isolation: Isolation | None = None,
) -> dict[bytes, UserState]:
    """Return key -> a state with the history of the fresh leaf nodes; `stream_time` returns the time of each record's fold.

    `past`: the result for the records before these, which is continued. Memory grows with the number of users who have
    such records. Without `isolation` the exception of a record ends the fold.
    """
    evaluators = _narrowed(fresh, rules)
    past = {} if past is None else past
    for record in records:
        now, key = stream_time(record), record.key
        evaluator = evaluators.get(workspace_of(key))
        if evaluator is None:
            continue
        own = _dated(record, stream_time.clock, now)
        if isolation is None:
            _fold(evaluator, past, own, rules[workspace_of(key)], now)
        else:
            _fold_isolated(isolation, evaluator, past, own, rules[workspace_of(key)], now)
    return past


def _fold_isolated(
    isolation: Isolation, evaluator: Evaluator, past: dict[bytes, UserState], record: Inbound, rules: Rules, now: int
) -> None:
    key = record.key
    if key in isolation.failed:
        return
    is_fragile = key in isolation.fragile
    copied = encode_state(past[key]) if is_fragile and key in past else None
    try:
        _fold(evaluator, past, record, rules, now)
        if isolation.armed is not None:
            isolation.armed.passed("fold", f"{key.decode()} {record.topic} {record.offset}".encode())
        if is_fragile and key in past:
            encode_state(past[key])
    except Exception as cause:
        if is_of_installation(cause):
            raise
        past.pop(key, None)
        if not is_fragile:
            isolation.failed.add(key)
            return
        if copied is not None:
            past[key] = decode_state(copied)
        isolation.refuse((record.topic, record.partition, record.offset), key, poison(cause))


def catch_up(
    past: dict[bytes, UserState],
    fresh: Mapping[bytes, frozenset[str]],
    rules: Mapping[bytes, Rules],
    now: int,
    isolation: Isolation,
    partition: int,
) -> None:
    """Fire the timers of states that were folded in order, from their last record up to the switch.

    A user whose timers raise has no history and goes to `refused`.
    """
    evaluators = _narrowed(fresh, rules)
    for key, state in list(past.items()):
        try:
            evaluators[workspace_of(key)].on_timer(state, now)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            del past[key]
            isolation.refuse(user_place(partition, key), key, poison(cause))


def _dated(record: Inbound, clock: Clock, now: int) -> Inbound:
    """Return the record with the outcome of a message as an event."""
    value = record.value
    return record._replace(value=value.at(reported_ms(record.received_at, clock, now))) if isinstance(value, Reported) else record


def _fold(evaluator: Evaluator, past: dict[bytes, UserState], record: Inbound, rules: Rules, now: int) -> None:
    """Fold one record; a record that was refused on arrival is no part of the history."""
    value, plan = record.value, evaluator.plan
    if isinstance(value, Behaviour):
        if (plan.needs_profiles or plan.touches(value.name)) and json_error(value, rules) is None:
            evaluator.on_event(_state_of(past, record.key), value, now)
    elif isinstance(value, Profile) and plan.needs_profiles and value.change not in REFUSED_CHANGES:
        traits = parse_object(value.traits)
        if not isinstance(traits, Refused):
            evaluator.on_profile(_state_of(past, record.key), traits, [], now)
    elif isinstance(value, Listed) and plan.needs_profiles and value.on_list:
        state = _state_of(past, record.key)
        evaluator.on_profile(state, state.traits, [], now)  # a user on a list has a profile


def _state_of(past: dict[bytes, UserState], key: bytes) -> UserState:
    state = past.get(key)
    if state is None:
        state = past[key] = UserState(user_id=split_key(key)[1])
    return state


def past_topics(fresh: Mapping[bytes, frozenset[str]], rules: Mapping[bytes, Rules], clock: Clock) -> tuple[str, ...]:
    """Return the topics to read for the fresh leaf nodes: all of `PAST`, in order, if the time of each fold matters."""
    plans = [evaluator.plan for evaluator in _narrowed(fresh, rules).values()]
    need_outcomes = any(_needs_outcomes(plan) for plan in plans)
    if any(plan.follows_time for plan in plans) or (need_outcomes and clock is Clock.EVENT):
        return PAST
    return (BEHAVIOUR, DELIVERY) if need_outcomes else (BEHAVIOUR,)


def _needs_outcomes(plan: Plan) -> bool:
    """Return whether a leaf node may refer to the outcomes of messages."""
    return any(plan.touches(name) for name in EVENT_NAMES.values())


def reported_ms(received_at: int, clock: Clock, stream_time_ms: int) -> int:
    """Return the event time of an outcome: of the report, or under the event clock the stream time of its fold.

    Channels report wall-clock time, which is not comparable with the event clock.
    """
    return received_at // 1000 if clock is Clock.WALL else stream_time_ms


def _narrowed(fresh: Mapping[bytes, frozenset[str]], rules: Mapping[bytes, Rules]) -> dict[bytes, Evaluator]:
    return {workspace: Evaluator(rules[workspace].plan.restricted_to(leaves)) for workspace, leaves in fresh.items()}


def in_order(inputs: Iterable[Iterable[Inbound]]) -> Iterable[Inbound]:
    """Return the records of those inputs in the order of the fold: by `received_at`."""
    return heapq.merge(*inputs, key=_BY_RECEIPT)


class StreamTime:
    """The stream time at the fold of each record; called with each record of a task, in order."""

    def __init__(self, clock: Clock, so_far_ms: int = 0) -> None:
        self.clock = clock
        self._so_far = so_far_ms

    @property
    def so_far_ms(self) -> int:
        """Stream time after the records so far, epoch ms."""
        return self._so_far

    def __call__(self, record: Inbound) -> int:
        """Return stream time after the record, epoch ms."""
        instant = record.received_at // 1000 if self.clock is Clock.WALL else record.event_time_ms
        if instant is not None and instant > self._so_far:
            self._so_far = instant
        return self._so_far
