"""Pure core, hot path: many event measures that no segment asks for: matched, folded, and read when their values are wanted.

What computed traits are made of. The leaves are those of segments and keep in a `UserState` what they keep there: two
measures that keep the same data share a leaf. Nothing is evaluated event by event, and `due` of the state is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, cast

from starling_segments.aggregates.measure_table import quotient
from starling_segments.compile.leaf_table import LeafTable
from starling_segments.engine.event_index import Router, Routes, Way, router, way
from starling_segments.engine.future_events import admit_waiting, next_waiting, wait
from starling_segments.engine.leaves import EventLeaf, EventView, Question, Take, earlier
from starling_segments.engine.state import UserState
from starling_segments.language.tree import Calendar, EventSelector, Measure, Ratio
from starling_segments.parse.filters import looks_at_context, looks_at_traits

_NAMES_AT_HAND = 4096

Match = tuple[int, Any]
"""The number of a leaf, and what it folds of an event: None where the event lacks the property, True where none is read."""


Keep = Callable[[UserState, int, Any, int], Any]
"""(state, time, payload, now)"""
Look = Callable[[UserState, int], tuple[Any, int | None]]
Side = tuple[EventLeaf, Question]


class Happened(EventView, Protocol):
    """One accepted event, with the traits of its profile. All but name and time are only read when a leaf needs them."""

    @property
    def traits(self) -> Mapping[str, Any]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Taker:
    """Stands in a route for what has that number."""

    id: str
    number: int
    take: Take | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One measure. `leaves`: the numbers of those that it is read from; `nothing`: its value without a match.

    `look(state, now)`: the value, and the earliest instant after `now` at which it can change by itself.
    """

    leaves: tuple[int, ...]
    nothing: Any
    look: Look


@dataclass(frozen=True)
class MeasurePlan:
    """Everything that can be worked out once for a set of measures. Made by `compile_measures`.

    `readings`: one a measure, in order. A leaf's number is its place in `leaves`; the marks have the numbers after them.
    """

    readings: tuple[Reading, ...]
    leaves: tuple[EventLeaf, ...]
    router: Router
    reads_context: bool
    reads_traits: bool

    def matches(self, event: Happened) -> list[Match]:
        """What the leaves and marks take of an event; most events concern few of them."""
        found: list[Match] = []
        time, routes = event.time_ms, self._routes(event.name)
        for route in routes.of(event.properties) if routes.by_text else routes.always:
            test = route.matches
            if test is None or test(event, time):
                takers: Any = route.leaves
                for taker in takers:
                    take = taker.take
                    found.append((taker.number, True if take is None else take(event)))
        return found

    def touches(self, event_name: str) -> bool:
        """Whether events of that name can concern any leaf or mark."""
        return not self._routes(event_name).lead_nowhere

    def fold(self, state: UserState, happened: tuple[int, Iterable[Match]], now: int) -> None:
        """Fold the matches of one event, given with its time. `now`: the stream time, already moved on by the event.

        One user's events come in order of arrival. A late one counts where its own time puts it, one from the future
        when its time has come, if its window asks for that.
        """
        time, matches = happened
        waiting, keepers = state.waiting, self._keepers
        if waiting and waiting[0].time <= now:
            admit_waiting(state, self._by_id, now)
        if time > now:
            self._put_off(state, time, matches, now)
            return
        for number, payload in matches:
            if payload is not None:
                keepers[number](state, time, payload, now)

    def settle(self, state: UserState, now: int) -> list[int]:
        """Let in what waited until `now`; returns the numbers of the leaves that took something."""
        if not state.waiting or state.waiting[0].time > now:
            return []
        come = {match.leaf for match in state.waiting if match.time <= now}
        admit_waiting(state, self._by_id, now)
        return [number for number, leaf in enumerate(self.leaves) if leaf.id in come]

    def drop_empty(self, state: UserState, numbers: Iterable[int]) -> None:
        """Forget what those leaves keep where that is as if nothing had ever matched."""
        for number in numbers:
            leaf = self.leaves[number]
            kept = state.accumulators.get(leaf.id)
            if kept is not None and leaf.is_empty(kept):
                state.accumulators.drop(leaf.id)

    def _put_off(self, state: UserState, time: int, matches: Iterable[Match], now: int) -> None:
        for number, payload in matches:
            if payload is None:
                continue
            leaf = self.leaves[number]
            if leaf.waits:
                wait(state, time, leaf.id, payload)
            else:
                leaf.add(state, time, payload, now)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {leaf.id: leaf for leaf in self.leaves})
        object.__setattr__(self, "_keepers", tuple(_keeper(leaf) for leaf in self.leaves))
        object.__setattr__(self, "_routes", lru_cache(_NAMES_AT_HAND)(self.router.find))

    _keepers: tuple[Keep, ...] = field(init=False, repr=False, compare=False, default=())
    _by_id: Mapping[str, EventLeaf] = field(init=False, repr=False, compare=False, default_factory=dict)
    _routes: Callable[[str], Routes] = field(init=False, repr=False, compare=False, default=None)  # type: ignore[assignment]


