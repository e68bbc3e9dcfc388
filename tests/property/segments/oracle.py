"""The oracle: a slow, obvious implementation that stores every input of a user and evaluates every definition at every instant.

Shares no code with the package. Times are epoch ms on a grid of half seconds, so that every instant at which anything can change
(event times, window ends, date boundaries) is a grid point, and all grid points are evaluated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from tests.property.segments.predicates import Doc, clock, evaluate, grouped, is_number, length, looked_up, same, span

GRID_MS = 500
KINDS = ("trait", "event", "first_time", "sequence", "regularly", "segment", "list", "bucket", "account", "everyone", "measure")
WINDOWS = ("within", "between_ago", "after", "before", "calendar")
MURMUR = {"one:u": 3_164_328_440, "two:u": 2_417_936_091}
"""Hashes of salt and user, from the reference implementation."""
NEVER = (-(10**18), -1)
LARGEST = 1e290
"""Larger numbers are ignored."""

ExpectedChange = tuple[str, int, str, int, str]
"""(segment key, sequence, status, effective at, cause)"""
Prefix = tuple[int, tuple[int, int], tuple[tuple[int, tuple[int, int]], ...]]
"""(number of steps, (time, arrival) of the last one, the events of the steps that later ones compare with)"""


@dataclass
class MeasuredEvent:
    """One event; `traits`: of the profile at its arrival."""

    name: str
    time_ms: int
    properties: Doc = field(default_factory=dict)
    context: Doc = field(default_factory=dict)
    traits: Doc = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """One evaluation: its instant, the number of known events, and the traits."""

    instant: int
    events: int
    traits: Doc


@dataclass
class Oracle:
    """One user's history and membership changes. `zone`: of all segments; `others`: (users, matching) of the account."""

    definitions: dict[str, Doc]
    now: int = 0
    user_id: str = "u"
    zone: str = "UTC"
    events: list[MeasuredEvent] = field(default_factory=list)
    traits: Doc = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    others: tuple[int, int] | None = None
    paused: frozenset[str] = frozenset()
    known: bool = False
    points: list[Point] = field(default_factory=list)
    changes: dict[str, list[ExpectedChange]] = field(default_factory=dict)
    chains: dict[str, tuple[int, set[Prefix]]] = field(default_factory=dict)

    def event(self, event: MeasuredEvent, stream_time: int) -> list[ExpectedChange]:
        before = self._pass(stream_time)
        self.events.append(replace(event, traits=self.traits))
        self.known = True
        return before + self._look(self.now, "EVENT")

    def profile(self, traits: Doc, stream_time: int) -> list[ExpectedChange]:
        before = self._pass(stream_time)
        self.traits = traits
        self.known = True
        return before + self._look(self.now, "EVENT")

    def listed(self, key: str, is_on: bool, stream_time: int) -> list[ExpectedChange]:
        if is_on is (key in self.lists):
            return self.advance(stream_time)
        before = self._pass(stream_time)
        self.lists = self.lists | {key} if is_on else self.lists - {key}
        self.known = True
        return before + self._look(self.now, "LIST")

    def account(self, others: tuple[int, int] | None, stream_time: int) -> list[ExpectedChange]:
        before = self._pass(stream_time)
        self.others = others
        self.known = True
        return before + self._look(self.now, "EVENT")

    def advance(self, stream_time: int) -> list[ExpectedChange]:
        before = self._pass(stream_time)
        return before + self._look(self.now, "TIMER")

    def define(self, definitions: dict[str, Doc], stream_time: int) -> list[ExpectedChange]:
        before = self._pass(stream_time)
        gone = [key for key in self.definitions if key not in definitions]
        self.definitions = definitions
        exits = [self._change(key, self.now, "DEFINITION") for key in gone if self._is_member(key)]
        return before + exits + self._look(self.now, "DEFINITION")

    def hold(self, paused: frozenset[str], stream_time: int) -> list[ExpectedChange]:
        before = self._pass(stream_time)
        self.paused = paused
        return before + self._look(self.now, "DEFINITION")

    def members(self) -> set[str]:
        return {key for key in self.changes if self._is_member(key)}

    def _pass(self, stream_time: int) -> list[ExpectedChange]:
        """Iterate over the grid points between the last instant and the new one, exclusive."""
        target = max(stream_time, self.now)
        changes = []
        for instant in range(self.now + GRID_MS, target, GRID_MS):
            changes += self._look(instant, "TIMER")
        self.now = target
        return changes

    def _look(self, instant: int, cause: str) -> list[ExpectedChange]:
        if not self.known:
            return []
        self.points.append(Point(instant, len(self.events), self.traits))
        turned = [key for key in self.definitions if self._is_in(key, instant) != self._is_member(key)]
        return [self._change(key, instant, cause) for key in turned]

    def _change(self, key: str, instant: int, cause: str) -> ExpectedChange:
        history = self.changes.setdefault(key, [])
        status = "EXITED" if self._is_member(key) else "ENTERED"
        history.append((key, len(history) + 1, status, instant, cause))
        return history[-1]

    def _is_member(self, key: str) -> bool:
        history = self.changes.get(key, [])
        return len(history) % 2 == 1

    def _is_in(self, key: str, n: int) -> bool:
        """Return the truth; paused segments are unchanged, for segments that use them too."""
        return self._is_member(key) if key in self.paused else self.holds(self.definitions[key], n)

    def holds(self, where: Doc, n: int) -> bool:
        if where.keys() & {"all", "any", "none", "not"}:
            return grouped(where, lambda part: self.holds(part, n))
        kind = next(kind for kind in KINDS if kind in where)
        return bool(getattr(self, f"_{kind}_holds")(where, n))

    def _segment_holds(self, where: Doc, n: int) -> bool:
        return self._is_in(where["segment"], n)

    def _everyone_holds(self, where: Doc, n: int) -> bool:
        return True

    def _list_holds(self, where: Doc, n: int) -> bool:
        return where["list"] in self.lists

    def _bucket_holds(self, where: Doc, n: int) -> bool:
        bucket = where["bucket"]
        share = MURMUR[f"{bucket['salt']}:{self.user_id}"] % 10_000 / 100
        return bool(bucket["from"] <= share < bucket["to"])

    def _account_holds(self, where: Doc, n: int) -> bool:
        if self.others is None:
            return False
        users, matching = self.others
        matching += self.holds(where["account"]["where"], n)
        return {"any": matching > 0, "all": matching == users + 1, "none": matching == 0}[where["account"]["match"]]

    def _trait_holds(self, where: Doc, n: int) -> bool:
        if "held_for" not in where and "held_less_than" not in where:
            return evaluate(where, looked_up(self.traits, where["trait"]), n, self.zone)
        since = None
        for point in reversed(self.points):
            if not evaluate(where, looked_up(point.traits, where["trait"]), point.instant, self.zone):
                break
            since = point.instant
        if since is None:
            return False
        long_enough = "held_for" not in where or n - since >= length(where["held_for"])
        return long_enough and ("held_less_than" not in where or n - since < length(where["held_less_than"]))

    def _first_time_holds(self, where: Doc, n: int) -> bool:
        times = [event.time_ms for event in self.events if selected(where["first_time"], event, self.zone)]
        return bool(times) and self.inside(where, min(times), n)

    def _regularly_holds(self, where: Doc, n: int) -> bool:
        every = length(where["every"])
        times = [event.time_ms for event in self.events if selected(where["regularly"], event, self.zone)]
        met = [any(n - (i + 1) * every < t <= n - i * every for t in times) for i in range(where["of"])]
        return bool(sum(met) >= where["at_least"])

    def _sequence_holds(self, where: Doc, n: int) -> bool:
        done = [last[0] for i, last, _ in self._chained(where) if i == len(where["sequence"])]
        return any("within" not in where or n - length(where["within"]) < c <= n for c in done)

    def _chained(self, where: Doc) -> set[Prefix]:
        """Return every prefix that was completed at any evaluation up to the last one."""
        name = repr(where)
        seen, met = self.chains.get(name, (0, set()))
        for point in self.points[seen:]:
            known = [
                (event.time_ms, arrival, event)
                for arrival, event in enumerate(self.events[: point.events])
                if event.time_ms <= point.instant
            ]
            grow(where["sequence"], met, known, point.instant, self.zone)
        self.chains[name] = len(self.points), met
        return met

    def _event_holds(self, where: Doc, n: int) -> bool:
        return evaluate(where if "op" in where else {"op": "gte", "value": 1}, self.measure(where, n), n, self.zone)

    def _measure_holds(self, where: Doc, n: int) -> bool:
        ratio = where["measure"]["ratio"]
        window = {name: where[name] for name in WINDOWS if name in where}
        above, below = (
            self.measure(side if side.keys() & set(WINDOWS) else {**side, **window}, n) for side in (ratio["of"], ratio["to"])
        )
        found = None if above is None or not below else above / below
        return evaluate(where, None if found is None or math.isinf(found) else found, n, self.zone)

    def inside(self, leaf: Doc, t: int, n: int) -> bool:
        if "within" in leaf:
            return n - length(leaf["within"]) < t <= n
        if "between_ago" in leaf:
            older, newer = leaf["between_ago"]
            return n - length(older) < t <= n - length(newer)
        if "calendar" in leaf:
            return in_period(leaf["calendar"], clock(t, self.zone), clock(n, self.zone))
        after = "after" not in leaf or t >= span(leaf["after"], self.zone)[0]
        return after and ("before" not in leaf or t < span(leaf["before"], self.zone)[0])

    def measure(self, leaf: Doc, n: int) -> Any:
        found = sorted(
            (
                (event.time_ms, arrival, event)
                for arrival, event in enumerate(self.events)
                if selected(leaf, event, self.zone) and self.inside(leaf, event.time_ms, n)
            ),
            key=lambda match: match[:2],
        )
        measure = leaf.get("measure", "count")
        if measure == "count":
            return len(found)
        if measure in ("first_time", "last_time"):
            times = [t for t, _, _ in found]
            return (min if measure == "first_time" else max)(times, default=None)
        if "days" in measure:
            return len({clock(t, self.zone).date() for t, _, _ in found})
        kind, name = next((key, value) for key, value in measure.items() if key != "q")
        values = [event.properties[name] for _, _, event in found if event.properties.get(name) is not None]
        if kind == "distinct":
            return of_anything(kind, values)
        if kind in ("first", "last", "most_frequent"):
            return of_anything(kind, [value for value in map(storable, values) if value is not None])
        numbers = [float(value) for value in values if is_number(value) and abs(value) <= LARGEST]
        return of_numbers(kind, numbers, measure.get("q")) if numbers else None


