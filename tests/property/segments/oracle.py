"""The slow, obvious answer: every input of a user kept, every truth worked out from the definition at every instant.

Shares no code with the package. Times are epoch ms on a grid of half seconds, so that every instant at which anything
can change (event times, window ends, date boundaries) is a grid point, and all of them are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

GRID_MS = 500
UNITS_MS = {"s": 1_000, "m": 60_000}

Doc = dict[str, Any]
Seen = tuple[str, int, str, int, str]
"""segment key, sequence, status, effective at, cause"""


@dataclass
class Happened:
    name: str
    time_ms: int
    properties: Doc = field(default_factory=dict)
    context: Doc = field(default_factory=dict)


@dataclass
class Oracle:
    """One user's whole past, and what was announced."""

    definitions: dict[str, Doc]
    events: list[Happened] = field(default_factory=list)
    traits: Doc = field(default_factory=dict)
    known: bool = False
    now: int = 0
    announced: dict[str, list[Seen]] = field(default_factory=dict)

    def event(self, event: Happened, stream_time: int) -> list[Seen]:
        before = self._pass(stream_time)
        self.events.append(event)
        self.known = True
        return before + self._look(self.now, "EVENT")

    def profile(self, traits: Doc, stream_time: int) -> list[Seen]:
        before = self._pass(stream_time)
        self.traits = traits
        self.known = True
        return before + self._look(self.now, "EVENT")

    def advance(self, stream_time: int) -> list[Seen]:
        before = self._pass(stream_time)
        return before + self._look(self.now, "TIMER")

    def define(self, definitions: dict[str, Doc], stream_time: int) -> list[Seen]:
        before = self._pass(stream_time)
        gone = [key for key in self.definitions if key not in definitions]
        self.definitions = definitions
        exits = [self._announce(key, self.now, "DEFINITION") for key in gone if self._is_member(key)]
        return before + exits + self._look(self.now, "DEFINITION")

    def members(self) -> set[str]:
        return {key for key in self.announced if self._is_member(key)}

    def _pass(self, stream_time: int) -> list[Seen]:
        """Every grid point between the last instant and the new one, without the new one itself."""
        target = max(stream_time, self.now)
        changes = []
        for instant in range(self.now + GRID_MS, target, GRID_MS):
            changes += self._look(instant, "TIMER")
        self.now = target
        return changes

    def _look(self, instant: int, cause: str) -> list[Seen]:
        if not self.known:
            return []
        turned = [key for key, where in self.definitions.items() if self.holds(where, instant) != self._is_member(key)]
        return [self._announce(key, instant, cause) for key in turned]

    def _announce(self, key: str, instant: int, cause: str) -> Seen:
        history = self.announced.setdefault(key, [])
        status = "EXITED" if self._is_member(key) else "ENTERED"
        history.append((key, len(history) + 1, status, instant, cause))
        return history[-1]

    def _is_member(self, key: str) -> bool:
        history = self.announced.get(key, [])
        return len(history) % 2 == 1

    def holds(self, where: Doc, n: int) -> bool:
        if where.keys() & {"all", "any", "none", "not"}:
            return grouped(where, lambda part: self.holds(part, n))
        if "segment" in where:
            return self.holds(self.definitions[where["segment"]], n)
        if "everyone" in where:
            return True
        if "trait" in where:
            return judge(where, self.traits.get(where["trait"]), n)
        if "first_time" in where:
            times = [event.time_ms for event in self.events if selected(where["first_time"], event)]
            return bool(times) and inside(where, min(times), n)
        return judge(where if "op" in where else {"op": "gte", "value": 1}, self.measure(where, n), n)

    def measure(self, leaf: Doc, n: int) -> Any:
        found = [event for event in self.events if selected(leaf, event) and inside(leaf, event.time_ms, n)]
        measure = leaf.get("measure", "count")
        if measure == "count":
            return len(found)
        ((kind, name),) = measure.items()
        values = [event.properties[name] for event in found if name in event.properties]
        if kind == "distinct":
            different: list[Any] = []
            for value in values:
                if not any(same(value, other) for other in different):
                    different.append(value)
            return len(different)
        numbers = [value for value in values if is_number(value)]
        return sum(numbers) if numbers else None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def inside(leaf: Doc, t: int, n: int) -> bool:
    if "within" not in leaf:
        return True
    return n - length(leaf["within"]) < t <= n


def length(text: str) -> int:
    return int(text[:-1]) * UNITS_MS[text[-1]]


def selected(leaf: Doc, event: Happened) -> bool:
    pattern = leaf["event"]
    named = event.name.startswith(pattern[:-1]) if pattern.endswith("*") else event.name == pattern
    return named and ("where" not in leaf or passes(leaf["where"], event))


def grouped(where: Doc, holds: Callable[[Doc], bool]) -> bool:
    ((kind, parts),) = where.items()
    truths = [holds(part) for part in ([parts] if kind == "not" else parts)]
    return all(truths) if kind == "all" else any(truths) if kind == "any" else not any(truths)


def passes(where: Doc, event: Happened) -> bool:
    if where.keys() & {"all", "any", "none", "not"}:
        return grouped(where, lambda part: passes(part, event))
    return judge(where, event.properties.get(where["property"]), event.time_ms)


def alike(value: Any, wanted: Any) -> bool:
    return (is_number(value) and is_number(wanted)) or (isinstance(value, str) and isinstance(wanted, str))


STANDING: dict[str, Callable[[Any, Any], bool]] = {
    "exists": lambda v, _w: v is not None,
    "missing": lambda v, _w: v is None,
    "eq": lambda v, w: v is not None and same(v, w),
    "neq": lambda v, w: v is None or not same(v, w),
    "in": lambda v, w: any(same(v, item) for item in w),
    "gte": lambda v, w: alike(v, w) and v >= w,
    "gt": lambda v, w: alike(v, w) and v > w,
    "lt": lambda v, w: alike(v, w) and v < w,
    "lte": lambda v, w: alike(v, w) and v <= w,
    "between": lambda v, w: is_number(v) and w[0] <= v <= w[1],
    "mod": lambda v, w: is_number(v) and v % w[0] == w[1],
}
MOVING: dict[str, Callable[[float, int, int], bool]] = {
    "within_last": lambda t, n, d: n - d < t <= n,
    "older_than": lambda t, n, d: t <= n - d,
    "within_next": lambda t, n, d: n < t <= n + d,
    "later_than": lambda t, n, d: t > n + d,
}


def judge(predicate: Doc, value: Any, n: int) -> bool:
    op, wanted = predicate["op"], predicate.get("value")
    if op in STANDING:
        return STANDING[op](value, wanted)
    return is_number(value) and MOVING[op](value // 1, n, length(predicate["value"]))  # whole milliseconds
