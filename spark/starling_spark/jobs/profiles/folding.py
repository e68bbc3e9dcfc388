"""Pure core: one Kafka partition's part of a micro-batch: fold its matches, then tell the values that changed at stream time.

A partition's stream time is its own, as everywhere in the product: the highest event time seen in it, moved on by clock
records (or the wall clock, where that is the clock).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from starling_common.values import split_key
from starling_spark.jobs.profiles.definitions import Trait
from starling_spark.jobs.profiles.plans import TraitPlan
from starling_spark.jobs.profiles.traits import UserTraits, Value, decode_user, encode_user, look_at, settle
from starling_spark.jobs.profiles.wheel import Slot, reached, slot_for

MOST_USERS_AT_HAND = 20_000
"""States kept in memory within one partition's batch; a backlog of millions is folded in rounds of so many."""

Hit = tuple[int, int, list[tuple[int, Any]]]
"""One event that counts: its time, the stream time then, and what each leaf takes of it."""


class UserHits(msgspec.Struct, array_like=True, gc=False):
    """One user's events, in the order of arrival; the correlation id is the last one's."""

    correlation_id: str
    hits: list[Hit]


class Refusal(msgspec.Struct, array_like=True):
    """A dead letter, ready to write."""

    key: bytes | None
    value: bytes
    timestamp_ms: int
    correlation_id: str


class Chunk(msgspec.Struct, array_like=True):
    """What a run of records of one partition came to. `users`: by `workspace/user`.

    `moved_by`: correlation id of what moved its stream time last.
    """

    now_ms: int
    moved_by: str
    users: dict[str, UserHits]
    refused: list[Refusal]


class Clock(msgspec.Struct, array_like=True):
    """A partition's own state. `received_at` (microseconds) of the last value told: it only grows.

    `is_new`: no user is kept yet, so none needs to be looked up, and earlier queries may have published values that no longer
    hold; most of a history is read then.
    """

    now_ms: int = 0
    moved_by: str = ""
    received_at: int = 0
    slots: set[Slot] = msgspec.field(default_factory=set)
    is_new: bool = True


class Computed(NamedTuple):
    """A value to tell, as JSON text; `as_of` is the stream time, `received_at` the wall clock in microseconds."""

    user: str
    trait: Trait
    value: str | None
    as_of: int
    received_at: int
    correlation_id: str


class Store(Protocol):
    """A partition's state, kept between micro-batches."""

    def clock(self) -> Clock:
        """The partition's own state; a new one at first."""

    def put_clock(self, clock: Clock) -> None:
        """Keep it."""

    def user(self, user: str) -> bytes | None:
        """A user's state, None when there is none."""

    def put_user(self, user: str, state: bytes | None) -> None:
        """Keep it; None forgets the user."""

    def slot(self, slot: Slot) -> list[str]:
        """Who is filed there."""

    def put_slot(self, slot: Slot, users: list[str]) -> None:
        """Keep it; an empty list forgets the slot."""

    def take_published(self) -> Iterable[str]:
        """Users for whom earlier queries published values from events that are deleted by now; forgotten once read."""


class _AtHand(msgspec.Struct):
    """A user's state in memory. `numbers`: of the leaves and marks that took something since it was read."""

    state: UserTraits
    plan: TraitPlan
    numbers: set[int]


