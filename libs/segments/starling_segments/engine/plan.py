"""Pure core, hot path: a plan, and the steps that fold a user's events, profiles and timers through it.

One evaluation an event: timers due before its instant fire first, each at its own instant; those due at it are
evaluated together with it. A step changes the state in place and has no other effect; instants never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from starling_segments.engine.compiled import Cause, Change, CompiledAccount, CompiledSegment, Status
from starling_segments.engine.errors import StuckTimer
from starling_segments.engine.event_index import Route, Router, Routes
from starling_segments.engine.explain import explained
from starling_segments.engine.future_events import admit_waiting
from starling_segments.engine.leaves import EventView, Seen
from starling_segments.engine.sequences.sequence import FoldingLeaf, SequenceLeaf
from starling_segments.engine.state import AccountTally, Membership, UserState, decode_state, encode_state, traits_text
from starling_segments.engine.trait_conditions import HeldLeaf, TraitLeaf
from starling_segments.language.tree import Bucket, leaves

_NAMES_AT_HAND = 4096
_NO_TRAITS = "{}"


@dataclass(frozen=True)
class Plan:
    """Everything that can be worked out once for a set of segments. Made by `compile_plan`.

    `event_leaves`, `trait_leaves`: by identity, the key of what is kept for them. `router` leads from an event to its
    leaves. `lists`: list -> the segments that ask for it. `accounts`: the conditions on the users of an account.
    """

    segments: tuple[CompiledSegment, ...]
    event_leaves: Mapping[str, FoldingLeaf]
    trait_leaves: Mapping[str, TraitLeaf | HeldLeaf]
    router: Router
    lists: Mapping[str, int] = field(default_factory=dict)
    accounts: tuple[CompiledAccount, ...] = ()
    reads_context: bool = False
    reads_traits: bool = False

    @property
    def leaves(self) -> tuple[str, ...]:
        """The identities of the leaves that keep something of the past."""
        return (*self.event_leaves, *(leaf.id for leaf in self._held))

    @property
    def needs_profiles(self) -> bool:
        """Whether the past of the profiles counts too: how long a trait has been what it is, or what an event met."""
        return self.reads_traits or bool(self._held)

    @property
    def follows_time(self) -> bool:
        """Whether it counts when each record of the past was folded: what was met by then stays met."""
        return self.needs_profiles or bool(self._pausing)

    def restricted_to(self, leaf_ids: Collection[str]) -> Plan:
        """A plan with those leaves and no segments: to fold history into new leaves."""
        kept = {key: leaf.alone() for key, leaf in self.event_leaves.items() if key in leaf_ids}
        held: dict[str, TraitLeaf | HeldLeaf] = {leaf.id: leaf.alone() for leaf in self._held if leaf.id in leaf_ids}
        return Plan((), kept, held, self.router.narrowed(kept), reads_context=self.reads_context, reads_traits=self.reads_traits)

    def touches(self, event_name: str) -> bool:
        """Whether any leaf may want events of that name."""
        return not self._routes(event_name).lead_nowhere

    def reads(self, event_name: str) -> bool:
        """Whether any leaf looks into events of that name, and does not only count them."""
        routes = self._routes(event_name)
        return bool(routes.by_text) or any(route.matches or any(leaf.reads for leaf in _leaves(route)) for route in routes.always)

    def on_event(self, state: UserState, event: EventView, stream_time: int) -> list[Change]:
        """Fold one accepted event. `stream_time`: of the partition, already moved on by the event."""
        changes: list[Change] = []
        now, dirty = self._arrive(state, stream_time, changes)
        time, routes = event.time_ms, self._routes(event.name)
        for route in routes.of(event.properties) if routes.by_text else routes.always:
            matches = route.matches
            if matches is None or matches(Seen(event, state.traits) if route.compares else event, time):
                for leaf in _leaves(route):
                    dirty |= leaf.fold(state, event, now)
        if self._pausing:
            dirty |= self._close(state, now)
        if dirty:
            self._evaluate(state, dirty, "EVENT", changes)
        return changes

    def on_profile(
        self, state: UserState, traits: Mapping[str, Any], anonymous_ids: Sequence[str], stream_time: int
    ) -> list[Change]:
        """Take over a profile: the full snapshot of its traits (computed ones under `computed`) and its other ids."""
        changes: list[Change] = []
        now, dirty = self._arrive(state, stream_time, changes)
        before, state.traits_json, state.anonymous_ids = state.traits, traits_text(traits), list(anonymous_ids)
        for leaf in self.trait_leaves.values():
            dirty |= leaf.turn(state, before, now)
        dirty |= self._close(state, now)
        self._evaluate(state, dirty, "EVENT", changes)
        return changes

    def on_list(self, state: UserState, key: str, is_on: bool, stream_time: int) -> list[Change]:
        """The user was put on an uploaded list, or taken off it. Whoever is put on a list is known from then on.

        What says nothing new is no input: what is due at that very instant has turned by time alone.
        """
        if is_on is (key in state.lists):
            return self.on_timer(state, stream_time)
        changes: list[Change] = []
        now, dirty = self._arrive(state, stream_time, changes)
        state.lists = [*state.lists, key] if is_on else [other for other in state.lists if other != key]
        dirty |= self.lists.get(key, 0) | self._close(state, now)
        self._evaluate(state, dirty, "LIST", changes)
        return changes

    def on_account(self, state: UserState, account: AccountTally | None, stream_time: int, cause: Cause = "EVENT") -> list[Change]:
        """The user's account (None: without one), and what its other users say to the conditions of `accounts`."""
        changes: list[Change] = []
        now, dirty = self._arrive(state, stream_time, changes)
        state.account = account
        for asked in self.accounts:
            dirty |= asked.mask
        dirty |= self._close(state, now)
        self._evaluate(state, dirty, cause, changes)
        return changes

    def account_answers(self, state: UserState) -> dict[str, bool]:
        """What this user says to each condition of `accounts`: what the other users of the account have to be told."""
        return {asked.id: state.known and asked.holds(state, state.clock) for asked in self.accounts}

    def on_timer(self, state: UserState, stream_time: int) -> list[Change]:
        """Fire whatever is due up to and at `stream_time`, in order, each at its own instant."""
        changes: list[Change] = []
        self._fire_before(state, stream_time + 1, changes)
        return changes

    def on_definition(self, state: UserState, stream_time: int, previous: Plan | None) -> list[Change]:
        """This plan takes over from `previous` (whose timers before the switch fire first). Safe to repeat.

        Every event leaf that is new must have had its history folded. Announces what is different at the switch:
        entries and exits of new and changed segments, exits of those that are gone.
        """
        changes: list[Change] = []
        now = max(stream_time, state.clock)
        if previous is not None:
            previous._fire_before(state, now, changes)  # noqa: SLF001 - another plan, the same class
        state.clock = now
        self._take_over(state, now)
        for key in [key for key in state.memberships if key not in self._position]:
            gone = state.memberships.pop(key)
            if gone.member:
                changes.append(Change(key, gone.version, "EXITED", gone.sequence + 1, now, "DEFINITION"))
        if state.known:
            self._evaluate(state, self._everything, "DEFINITION", changes)
            for compiled in self.segments:
                if (membership := state.memberships.get(compiled.segment.key)) is not None:
                    membership.version = compiled.segment.version
        return changes

    def next_due(self, state: UserState) -> int | None:
        """The earliest instant at which any truth can change without an event; later than the last one evaluated."""
        due = state.due.earliest
        for waiting in state.waiting:
            if waiting.leaf in self.event_leaves:
                return waiting.time if due is None else min(due, waiting.time)
        return due

    def fold_history(self, state: UserState, event: EventView, stream_time: int) -> None:
        """Fold a past event into a state that holds nothing but the past; `on_definition` must follow.

        Only on a plan `restricted_to` the new leaves. `stream_time`: as it was then.
        """
        self.on_event(state, event, stream_time)

    def fold_past_profile(self, state: UserState, traits: Mapping[str, Any], stream_time: int) -> None:
        """As `fold_history`, of a past profile."""
        self.on_profile(state, traits, [], stream_time)

    def explain(self, state: UserState, key: str, now: int) -> dict[str, Any]:
        """Why the user is in or out of a segment at `now`, and when that can next change. Changes nothing.

        Raises: KeyError for a segment that the plan does not have.
        """
        compiled = self.segments[self._position[key]]
        copy = decode_state(encode_state(state))
        self.on_timer(copy, now)
        copy.clock = now = max(now, copy.clock)
        return {
            "member": key in copy.memberships and copy.memberships[key].member,
            "as_of": now,
            "tree": explained(compiled.tree, copy, now),
        }

    def __post_init__(self) -> None:
        position = {compiled.segment.key: i for i, compiled in enumerate(self.segments)}
        object.__setattr__(self, "_position", position)
        object.__setattr__(self, "_everything", (1 << len(self.segments)) - 1)
        open_at_first = (1 << i for i, compiled in enumerate(self.segments) if _is_open_at_first(compiled))
        object.__setattr__(self, "_at_first", sum(open_at_first))
        object.__setattr__(self, "_held", tuple(leaf for leaf in self.trait_leaves.values() if isinstance(leaf, HeldLeaf)))
        pausing = (key for key, leaf in self.event_leaves.items() if isinstance(leaf, SequenceLeaf) and leaf.pauses)
        object.__setattr__(self, "_pausing", frozenset(pausing))
        object.__setattr__(self, "_routes", lru_cache(_NAMES_AT_HAND)(self.router.find))

    _position: Mapping[str, int] = field(init=False, repr=False, default_factory=dict)
    _everything: int = field(init=False, repr=False, default=0)
    _at_first: int = field(init=False, repr=False, default=0)
    _held: tuple[HeldLeaf, ...] = field(init=False, repr=False, default=())
    _pausing: frozenset[str] = field(init=False, repr=False, default=frozenset())
    _routes: Callable[[str], Routes] = field(init=False, repr=False, compare=False, default=None)  # type: ignore[assignment]

    def _arrive(self, state: UserState, stream_time: int, changes: list[Change]) -> tuple[int, int]:
        """Fire what is due before now, move the clock to now; returns now and the segments due at now.

        Pauses of sequences that are over at now are not met yet: what is about to be folded may still break them.
        """
        now, dirty = max(stream_time, state.clock), 0
        earliest = state.due.earliest
        if state.waiting or (earliest is not None and earliest <= now):
            self._fire_before(state, now, changes)
            dirty = self._collect(state, now, self._pausing)
        state.clock = now
        if not state.known:
            state.known = True
            dirty = self._at_first if _is_blank(state) else self._everything
            for leaf in self._held:
                leaf.expire(state, now)
                if leaf.since(state) is not None:
                    dirty |= leaf.mask
        return now, dirty

    def _close(self, state: UserState, now: int) -> int:
        """Meet the pauses of sequences that are over at now."""
        earliest = state.due.earliest
        if not self._pausing or earliest is None or earliest > now:
            return 0
        return self._collect(state, now, frozenset())

    def _fire_before(self, state: UserState, limit: int, changes: list[Change]) -> None:
        fired, due = None, state.due
        while True:
            instant = self.next_due(state) if state.waiting else due.earliest
            if instant is None or instant >= limit:
                return
            if fired is not None and instant <= fired:
                raise StuckTimer(f"due at {instant} again after {fired} was fired")
            fired = state.clock = max(instant, state.clock)
            self._evaluate(state, self._collect(state, state.clock, frozenset()), "TIMER", changes)

    def _collect(self, state: UserState, now: int, spared: frozenset[str]) -> int:
        """Let everything go that is due at `now` or before, but for the `spared`; returns the segments that hang on it."""
        dirty = 0
        for leaf_id in state.due.due(now):
            leaf = self.event_leaves.get(leaf_id) or self.trait_leaves.get(leaf_id)
            if leaf is None:
                state.due.note(leaf_id, None)  # of a plan that is no more
            elif leaf_id in spared:
                dirty |= leaf.mask
            else:
                dirty |= leaf.expire(state, now)
        if state.waiting and state.waiting[0].time <= now:
            dirty |= admit_waiting(state, self.event_leaves, now)
        return dirty

    def _take_over(self, state: UserState, now: int) -> None:
        lasting = set(self.leaves)
        state.accumulators.restrict(lasting)
        state.waiting = [match for match in state.waiting if match.leaf in self.event_leaves]
        admit_waiting(state, self.event_leaves, now)
        state.due.clear()
        for event_leaf in self.event_leaves.values():
            event_leaf.refresh(state, now)
        for trait_leaf in self.trait_leaves.values():
            trait_leaf.refresh(state, now)

    def _evaluate(self, state: UserState, dirty: int, cause: Cause, changes: list[Change]) -> None:
        """Ask the dirty segments, and those built on one that changed, in the plan's order."""
        if not dirty:
            return
        now, memberships = state.clock, state.memberships
        if dirty == self._everything:  # another plan: no bit has to be looked for
            for compiled in self.segments:
                self._ask(compiled, state, now, memberships, cause, changes)
            return
        while dirty:
            lowest = dirty & -dirty
            dirty ^= lowest
            dirty |= self._ask(self.segments[lowest.bit_length() - 1], state, now, memberships, cause, changes)

    def _ask(
        self,
        compiled: CompiledSegment,
        state: UserState,
        now: int,
        memberships: dict[str, Membership],
        cause: Cause,
        changes: list[Change],
    ) -> int:
        """Ask one segment; returns those that are built on it if its answer is another one."""
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


def _leaves(route: Route) -> tuple[FoldingLeaf, ...]:
    return cast("tuple[FoldingLeaf, ...]", route.leaves)  # a plan's events are led to nothing else


def _is_blank(state: UserState) -> bool:
    """Whether nothing is kept about the user yet."""
    return (
        state.traits_json == _NO_TRAITS
        and state.account is None
        and state.due.earliest is None
        and not (state.waiting or state.lists or state.memberships or state.accumulators)
    )


def _is_open_at_first(compiled: CompiledSegment) -> bool:
    """Whether to ask about somebody of whom nothing is kept: if not, they are no member, whoever they are and whatever time it is.

    What is kept from then on makes its own segments be asked.
    """
    blank = UserState(known=True)
    return (
        compiled.holds(blank, 0)
        or compiled.tree.next_change(blank, 0) is not None
        or any(isinstance(leaf, Bucket) for leaf in leaves(compiled.segment.where))
    )