def storable(value: Any) -> Any:
    """Return an integer beyond 64 bits as a double, or None."""
    if isinstance(value, dict):
        return {name: storable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [storable(part) for part in value]
    if not isinstance(value, int) or -(2**63) <= value < 2**64:
        return value
    return float(value) if abs(value) < 2**1024 else None


def of_anything(kind: str, values: list[Any]) -> Any:
    different: list[Any] = []
    for value in values:
        if not any(same(value, other) for other in different):
            different.append(value)
    if kind == "distinct":
        return len(different)
    if not values:
        return None
    if kind in ("first", "last"):
        return values[0] if kind == "first" else values[-1]
    often = [sum(same(value, other) for other in values) for value in different]
    best = [value for value, n in zip(different, often, strict=True) if n == max(often)]
    return next(value for value in reversed(values) if any(same(value, other) for other in best))


def of_numbers(kind: str, numbers: list[float], q: float | None) -> float:
    if kind == "percentile":
        share = Fraction(str(q))
        return min(x for x in numbers if sum(y <= x for y in numbers) >= share * len(numbers))
    if kind in ("sum", "avg"):
        total = float(sum(map(Fraction, numbers)))
        return total if kind == "sum" else total / len(numbers)
    return min(numbers) if kind == "min" else max(numbers)


def grow(steps: list[Doc], met: set[Prefix], known: list[tuple[int, int, MeasuredEvent]], n: int, zone: str) -> None:
    """Add every prefix that follows from the completed ones and the known events, until there is no other."""
    events = [event for _, _, event in sorted(known, key=lambda match: match[:2])]
    order = {id(event): (t, arrival) for t, arrival, event in known}
    asked = {other["step"] for step in steps for other in compared_steps(step)}
    waiting = [(0, NEVER, ()), *met]
    while waiting:
        i, last, bound = waiting.pop()
        found: list[Prefix] = []
        steps_left = steps[i:]
        if not steps_left:
            continue
        chain = {step: next(e for e in events if order[id(e)] == place) for step, place in bound}
        if "for" in steps_left[0]:
            over = last[0] + length(steps_left[0]["for"])
            broken = any(last[0] < e.time_ms < over and selected(steps_left[0]["not"], e, zone, chain) for e in events)
            if over <= n and not broken:
                found.append((i + 1, (over, -1), bound))
        else:
            forbidden = [step["not"] for step in steps_left[: next(j for j, step in enumerate(steps_left) if "event" in step)]]
            j = i + len(forbidden)
            for e in events:
                place = order[id(e)]
                between = [x for x in events if last < order[id(x)] < place]
                near = i == 0 or "within" not in steps[j] or e.time_ms - last[0] <= length(steps[j]["within"])
                free = not any(selected(step, x, zone, chain) for step in forbidden for x in between)
                if place > last and near and free and selected(steps[j], e, zone, chain):
                    found.append((j + 1, place, (*bound, (j, place)) if j in asked else bound))
        fresh = [prefix for prefix in found if prefix not in met]
        met.update(fresh)
        waiting += fresh


def compared_steps(step: Doc) -> list[Doc]:
    def of(where: Any) -> list[Doc]:
        if isinstance(where, list):
            return [other for part in where for other in of(part)]
        if not isinstance(where, dict):
            return []
        return [where] if "step" in where else [other for part in where.values() for other in of(part)]

    return of(step)


def in_period(name: str, t: datetime, n: datetime) -> bool:
    days = (n.date() - t.date()).days
    weeks = ((n.date() - timedelta(days=n.weekday())) - (t.date() - timedelta(days=t.weekday()))).days // 7
    months = (n.year - t.year) * 12 + n.month - t.month
    return {
        "today": days == 0,
        "yesterday": days == 1,
        "this_week": weeks == 0,
        "last_week": weeks == 1,
        "this_month": months == 0,
        "last_month": months == 1,
        "this_year": n.year == t.year,
    }[name]


def selected(leaf: Doc, event: MeasuredEvent, zone: str, chain: dict[int, MeasuredEvent] | None = None) -> bool:
    pattern = leaf["event"]
    named = event.name.startswith(pattern[:-1]) if pattern.endswith("*") else event.name == pattern
    return named and ("where" not in leaf or passes(leaf["where"], event, zone, chain or {}))


def passes(where: Doc, event: MeasuredEvent, zone: str, chain: dict[int, MeasuredEvent]) -> bool:
    if where.keys() & {"all", "any", "none", "not"}:
        return grouped(where, lambda part: passes(part, event, zone, chain))
    source, path = (event.properties, where["property"]) if "property" in where else (event.context, where["context"])
    value, other = looked_up(source, path), where.get("value")
    if not isinstance(other, dict) or not other.keys() & {"trait", "step"}:
        return evaluate(where, value, event.time_ms, zone)
    found = event.traits.get(other["trait"]) if "trait" in other else chain[other["step"]].properties.get(other["property"])
    if found is None:
        return bool(where["op"] == "neq")
    return evaluate({**where, "value": found}, value, event.time_ms, zone)
