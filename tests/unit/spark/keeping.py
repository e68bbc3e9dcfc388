"""What the tests of computed traits share: definitions as text, events as records, a partition's state in memory."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from starling_spark.jobs.profiles.definitions.entries import changed, first_entries
from starling_spark.jobs.profiles.definitions.in_force import Definition, Trait, read_definitions
from starling_spark.jobs.profiles.definitions.plans import compile_entries
from starling_spark.jobs.profiles.fold.bucket import Clock, Computed, Unfoldable
from starling_spark.jobs.profiles.fold.chunks import Chunk, Seeds, UserHits
from starling_spark.jobs.profiles.fold.folding import BucketFold
from starling_spark.jobs.profiles.fold.histories import fold_history
from starling_spark.jobs.profiles.fold.matches import Event
from starling_spark.jobs.profiles.fold.wheel import Slot

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
ORDERS = {"event": "Order Completed"}
PROFILE = {"city": "Rome", "limit": 20}
"""The traits of every user's profile."""


def defined(key: str, document: Mapping[str, Any], *former: Mapping[str, Any], workspace: str = "w") -> Definition:
    """A definition in force; its version counts the earlier ones."""
    return Definition(workspace, key, len(former) + 1, json.dumps(document), tuple(json.dumps(text) for text in former))


def traits(*definitions: Definition) -> tuple[Trait, ...]:
    compiled, problems = read_definitions(definitions)
    assert problems == ()
    return compiled


def event(name: str, time_ms: int, properties: Mapping[str, Any]) -> Event:
    return Event(name, time_ms, (json.dumps(properties), '{"app": {"version": "2.1.0"}}', json.dumps(PROFILE)))


class MemoryStore:
    """A `Store` in memory."""

    def __init__(self) -> None:
        self.kept_clock = Clock()
        self.users: dict[str, bytes] = {}
        self.slots: dict[Slot, list[str]] = {}
        self.published: list[str] = []
        self.lists: dict[int, list[str]] = {}

    def opened(self, _bucket: int) -> AbstractContextManager[None]:
        return nullcontext()

    def clock(self) -> Clock:
        return self.kept_clock

    def put_clock(self, clock: Clock) -> None:
        self.kept_clock = clock

    def read_users(self, users: Sequence[str]) -> list[bytes | None]:
        return [self.users.get(user) for user in users]

    def put_users(self, states: Mapping[str, bytes | None]) -> None:
        for user, state in states.items():
            if state is None:
                self.users.pop(user, None)
            else:
                self.users[user] = state

    def slot(self, slot: Slot) -> list[str]:
        return self.slots.get(slot, [])

    def put_slot(self, slot: Slot, users: list[str]) -> None:
        if users:
            self.slots[slot] = users
        else:
            self.slots.pop(slot, None)

    def take_published(self) -> list[str]:
        taken, self.published = self.published, []
        return taken

    def names(self) -> list[str]:
        return list(self.users)

    def put_list(self, number: int, users: list[str]) -> None:
        self.lists[number] = users

    def take_list(self, number: int) -> list[str]:
        return self.lists.pop(number)


class Partition:
    """One partition over many micro-batches. Events are (user, time, name, properties)."""

    def __init__(self, *definitions: Definition, published_to_ms: int = 0, with_step: bool = False) -> None:
        self.step = int(with_step)
        self.entries = first_entries(definitions, self.step)
        self.plans = compile_entries(self.entries, self.step, is_complete=not with_step)
        self.published_to_ms = published_to_ms
        self.store = MemoryStore()
        self._batches = 0

    def begin_step(self, *definitions: Definition) -> None:
        """Start again with the same state and other definitions, which are in force from the first visit on."""
        self.step += 1
        self.entries = changed(self.entries, definitions, self.step)
        self.plans = compile_entries(self.entries, self.step, is_complete=False)

    def restart_after_step(self) -> None:
        """Start again with the same state when the step is complete."""
        self.plans = compile_entries(self.entries, self.step)

    def histories(self, chunks: Iterable[Chunk]) -> dict[str, bytes]:
        """Return by user the history of the leaves that the step adds, folded from chunks of the time before it."""
        if "w" not in self.plans:
            return {}
        measures, fresh = self.plans["w"].measures, self.plans["w"].fresh_leaves()
        numbers = {number for number, leaf in enumerate(measures.leaves) if leaf.id in fresh}
        runs: dict[str, list[UserHits]] = {}
        for chunk in chunks:
            for name, hits in chunk.users.items():
                only = [(time, now, [one for one in found if one[0] in numbers]) for time, now, found in hits.hits]
                runs.setdefault(name, []).append(UserHits(hits.correlation_id, [hit for hit in only if hit[2]]))
        folded = {name: fold_history(measures, name, own) for name, own in runs.items()}
        assert not any(one.lost for one in folded.values())
        return {name: one.state for name, one in folded.items() if one.state is not None}

    def batch(self, events: Iterable[tuple[str, int, str, Mapping[str, Any]]], now_ms: int = 0) -> list[Computed]:
        """Return the output of a micro-batch; the event clock advances to `now_ms` at its end."""
        return self.fold([self.chunk(events, now_ms)])

    def chunk(self, events: Iterable[tuple[str, int, str, Mapping[str, Any]]], now_ms: int = 0) -> Chunk:
        """As `batch`, not folded yet."""
        chunk = Chunk(0, "c-clock", {}, [])
        for user, time_ms, name, properties in events:
            chunk.now_ms = max(chunk.now_ms, time_ms)
            self.hit(chunk, user, event(name, time_ms, properties))
        chunk.now_ms = max(chunk.now_ms, now_ms)
        return chunk

    def hit(self, chunk: Chunk, user: str, happened: Event) -> None:
        """Put an event into a chunk, at the chunk's stream time."""
        matches = self.plans["w"].measures.matches(happened) if "w" in self.plans else []
        if matches:
            hits = chunk.users.setdefault(f"w/{user}", UserHits("", []))
            hits.correlation_id = f"c-{user}"
            hits.hits.append((happened.time_ms, chunk.now_ms, matches))

    def fold(self, chunks: Sequence[Chunk]) -> list[Computed]:
        return computed(self.outputs(chunks))

    def outputs(self, chunks: Sequence[Chunk]) -> list[Computed | Unfoldable]:
        self._batches += 1
        folding = BucketFold(self.plans, self.store, self.published_to_ms)
        for chunk in chunks:
            folding.take(chunk)
        found = list(folding.finish(1_000_000 * self._batches))
        waiting = [name for number, names in self.store.lists.items() if number < 0 for name in names]
        assert folding.counts == (len(self.store.users), len(waiting))
        return found


def seeded(states: Mapping[str, bytes], now_ms: int = 0) -> Chunk:
    """Return a chunk of histories alone, which have reached that stream time."""
    return Chunk(now_ms, "", {}, [], seeds=Seeds(dict(states), now_ms=now_ms))


def computed(finished: Iterable[Computed | Unfoldable]) -> list[Computed]:
    """Return the values alone."""
    return [one for one in finished if isinstance(one, Computed)]


def values(published: Iterable[Computed]) -> dict[tuple[str, str], Any]:
    """Return (user, trait) -> value. A value that is published twice in one micro-batch is an error."""
    found: dict[tuple[str, str], Any] = {}
    for computed in published:
        name = (computed.user.removeprefix("w/"), computed.trait.key)
        assert name not in found
        found[name] = None if computed.value is None else json.loads(computed.value)
    return found
