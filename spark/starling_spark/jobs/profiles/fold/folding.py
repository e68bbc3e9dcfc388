"""Pure core: one bucket of a micro-batch: fold its matches, then publish the values that changed at stream time.

A bucket has a part of the users of one Kafka partition, and the stream time of the partition: the highest event time in it,
advanced by clock records, or the wall clock when that is the configured clock.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from starling_common.failpoints.raising import Raising
from starling_common.failures import is_of_installation, poison
from starling_common.outcome import Refused
from starling_common.values import deterministic_id
from starling_spark.jobs.profiles.definitions.in_force import Trait
from starling_spark.jobs.profiles.definitions.plans import TraitPlan
from starling_spark.jobs.profiles.fold.bucket import UNCOUNTED, Computed, Store, Unfoldable
from starling_spark.jobs.profiles.fold.chunks import Chunk, Seeds, UserHits, decode_chunk, workspace_of
from starling_spark.jobs.profiles.fold.steps import advance, forget_broken_leaves, has_fresh_matches, merge_seed
from starling_spark.jobs.profiles.fold.traits import (
    NEVER,
    UserTraits,
    Value,
    changed_values,
    decode_user,
    encode_user,
    mark_due,
)
from starling_spark.jobs.profiles.fold.visits import Visits, visits
from starling_spark.jobs.profiles.fold.wheel import Slot, reached, slot_for

MAX_USERS_IN_MEMORY = 20_000
"""States in memory while one bucket's batch is folded, and those of one chunk; a backlog of millions is folded in passes."""

_VISITED = "profiles-visit"
"""The correlation id of the values of a visit in a partition without a record."""
_READ_AHEAD = 1_000
"""Number of users whose states are read at once."""


class _LoadedUser(msgspec.Struct):
    """A user's state in memory. `numbers`: the leaves and marks that matched since it was loaded."""

    traits: UserTraits
    plan: TraitPlan
    numbers: set[int]
    is_stored: bool


