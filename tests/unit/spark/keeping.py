"""What the tests of computed traits share: definitions as text, events as records, a partition's state in memory."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starling_spark.profiles.definitions import Definition, Trait, compile_definitions
from starling_spark.profiles.folding import Chunk, Clock, Computed, Hit, PartitionFold
from starling_spark.profiles.matching import EventView, Matcher
from starling_spark.profiles.wheel import Slot

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
ORDERS = {"event": "Order Completed"}


def defined(key: str, document: Mapping[str, Any], *former: Mapping[str, Any], workspace: str = "w") -> Definition:
    """A definition in force; its version says how many there were before."""
    return Definition(workspace, key, len(former) + 1, json.dumps(document), tuple(json.dumps(text) for text in former))


def traits(*definitions: Definition) -> tuple[Trait, ...]:
    compiled, problems = compile_definitions(definitions)
    assert problems == ()
    return compiled


def record(name: str, time_ms: int, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "event_time": time_ms, "properties": json.dumps(properties), "context": "{}"}


class MemoryStore:
    """A `Store` in memory."""

    def __init__(self) -> None:
        self.kept_clock = Clock()
        self.users: dict[str, bytes] = {}
        self.slots: dict[Slot, list[str]] = {}

    def clock(self) -> Clock:
        return self.kept_clock

    def put_clock(self, clock: Clock) -> None:
        self.kept_clock = clock

    def user(self, user: str) -> bytes | None:
        return self.users.get(user)

    def put_user(self, user: str, state: bytes | None) -> None:
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


class Partition:
    """One partition over many micro-batches. Events are (user, time, name, properties)."""

    def __init__(self, *definitions: Definition) -> None:
        self.traits = traits(*definitions)
        self.store = MemoryStore()
        self._matcher = Matcher(self.traits)
        self._batches = 0

    def batch(self, events: Iterable[tuple[str, int, str, Mapping[str, Any]]], now_ms: int = 0) -> list[Computed]:
        """What a micro-batch with these events tells; under the event clock, moved on to `now_ms` at the end."""
        hits: list[Hit] = []
        seen_ms = 0
        for user, time_ms, name, properties in events:
            seen_ms = max(seen_ms, time_ms)
            matches = self._matcher.match("w", EventView(record(name, time_ms, properties)))
            if matches:
                hits.append(Hit(f"w/{user}", time_ms, seen_ms, f"c-{user}", matches))
        return self.fold([Chunk(max(seen_ms, now_ms), "c-clock", hits, [])])

    def fold(self, chunks: Sequence[Chunk]) -> list[Computed]:
        self._batches += 1
        folding = PartitionFold(self.traits, self.store)
        for chunk in chunks:
            folding.take(chunk)
        return list(folding.finish(1_000_000 * self._batches))


def values(told: Iterable[Computed]) -> dict[tuple[str, str], Any]:
    """(user, trait) -> value; a value told twice in one micro-batch is a fault."""
    found: dict[tuple[str, str], Any] = {}
    for computed in told:
        name = (computed.user.removeprefix("w/"), computed.trait.key)
        assert name not in found
        found[name] = computed.value
    return found