def compile_measures(measures: Sequence[Measure | Ratio], marks: Sequence[EventSelector] = ()) -> MeasurePlan:
    """One plan for all the measures. `marks`: events that nothing is kept of, but that are to be told of.

    Raises: BrokenPlan (two leaves with one identity: never seen).
    """
    table = LeafTable()
    built = [_built(measure, table) for measure in measures]
    leaves = cast("tuple[EventLeaf, ...]", tuple(table.event_leaves.values()))  # measures have no other leaves
    numbers = {leaf.id: number for number, leaf in enumerate(leaves)}
    takers = {leaf.id: Taker(leaf.id, number, leaf.take) for number, leaf in enumerate(leaves)}
    ways = [_led_to(one, takers[one.leaf.id]) for one in table.ways]
    for number, mark in enumerate(marks, start=len(leaves)):
        ways.append(way(mark.name, Taker(f"mark {number}", number, _nothing), mark.where))
    wheres = [*table.wheres, *(mark.where for mark in marks)]
    return MeasurePlan(
        tuple(_reading(sides, numbers) for sides in built),
        leaves,
        router(ways),
        reads_context=any(map(looks_at_context, wheres)),
        reads_traits=any(map(looks_at_traits, wheres)),
    )


def _built(measure: Measure | Ratio, table: LeafTable) -> tuple[Side, ...]:
    parts = (measure.of, measure.to) if isinstance(measure, Ratio) else (measure,)
    return tuple((table.measured(part), Question(_itself, back=_back(part))) for part in parts)


def _reading(sides: tuple[Side, ...], numbers: Mapping[str, int]) -> Reading:
    leaves = tuple(numbers[leaf.id] for leaf, _ in sides)
    looks = [_look(*side) for side in sides]
    if len(looks) == 1:
        return Reading(leaves, sides[0][0].kind.nothing, looks[0])
    above, below = looks

    def look(state: UserState, now: int) -> tuple[Any, int | None]:
        (of, of_turn), (to, to_turn) = above(state, now), below(state, now)
        return quotient(of, to), earlier(of_turn, to_turn)

    return Reading(leaves, None, look)


def _keeper(leaf: EventLeaf) -> Keep:
    if leaf.__class__ is not EventLeaf:
        return leaf.add
    # Hot: as `EventLeaf.add` without questions; 0.7 us a match there, 0.45 us here.
    leaf_id, window_ms, pane_ms = leaf.id, leaf.window_ms or 0, leaf.pane_ms
    lasting, fresh = leaf.window_ms is None, leaf.kind.lifetime if leaf.window_ms is None else leaf.kind.windowed

    def keep(state: UserState, time: int, payload: Any, now: int) -> None:
        cutoff = now - window_ms
        if not lasting and time <= cutoff:
            return
        kept: Any = state.accumulators.get(leaf_id)
        if kept is None:
            kept = fresh()
            state.accumulators.put(leaf_id, kept)
        elif not lasting:
            kept.forget(cutoff)
        kept.add(time, payload, pane_ms)

    return keep


def _look(leaf: EventLeaf, question: Question) -> Look:
    window_ms, nothing = leaf.window_ms, leaf.kind.nothing
    if leaf.__class__ is not EventLeaf:
        return lambda state, now: (leaf.observe(state, question, now), leaf.turns(state, question, now))

    def look(state: UserState, now: int) -> tuple[Any, int | None]:
        # Hot: as `observe` and `turns`, settled once: half of what telling many values costs.
        kept = state.accumulators.get(leaf.id)
        turn = next_waiting(state, leaf.id) if state.waiting else None
        if kept is None:
            return nothing, turn
        if window_ms is None:
            return kept.value(), turn
        kept.forget(now - window_ms)
        leaving = kept.next_departure(None, _itself, now)
        return kept.value(), turn if leaving is None else earlier(turn, leaving + window_ms)

    return look


def _led_to(one: Way, taker: Taker) -> Way:
    return Way(one.pattern, taker, one.where, one.facts, one.matches, one.texts)


def _itself(value: Any, _now: int) -> Any:
    return value


def _nothing(_event: Any) -> None:
    return None


def _back(measure: Measure) -> int:
    return measure.window.back if isinstance(measure.window, Calendar) else 0
