"""Pure core: one Kafka partition's part of a micro-batch: fold its matches, then tell the values that changed at stream time.

A partition's stream time is its own, as everywhere in the product: the highest event time seen in it, moved on by clock
records (or the wall clock, where that is the clock).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from starling_spark.profiles.definitions import Trait
from starling_spark.profiles.traits import UserTraits, Value, decode_user, encode_user, fold, settle
from starling_spark.profiles.wheel import Slot, reached, slot_for

MOST_USERS_AT_HAND = 20_000
"""States kept in memory within one partition's batch; a backlog of millions is folded in rounds of so many."""


class Hit(msgspec.Struct, array_like=True):
    """One event that counts: for whom (`workspace/user`), when, at which stream time, and what each trait takes of it."""

    user: str
    event_ms: int
    now_ms: int
    correlation_id: str
    matches: list[tuple[int, float | str | bool | None]]


class Refusal(msgspec.Struct, array_like=True):
    """A dead letter, ready to write."""

    key: bytes | None
    value: bytes
    timestamp_ms: int
    correlation_id: str


class Chunk(msgspec.Struct, array_like=True):
    """What a run of records of one partition came to. `moved_by`: correlation id of what moved its stream time last."""

    now_ms: int
    moved_by: str
    hits: list[Hit]
    refused: list[Refusal]


class Clock(msgspec.Struct, array_like=True):
    """A partition's own state. `received_at` (microseconds) of the last value told: it only grows."""

    now_ms: int = 0
    moved_by: str = ""
    received_at: int = 0
    slots: set[Slot] = msgspec.field(default_factory=set)


class Computed(NamedTuple):
    """A value to tell; `as_of` is the stream time, `received_at` the wall clock in microseconds."""

    user: str
    trait: Trait
    value: Value
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


class PartitionFold:
    """One partition's part of one micro-batch: `take` each chunk, then `finish` once."""

    def __init__(self, traits: Sequence[Trait], store: Store) -> None:
        self._traits = traits
        self._store = store
        self._clock = store.clock()
        self._users: dict[str, UserTraits] = {}
        self._touched: dict[str, str] = {}
        self._filings: dict[Slot, list[str]] = {}

    def take(self, chunk: Chunk) -> None:
        """Fold a chunk's hits, and move stream time on; it never goes back."""
        clock = self._clock
        for hit in chunk.hits:
            clock.now_ms = max(clock.now_ms, hit.now_ms)
            user = self._user(hit.user)
            self._touched[hit.user] = hit.correlation_id
            for index, payload in hit.matches:
                fold(user, (index, self._traits[index]), (hit.event_ms, payload), clock.now_ms)
        if chunk.now_ms >= clock.now_ms:
            clock.now_ms, clock.moved_by = chunk.now_ms, chunk.moved_by

    def finish(self, wall_clock_micros: int) -> Iterator[Computed]:
        """Everything that changed, at the stream time reached; the state is stored when the iterator is used up."""
        clock = self._clock
        self._open_slots()
        clock.received_at = max(clock.received_at, wall_clock_micros - 1)
        for name, correlation_id in self._touched.items():
            user = self._user(name)
            for index, value in settle(user, self._traits, clock.now_ms):
                clock.received_at += 1
                yield Computed(name, self._traits[index], value, clock.now_ms, clock.received_at, correlation_id)
            self._file(name, user)
        self._make_room(0)
        self._store_filings()
        self._store.put_clock(clock)

    def _user(self, name: str) -> UserTraits:
        user = self._users.get(name)
        if user is None:
            self._make_room(MOST_USERS_AT_HAND)
            data = self._store.user(name)
            user = self._users[name] = UserTraits() if data is None else decode_user(data)
        return user

    def _make_room(self, most: int) -> None:
        if len(self._users) < max(most, 1):
            return
        for name, user in self._users.items():
            self._store.put_user(name, encode_user(user) if user.kept else None)
        self._users.clear()

    def _open_slots(self) -> None:
        clock = self._clock
        for slot in reached(clock.slots, clock.now_ms):
            clock.slots.discard(slot)
            for name in self._store.slot(slot):
                user = self._user(name)
                if user.filed == slot.start_ms:  # else it was filed anew since, nearer
                    user.filed = None
                    self._touched.setdefault(name, clock.moved_by)
            self._store.put_slot(slot, [])

    def _file(self, name: str, user: UserTraits) -> None:
        due = user.due
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