class BucketFold:
    """Folds one bucket of one micro-batch: `fold` each chunk, then `finish` once."""

    def __init__(
        self,
        plans: Mapping[str, TraitPlan],
        store: Store,
        published_to_ms: int = 0,
        raising: Raising | None = None,
    ) -> None:
        """`plans`: by workspace. `published_to_ms`: the partition's stream time at the last value of an earlier query.

        `raising`: the failpoint of the process, which may be `fold` or `values`.
        """
        self._raising = raising
        self._plans = plans
        self._last_step = max((plan.step for plan in plans.values()), default=0)
        self._store = store
        self._published_to_ms = published_to_ms
        self._clock = store.clock()
        if self._clock.users == UNCOUNTED:
            self._clock.users = 0 if self._clock.is_new else sum(1 for _ in store.names())
        self._republishes = self._clock.is_new or self._clock.has_published
        self._visits = 0
        self._lost: dict[tuple[str, int], Unfoldable] = {}
        """Events of histories that cannot be folded, and histories that cannot be merged, by user and time."""
        self._waiting: list[str] = []
        """Users with their first match of a trait that is not in force."""
        self._users: dict[str, _LoadedUser] = {}
        self._read: dict[str, bytes | None] = {}
        """Stored states of users that are about to be loaded."""
        self._touched: dict[str, str] = {}
        self._filings: dict[Slot, list[str]] = {}
        self._at = ""
        """The user whose events are folded, or whose state is encoded."""
        self._fragile: set[str] = set()
        """Users at whom the fold has raised."""
        self._since: list[bytes] = []
        """The chunks since states were last stored; they are folded again when one of them raises."""
        self._before = (self._clock.now_ms, self._clock.moved_by, dict(self._touched))

    def fold(self, chunk: Chunk, encoded: bytes) -> list[Unfoldable]:
        """Fold a chunk, and return its events that make the fold raise twice; they change nothing. `encoded`: its bytes.

        Raises: failures of the installation.
        """
        try:
            if len(self._users) >= MAX_USERS_IN_MEMORY:
                self._checkpoint()
            unfoldable = self._take(chunk)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            return self._fold_again(chunk)
        self._since.append(encoded)
        return unfoldable

    def _fold_again(self, chunk: Chunk) -> list[Unfoldable]:
        """Fold the chunks since states were last stored again, and this one, users that raise event by event; store the states."""
        while True:
            fragile = self._raising_users(chunk) - self._fragile
            self._fragile |= fragile
            self._users.clear()
            self._clock.now_ms, self._clock.moved_by, self._touched = *self._before[:2], dict(self._before[2])
            try:
                for encoded in self._since:
                    self._take(decode_chunk(encoded))
                unfoldable = self._take(chunk)
                self._checkpoint()
            except Exception as cause:
                if is_of_installation(cause) or not fragile:
                    raise
            else:
                return unfoldable

    def _raising_users(self, chunk: Chunk) -> set[str]:
        """Return the user at whom the fold raised, and others of the chunk at whom it raises. All states are invalid afterwards."""
        found = {self._at}
        for name, hits in chunk.users.items():
            try:
                self.take(Chunk(0, "", {name: hits}, []))
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                found.add(name)
        return found

    def _checkpoint(self) -> None:
        self._store_users(self._encoded_users())
        self._since.clear()
        self._before = (self._clock.now_ms, self._clock.moved_by, dict(self._touched))

    def take(self, chunk: Chunk) -> None:
        """Fold a chunk's hits, and advance stream time; it never decreases."""
        began_ms = self._clock.now_ms
        self._read_ahead(chunk.users)
        for name, user_hits in chunk.users.items():
            self._at = name
            self._touched[name] = user_hits.correlation_id
            user = self._user(name)
            fold, state, numbers = user.plan.measures.fold, user.traits.state, user.numbers
            first_mark = len(user.plan.measures.leaves)
            for time_ms, now_ms, matches in user_hits.hits:
                if self._raising is not None:
                    self._raising.passed("fold", f"{name} {time_ms} {matches}".encode())
                fold(state, (time_ms, matches), max(began_ms, now_ms))
                for number, payload in matches:
                    # A leaf ignores an event without its property; a mark has no payload.
                    if payload is not None or number >= first_mark:
                        numbers.add(number)
        self._take_seeds(chunk.seeds, max(began_ms, chunk.now_ms))
        if chunk.visits:
            self._visits = chunk.visits
            self._clock.moved_by = self._clock.moved_by or _VISITED
        if chunk.now_ms >= self._clock.now_ms:
            self._clock.now_ms, self._clock.moved_by = chunk.now_ms, chunk.moved_by

    def _take_seeds(self, seeds: Seeds, now_ms: int) -> None:
        """Merge histories into the states of users, and put the step in force for them; a repeated seed changes nothing.

        `now_ms`: stream time, which the histories may advance in a partition without records.
        """
        self._read_ahead(seeds.states)
        for name, state in seeds.states.items():
            if workspace_of(name) not in self._plans:
                continue
            user = self._user(name)
            if user.traits.step >= user.plan.step:
                continue
            try:
                merge_seed(user.traits, user.plan, state, now_ms)
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                self._lost[name, now_ms] = Unfoldable(name, now_ms, _VISITED, poison(cause))
            advance(user.traits, user.plan, user.plan.step, now_ms)
            self._touched.setdefault(name, self._clock.moved_by or _VISITED)
        for hit in seeds.lost:
            refused = Refused(hit.code, hit.message)
            self._lost[hit.user, hit.time_ms] = Unfoldable(hit.user, hit.time_ms, hit.correlation_id, refused)

    def _take(self, chunk: Chunk) -> list[Unfoldable]:
        """As `take`, event by event for the users at whom the fold has raised. Return the events that raise."""
        fragile = self._fragile.intersection(chunk.users)
        if not fragile:
            self.take(chunk)
            return []
        unfoldable = [event for name in sorted(fragile) for event in self._take_each(name, chunk.users[name])]
        others = {name: hits for name, hits in chunk.users.items() if name not in fragile}
        self.take(msgspec.structs.replace(chunk, users=others))
        return unfoldable

    def _take_each(self, name: str, user_hits: UserHits) -> Iterator[Unfoldable]:
        """Yield the events that raise, or make the state unstorable; they change nothing. Each event needs a copy of the state."""
        for hit in user_hits.hits:
            user, touched = self._user(name), self._touched.get(name)
            kept, numbers = encode_user(user.traits), set(user.numbers)
            try:
                self.take(Chunk(0, "", {name: UserHits(user_hits.correlation_id, [hit])}, []))
                encode_user(user.traits)
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                user.traits, user.numbers = decode_user(kept), numbers
                self._touch(name, touched)
                yield Unfoldable(name, hit[0], user_hits.correlation_id, poison(cause))

    def _touch(self, name: str, correlation_id: str | None) -> None:
        if correlation_id is None:
            self._touched.pop(name, None)
        else:
            self._touched[name] = correlation_id

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many users have a stored state, and how many wait for the end of the step."""
        return self._clock.users, self._clock.waiting_users

    def finish(self, wall_clock_micros: int) -> Iterator[Computed | Unfoldable]:
        """Yield every changed value at the current stream time. The state is stored when the iterator is exhausted.

        A user whose values or state make the code raise is yielded as unfoldable; published values and the stored state stay.
        """
        clock = self._clock
        yield from self._lost.values()
        # The normalizer drops a value that is older than the published one, and the clock records up to it may be deleted.
        clock.now_ms = max(clock.now_ms, self._published_to_ms)
        self._open_slots()
        self._visit()
        published = self._take_published()
        clock.received_at = max(clock.received_at, wall_clock_micros - 1)
        names, sequence = list(self._touched), clock.sequence + 1
        for number, (name, request) in enumerate(self._touched.items()):
            # The wall clock and a visit have no request: the values of a user at one instant share an id of their own.
            correlation_id = request or deterministic_id("timer", name, clock.now_ms)
            yield from self._make_room(MAX_USERS_IN_MEMORY)
            if number % _READ_AHEAD == 0:
                self._read_ahead(names[number : number + _READ_AHEAD])
            user, failed = self._user(name), dict[int, Exception]()
            values = self._values(name, user, failed)
            if isinstance(values, Refused):
                yield Unfoldable(name, clock.now_ms, correlation_id, values)
                continue
            for index, text in values + _withdrawn(user, values, failed) if name in published else values:
                clock.received_at += 1
                clock.sequence = sequence
                yield Computed(name, user.plan.traits[index], text, clock.now_ms, clock.received_at, correlation_id, sequence)
            for index, cause in failed.items():
                yield Unfoldable(name, clock.now_ms, correlation_id, _of_trait(user.plan.traits[index], cause))
            self._file(name, user.traits)
        yield from self._make_room(0)
        self._store_filings()
        self._store_waiting()
        self._store.put_clock(clock)

    def _values(self, name: str, user: _LoadedUser, failed: dict[int, Exception]) -> list[Value] | Refused:
        """Return the changed values of a user, or why they cannot be computed at all."""
        now_ms = self._clock.now_ms
        try:
            if self._raising is not None:
                self._raising.passed("values", name.encode())
            if user.traits.step < self._clock.step:
                advance(user.traits, user.plan, self._clock.step, now_ms)
            mark_due(user.traits, user.plan, user.numbers, now_ms)
            user.numbers.clear()
            self._note_waiting(name, user)
            return changed_values(user.traits, user.plan, now_ms, failed, republish=self._republishes)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            return poison(cause)

    def _take_published(self) -> set[str]:
        """Return the users with values of earlier queries, when all of their values are known: not before the end of a step."""
        clock = self._clock
        clock.has_published |= self._republishes
        if not clock.has_published or clock.step < self._last_step:
            return set()
        clock.has_published = clock.visits is not None
        published = {name for name in self._store.take_published() if workspace_of(name) in self._plans}
        for name in published:
            self._touched.setdefault(name, clock.moved_by)
        return published

    def _note_waiting(self, name: str, user: _LoadedUser) -> None:
        """Note a user who may have a value of the next step, and for whom no history may come."""
        if user.traits.step < user.plan.step and not user.traits.is_waiting and has_fresh_matches(user.traits, user.plan):
            user.traits.is_waiting = True
            self._waiting.append(name)

    def _store_waiting(self) -> None:
        if self._waiting:
            self._clock.waiting += 1
            self._clock.waiting_users += len(self._waiting)
            self._store.put_list(-self._clock.waiting, self._waiting)

    def _visit(self) -> None:
        """Touch the users of the next visit. The first one completes the step of the bucket."""
        clock = self._clock
        if self._visits and clock.step < self._last_step:
            clock.step = self._last_step
            names = {name for number in range(clock.waiting) for name in self._store.take_list(-1 - number)}
            clock.waiting = clock.waiting_users = 0
            if any(plan.concerns_all for plan in self._plans.values()):
                names.update(self._store.names())
            clock.visits = Visits(0, self._visits)
            for number, users in enumerate(visits(names, self._visits)):
                self._store.put_list(number, users)
        elif not self._visits:
            return
        if clock.visits is not None:
            for name in self._store.take_list(clock.visits.next_visit):
                self._touched.setdefault(name, clock.moved_by)
            clock.visits.next_visit += 1
            if clock.visits.next_visit >= clock.visits.count:
                clock.visits = None

    def _user(self, name: str) -> _LoadedUser:
        user = self._users.get(name)
        if user is None:
            if name not in self._read:
                self._read_ahead((name,))
            data = self._read.pop(name)
            plan = self._plans[workspace_of(name)]
            state = UserTraits(step=self._clock.step, written_at=plan.step) if data is None else decode_user(data)
            if state.written_at < plan.step:
                forget_broken_leaves(state, plan)
            user = self._users[name] = _LoadedUser(state, plan, set(), data is not None)
        return user

    def _read_ahead(self, names: Iterable[str]) -> None:
        """Read the stored states of users that are not in memory. They are decoded one by one, because that may raise."""
        missing = [name for name in names if name not in self._users]
        states = [None] * len(missing) if self._clock.is_new else self._store.read_users(missing)
        self._read.update(zip(missing, states, strict=True))

    def _make_room(self, most: int) -> Iterator[Unfoldable]:
        """Store the users in memory if they are as many; yield those whose state cannot be encoded, and keep their stored state."""
        if not self._users or len(self._users) < most:
            return
        failed: dict[str, Exception] = {}
        self._store_users(self._encoded_users(failed))
        for name, cause in failed.items():
            yield Unfoldable(name, self._clock.now_ms, self._touched.get(name, ""), poison(cause))

    def _encoded_users(self, failed: dict[str, Exception] | None = None) -> dict[str, bytes | None]:
        encoded: dict[str, bytes | None] = {}
        for name, user in self._users.items():
            self._at = name
            try:
                mark_due(user.traits, user.plan, user.numbers, self._clock.now_ms)
                encoded[name] = None if user.traits.is_empty else encode_user(user.traits)
            except Exception as cause:
                if failed is None or is_of_installation(cause):
                    raise
                failed[name] = cause
        return encoded

    def _store_users(self, encoded: Mapping[str, bytes | None]) -> None:
        self._store.put_users(encoded)
        self._clock.users += sum((state is not None) - self._users[name].is_stored for name, state in encoded.items())
        self._users.clear()
        self._clock.is_new = False

    def _open_slots(self) -> None:
        clock = self._clock
        for slot in reached(clock.slots, clock.now_ms):
            clock.slots.discard(slot)
            names = self._store.slot(slot)
            self._read_ahead(names)
            for name in names:
                user = self._user(name).traits
                if user.filed == slot.start_ms:  # otherwise the user was moved to an earlier slot
                    user.filed = None
                    self._touched.setdefault(name, clock.moved_by)
            self._store.put_slot(slot, [])

    def _file(self, name: str, user: UserTraits) -> None:
        due = min(user.due.values(), default=NEVER)
        if due == NEVER:
            return
        slot = slot_for(due, self._clock.now_ms)
        # An earlier slot is sufficient: the user is filed again when it opens.
        if user.filed is None or user.filed > slot.start_ms:
            user.filed = slot.start_ms
            self._filings.setdefault(slot, []).append(name)

    def _store_filings(self) -> None:
        for slot, names in self._filings.items():
            filed = self._store.slot(slot) if slot in self._clock.slots else []
            self._store.put_slot(slot, filed + names)
            self._clock.slots.add(slot)


def _of_trait(trait: Trait, cause: Exception) -> Refused:
    why = poison(cause)
    return Refused(why.code, f"the computed trait {trait.key}: {why.message}")


def _withdrawn(user: _LoadedUser, values: Iterable[Value], failed: Collection[int]) -> list[Value]:
    """Return no value for each trait without a published one: a deleted event may have produced that of an earlier query."""
    indexes = {index for index, _ in values}.union(failed, user.traits.published)
    return [(index, None) for index in range(len(user.plan.traits)) if index not in indexes]