class PartitionFold:
    """One partition's part of one micro-batch: `take` each chunk, then `finish` once."""

    def __init__(self, plans: Mapping[str, TraitPlan], store: Store, published_to_ms: int = 0) -> None:
        """`plans`: by workspace. `published_to_ms`: the partition's stream time at the last value of an earlier query."""
        self._plans = plans
        self._store = store
        self._published_to_ms = published_to_ms
        self._clock = store.clock()
        self._republishes = self._clock.is_new
        self._users: dict[str, _AtHand] = {}
        self._touched: dict[str, str] = {}
        self._filings: dict[Slot, list[str]] = {}

    def take(self, chunk: Chunk) -> None:
        """Fold a chunk's hits, and move stream time on; it never goes back."""
        began_ms = self._clock.now_ms
        for name, user_hits in chunk.users.items():
            self._touched[name] = user_hits.correlation_id
            user = self._user(name)
            fold, kept, numbers = user.plan.measures.fold, user.state.kept, user.numbers
            first_mark = len(user.plan.measures.leaves)
            for time_ms, now_ms, matches in user_hits.hits:
                fold(kept, (time_ms, matches), max(began_ms, now_ms))
                for number, payload in matches:
                    # No leaf takes an event that lacks its property; a mark takes nothing of any event.
                    if payload is not None or number >= first_mark:
                        numbers.add(number)
        if chunk.now_ms >= self._clock.now_ms:
            self._clock.now_ms, self._clock.moved_by = chunk.now_ms, chunk.moved_by

    def finish(self, wall_clock_micros: int) -> Iterator[Computed]:
        """Everything that changed, at the stream time reached; the state is stored when the iterator is used up."""
        clock = self._clock
        # The normalizer drops a value that is older than the published one, and the clock records behind that may be deleted.
        clock.now_ms = max(clock.now_ms, self._published_to_ms)
        self._open_slots()
        published = self._take_published()
        clock.received_at = max(clock.received_at, wall_clock_micros - 1)
        for name, correlation_id in self._touched.items():
            user = self._user(name)
            look_at(user.state, user.plan, user.numbers, clock.now_ms)
            user.numbers.clear()
            values = settle(user.state, user.plan, clock.now_ms, republish=self._republishes)
            for index, text in values + _withdrawn(user.plan, values) if name in published else values:
                clock.received_at += 1
                yield Computed(name, user.plan.traits[index], text, clock.now_ms, clock.received_at, correlation_id)
            self._file(name, user.state)
        self._make_room(0)
        self._store_filings()
        self._store.put_clock(clock)

    def _take_published(self) -> set[str]:
        if not self._republishes:
            return set()
        published = {name for name in self._store.take_published() if _workspace(name) in self._plans}
        for name in published:
            self._touched.setdefault(name, self._clock.moved_by)
        return published

    def _user(self, name: str) -> _AtHand:
        user = self._users.get(name)
        if user is None:
            self._make_room(MOST_USERS_AT_HAND)
            data = None if self._clock.is_new else self._store.user(name)
            state = UserTraits() if data is None else decode_user(data)
            user = self._users[name] = _AtHand(state, self._plans[_workspace(name)], set())
        return user

    def _make_room(self, most: int) -> None:
        if not self._users or len(self._users) < most:
            return
        for name, user in self._users.items():
            look_at(user.state, user.plan, user.numbers, self._clock.now_ms)
            self._store.put_user(name, None if user.state.is_empty else encode_user(user.state))
        self._users.clear()
        self._clock.is_new = False

    def _open_slots(self) -> None:
        clock = self._clock
        for slot in reached(clock.slots, clock.now_ms):
            clock.slots.discard(slot)
            for name in self._store.slot(slot):
                user = self._user(name).state
                if user.filed == slot.start_ms:  # else it was filed anew since, nearer
                    user.filed = None
                    self._touched.setdefault(name, clock.moved_by)
            self._store.put_slot(slot, [])

    def _file(self, name: str, user: UserTraits) -> None:
        due = min(user.due.values(), default=None)
        if due is None:
            return
        slot = slot_for(due, self._clock.now_ms)
        # Standing in a slot that comes up earlier is well: the user is filed anew when it does.
        if user.filed is None or user.filed > slot.start_ms:
            user.filed = slot.start_ms
            self._filings.setdefault(slot, []).append(name)

    def _store_filings(self) -> None:
        for slot, names in self._filings.items():
            there = self._store.slot(slot) if slot in self._clock.slots else []
            self._store.put_slot(slot, there + names)
            self._clock.slots.add(slot)


def _withdrawn(plan: TraitPlan, values: Iterable[Value]) -> list[Value]:
    """No value for each trait that has none of these: a deleted event may have given it one."""
    indexes = {index for index, _ in values}
    return [(index, None) for index in range(len(plan.traits)) if index not in indexes]


def _workspace(user: str) -> str:
    return split_key(user.encode())[0]
