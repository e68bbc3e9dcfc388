"""Pure core, hot path: applies a plan to the state of one user: folds events, profiles, lists, account answers and timers.

Each input is evaluated once. Timers due before its instant fire first, each at its own instant; timers due exactly at it are
evaluated together with the input. A step changes the state in place and has no other effect. Time never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling_segments.engine.compiled import Cause, Change, CompiledSegment, Status
from starling_segments.engine.errors import TimerError
from starling_segments.engine.explain import explained
from starling_segments.engine.future_events import admit_due
from starling_segments.engine.leaves import EventView, EventWithTraits
from starling_segments.engine.plan import Plan, leaves_of
from starling_segments.engine.state import AccountTally, Membership, UserState, decode_state, encode_state, traits_text
from starling_segments.language.tree import Bucket, leaves

_NO_TRAITS = "{}"


class Evaluator:
    """Evaluates the segments of one plan. Holds no state of users; sets of segments are bit masks over `plan.segments`."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        # Hot: one attribute of this object instead of one of the plan's for each access.
        self._segments: Final = plan.segments
        self._event_leaves: Final = plan.event_leaves
        self._trait_leaves: Final = plan.trait_leaves
        self._held: Final = plan.held_leaves
        self._pausing: Final = plan.pausing_leaves
        self._routes: Final = plan.routes
        self._positions: Final = {compiled.segment.key: i for i, compiled in enumerate(plan.segments)}
        self._all: Final[int] = (1 << len(plan.segments)) - 1
        self._for_new_users: Final[int] = sum(1 << i for i, one in enumerate(plan.segments) if _can_hold_for_new_users(one))

    def on_event(self, state: UserState, event: EventView, stream_time: int) -> list[Change]:
        """Fold one accepted event. `stream_time`: of the partition, after this event has advanced it."""
        changes: list[Change] = []
        time, routes = event.time_ms, self._routes(event.name)
        is_late = time < stream_time or time < state.clock
        now, affected = self._advance(state, stream_time, changes, is_late=is_late)
        for route in routes.of(event.properties) if routes.by_text else routes.always:
            matches = route.matches
            if matches is None or matches(EventWithTraits(event, state.traits) if route.compares else event, time):
                for leaf in leaves_of(route):
                    affected |= leaf.fold(state, event, now)
        if is_late and state.waiting and state.waiting[0].time <= now:
            affected |= admit_due(state, self._event_leaves, now)
        if self._pausing:
            affected |= self._end_pauses(state, now)
        if affected:
            self._evaluate(state, affected, "EVENT", changes)
        return changes

    def on_profile(
        self, state: UserState, traits: Mapping[str, Any], anonymous_ids: Sequence[str], stream_time: int
    ) -> list[Change]:
        """Replace the profile by a full snapshot of its traits (computed ones under `computed`) and its anonymous ids."""
        changes: list[Change] = []
        now, affected = self._advance(state, stream_time, changes)
        before, state.traits_json, state.anonymous_ids = state.traits, traits_text(traits), list(anonymous_ids)
        for leaf in self._trait_leaves.values():
            affected |= leaf.on_traits(state, before, now)
        affected |= self._end_pauses(state, now)
        self._evaluate(state, affected, "EVENT", changes)
        return changes

    def on_list(self, state: UserState, key: str, is_on: bool, stream_time: int) -> list[Change]:
        """Add the user to an uploaded list, or remove the user. An added user is known from then on.

        A record that changes nothing only fires timers: a change due at this instant has the cause TIMER, not LIST.
        """
        if is_on is (key in state.lists):
            return self.on_timer(state, stream_time)
        changes: list[Change] = []
        now, affected = self._advance(state, stream_time, changes)
        state.lists = [*state.lists, key] if is_on else [other for other in state.lists if other != key]
        affected |= self.plan.lists.get(key, 0) | self._end_pauses(state, now)
        self._evaluate(state, affected, "LIST", changes)
        return changes

    def on_account(self, state: UserState, account: AccountTally | None, stream_time: int, cause: Cause = "EVENT") -> list[Change]:
        """Replace the counts of the other users of the account; None for a user without an account."""
        changes: list[Change] = []
        now, affected = self._advance(state, stream_time, changes)
        state.account = account
        for condition in self.plan.accounts:
            affected |= condition.mask
        affected |= self._end_pauses(state, now)
        self._evaluate(state, affected, cause, changes)
        return changes

    def on_timer(self, state: UserState, stream_time: int) -> list[Change]:
        """Fire the timers due up to and at `stream_time` in order, each at its own instant."""
        changes: list[Change] = []
        self._fire_before(state, stream_time + 1, changes)
        return changes

    def on_definition(self, state: UserState, stream_time: int, previous: Evaluator | None) -> list[Change]:
        """Switch the state from `previous`, whose timers before the switch fire first, to this plan. Idempotent.

        The history of each new event leaf node must have been folded before. Returns the net difference at the switch: entries
        and exits of new and changed segments, and exits of segments that the plan lacks.
        """
        changes: list[Change] = []
        now = max(stream_time, state.clock)
        if previous is not None:
            previous._fire_before(state, now, changes)  # noqa: SLF001 - the same class
        state.clock = now
        self._adopt(state, now)
        for key in [key for key in state.memberships if key not in self._positions]:
            gone = state.memberships.pop(key)
            if gone.member:
                changes.append(Change(key, gone.version, "EXITED", gone.sequence + 1, now, "DEFINITION"))
        if state.known:
            self._evaluate(state, self._all, "DEFINITION", changes)
            for compiled in self._segments:
                if (membership := state.memberships.get(compiled.segment.key)) is not None:
                    membership.version = compiled.segment.version
        return changes

    def next_due(self, state: UserState) -> int | None:
        """Return the earliest instant at which time alone can change a membership; always after `state.clock`."""
        due = state.due.earliest
        for match in state.waiting:
            if match.leaf in self._event_leaves:
                return match.time if due is None else min(due, match.time)
        return due

    def explain(self, state: UserState, key: str, now: int) -> dict[str, Any]:
        """Return why the user is a member of a segment or not at `now`, and when that can next change. Changes nothing.

        Raises: KeyError for a segment that the plan lacks.
        """
        compiled = self._segments[self._positions[key]]
        copy = decode_state(encode_state(state))
        self.on_timer(copy, now)
        copy.clock = now = max(now, copy.clock)
        return {
            "member": key in copy.memberships and copy.memberships[key].member,
            "as_of": now,
            "tree": explained(compiled.tree, copy, now),
        }

    def _advance(self, state: UserState, stream_time: int, changes: list[Change], *, is_late: bool = False) -> tuple[int, int]:
        """Fire the timers before now and set the clock to now; return now and the mask of the segments due at now.

        Pauses of sequences that end at now stay open: the input that follows may still break them. If the input is a late
        event, matches of now stay waiting until it is folded: the steps of a sequence match in the order of event time.
        """
        now, affected = max(stream_time, state.clock), 0
        earliest = state.due.earliest
        if state.waiting or (earliest is not None and earliest <= now):
            self._fire_before(state, now, changes)
            affected = self._expire(state, now, self._pausing, now - 1 if is_late else now)
        state.clock = now
        if not state.known:
            state.known = True
            affected = self._for_new_users if _is_blank(state) else self._all
            for leaf in self._held:
                leaf.expire(state, now)
                if leaf.since(state) is not None:
                    affected |= leaf.mask
        return now, affected

    def _end_pauses(self, state: UserState, now: int) -> int:
        """Complete the pauses of sequences that end at now; return the mask of the affected segments."""
        earliest = state.due.earliest
        if not self._pausing or earliest is None or earliest > now:
            return 0
        return self._expire(state, now, frozenset(), now)

    def _fire_before(self, state: UserState, limit: int, changes: list[Change]) -> None:
        fired, due = None, state.due
        while True:
            instant = self.next_due(state) if state.waiting else due.earliest
            if instant is None or instant >= limit:
                return
            if fired is not None and instant <= fired:
                raise TimerError(f"the timer of {instant} is due again after {fired} was fired")
            fired = state.clock = max(instant, state.clock)
            self._evaluate(state, self._expire(state, state.clock, frozenset(), state.clock), "TIMER", changes)

    def _expire(self, state: UserState, now: int, spared: frozenset[str], last: int) -> int:
        """Expire the leaf nodes due at `now` or before, except `spared`, and fold the waiting matches up to and at `last`.

        Return the mask of the affected segments.
        """
        affected = 0
        for leaf_id in state.due.due(now):
            leaf = self._event_leaves.get(leaf_id) or self._trait_leaves.get(leaf_id)
            if leaf is None:
                state.due.set(leaf_id, None)  # of a previous plan
            elif leaf_id in spared:
                affected |= leaf.mask
            else:
                affected |= leaf.expire(state, now)
        if state.waiting and state.waiting[0].time <= last:
            affected |= admit_due(state, self._event_leaves, last)
        return affected

    def _adopt(self, state: UserState, now: int) -> None:
        """Drop what only a previous plan used, and set all timers of this one."""
        state.accumulators.restrict(set(self.plan.leaves))
        state.waiting = [match for match in state.waiting if match.leaf in self._event_leaves]
        admit_due(state, self._event_leaves, now)
        state.due.clear()
        for event_leaf in self._event_leaves.values():
            event_leaf.refresh(state, now)
        for trait_leaf in self._trait_leaves.values():
            trait_leaf.refresh(state, now)

    def _evaluate(self, state: UserState, affected: int, cause: Cause, changes: list[Change]) -> None:
        """Evaluate the affected segments, and the dependents of those that changed, in the plan's order."""
        if not affected:
            return
        now, memberships = state.clock, state.memberships
        if affected == self._all:  # a switch of plans: every segment, without a search for the lowest bit
            for compiled in self._segments:
                self._evaluate_one(compiled, state, now, memberships, cause, changes)
            return
        while affected:
            lowest = affected & -affected
            affected ^= lowest
            affected |= self._evaluate_one(self._segments[lowest.bit_length() - 1], state, now, memberships, cause, changes)

    def _evaluate_one(
        self,
        compiled: CompiledSegment,
        state: UserState,
        now: int,
        memberships: dict[str, Membership],
        cause: Cause,
        changes: list[Change],
    ) -> int:
        """Evaluate one segment; return the mask of its dependents if its truth changed, else 0."""
        segment = compiled.segment
        membership = memberships.get(segment.key)
        truth = compiled.holds(state, now)
        if truth is (membership is not None and membership.member):
            return 0
        if membership is None:
            membership = memberships[segment.key] = Membership()
        membership.member, membership.version = truth, segment.version
        membership.sequence += 1
        if truth:
            membership.entered_at = now
        status: Status = "ENTERED" if truth else "EXITED"
        changes.append(Change(segment.key, segment.version, status, membership.sequence, now, cause))
        return compiled.dependents


def _is_blank(state: UserState) -> bool:
    """Return whether the state contains nothing about the user yet."""
    return (
        state.traits_json == _NO_TRAITS
        and state.account is None
        and state.due.earliest is None
        and not (state.waiting or state.lists or state.memberships or state.accumulators)
    )


def _can_hold_for_new_users(compiled: CompiledSegment) -> bool:
    """Return whether a user of whom nothing is known can be a member, at any time.

    All other segments are skipped for a new user until the user's data affects one of their leaf nodes.
    """
    blank = UserState(known=True)
    return (
        compiled.holds(blank, 0)
        or compiled.tree.next_change(blank, 0) is not None
        or any(isinstance(leaf, Bucket) for leaf in leaves(compiled.segment.where))
    )
