"""Pure core, hot path: event measures without a segment, such as computed traits: matched, folded, and read on request.

The leaf nodes are those of segments, with the same accumulators in a `UserState`; measures with equal data share a leaf node.
Nothing is evaluated for each event, and the timers of the state are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol, cast

from starling_segments.aggregates.measure_table import quotient
from starling_segments.compile.leaf_table import LeafTable
from starling_segments.engine.errors import Unmergeable
from starling_segments.engine.event_index import Router, Routes, Subscription, router, subscription
from starling_segments.engine.future_events import admit_due, defer, next_deferred
from starling_segments.engine.leaves import EventLeaf, EventView, Take, ValueTest, earlier
from starling_segments.engine.state import UserState, decode_state, encode_state
from starling_segments.language.tree import Calendar, EventSelector, Measure, Ratio
from starling_segments.parse.filters import uses_context, uses_traits

_CACHED_NAMES = 4096
_BY_TIME = attrgetter("time")

Match = tuple[int, Any]
"""The number of a leaf node, and the payload of the event: None if the property is missing, True if none is read."""


FoldMatch = Callable[[UserState, int, Any, int], Any]
"""(state, time, payload, now)"""
ReadValue = Callable[[UserState, int], tuple[Any, int | None]]
Side = tuple[EventLeaf, ValueTest]


class MeasuredEvent(EventView, Protocol):
    """One accepted event with the traits of its user. All but name and time are read only if a leaf node needs them."""

    @property
    def traits(self) -> Mapping[str, Any]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class NumberedTarget:
    """The destination of a route: the leaf node or mark with this number."""

    id: str
    number: int
    take: Take | None


@dataclass(frozen=True, slots=True)
class CompiledMeasure:
    """One compiled measure. `leaves`: the numbers of its leaf nodes; `default`: its value without a match.

    `read(state, now)`: the value, and the earliest instant after `now` at which time alone changes it.
    """

    leaves: tuple[int, ...]
    default: Any
    read: ReadValue


@dataclass(frozen=True)
class MeasurePlan:
    """A set of measures as compiled by `compile_measures`.

    `compiled`: one for each measure, in order. A leaf node's number is its index in `leaves`; the marks' numbers follow.
    """

    compiled: tuple[CompiledMeasure, ...]
    leaves: tuple[EventLeaf, ...]
    router: Router
    reads_context: bool
    reads_traits: bool

    def matches(self, event: MeasuredEvent) -> list[Match]:
        """Return the matches of an event; most events match few leaf nodes and marks."""
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
        """Return whether events of that name can match any leaf node or mark."""
        return not self._routes(event_name).is_empty

    def fold(self, state: UserState, happened: tuple[int, Iterable[Match]], now: int) -> None:
        """Fold the matches of one event, given with its time. `now`: the stream time after this event has advanced it.

        Events of one user come in order of arrival. A late match counts at its own time, a future match when its time is
        reached, if the window requires that.
        """
        time, matches = happened
        waiting, folders = state.waiting, self._folders
        if waiting and waiting[0].time <= now:
            admit_due(state, self._by_id, now)
        if time > now:
            self._put_off(state, time, matches, now)
            return
        for number, payload in matches:
            if payload is not None:
                folders[number](state, time, payload, now)

    def settle(self, state: UserState, now: int) -> list[int]:
        """Fold the stored matches up to `now`; return the numbers of the affected leaf nodes."""
        if not state.waiting or state.waiting[0].time > now:
            return []
        come = {match.leaf for match in state.waiting if match.time <= now}
        admit_due(state, self._by_id, now)
        return [number for number, leaf in enumerate(self.leaves) if leaf.id in come]

    def merge(self, earlier: UserState, later: UserState, now: int) -> UserState:
        """Return the state of all matches of two states of one user. Both stay unchanged.

        `later`: a fold that began with an empty state, of events that arrived after those of `earlier`, whatever their times.
        `now`: stream time, at or after that of both. The values equal those of one fold of all events: exactly up to 256 matches
        in a window, or different values; above that within the same error. Fields other than accumulators and future matches
        are those of `earlier`. An accumulator of a leaf node that the plan lacks is kept if the other state has none.

        Raises: Unmergeable if both states have one.
        """
        merged, other = _copy(earlier), _copy(later)
        self.settle(merged, now)
        self.settle(other, now)
        accumulators, added = merged.accumulators, other.accumulators
        for leaf_id in added:
            if leaf_id not in accumulators:
                accumulators.put(leaf_id, added.encoded(leaf_id))
                continue
            leaf, kept = self._by_id.get(leaf_id), accumulators.get(leaf_id)
            if leaf is None:
                raise Unmergeable(
                    f"leaf node {leaf_id} ({type(kept).__name__}) of the user {earlier.user_id!r} is no measure of this plan:"
                    " states of sequences and of other plans cannot be merged; fold the events of both in the order of arrival"
                )
            leaf.merge(kept, added.get(leaf_id), now)
        merged.waiting = sorted([*merged.waiting, *other.waiting], key=_BY_TIME)
        return merged

    def drop_empty(self, state: UserState, numbers: Iterable[int]) -> None:
        """Drop the accumulators of these leaf nodes that equal those of a user without matches."""
        for number in numbers:
            leaf = self.leaves[number]
            accumulator = state.accumulators.get(leaf.id)
            if accumulator is not None and leaf.is_empty(accumulator):
                state.accumulators.drop(leaf.id)

    def _put_off(self, state: UserState, time: int, matches: Iterable[Match], now: int) -> None:
        for number, payload in matches:
            if payload is None:
                continue
            leaf = self.leaves[number]
            if leaf.waits:
                defer(state, time, leaf.id, payload)
            else:
                leaf.add(state, time, payload, now)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {leaf.id: leaf for leaf in self.leaves})
        object.__setattr__(self, "_folders", tuple(_folder(leaf) for leaf in self.leaves))
        object.__setattr__(self, "_routes", lru_cache(_CACHED_NAMES)(self.router.find))

    _folders: tuple[FoldMatch, ...] = field(init=False, repr=False, compare=False, default=())
    _by_id: Mapping[str, EventLeaf] = field(init=False, repr=False, compare=False, default_factory=dict)
    _routes: Callable[[str], Routes] = field(init=False, repr=False, compare=False, default=None)  # type: ignore[assignment]


def compile_measures(measures: Sequence[Measure | Ratio], marks: Sequence[EventSelector] = ()) -> MeasurePlan:
    """Return one plan for all measures. `marks`: events that are matched but not folded.

    Raises: InvalidPlan (two leaf nodes with one id: improbable).
    """
    table = LeafTable()
    built = [_built(measure, table) for measure in measures]
    leaves = cast("tuple[EventLeaf, ...]", tuple(table.event_leaves.values()))  # measures have no other leaf nodes
    numbers = {leaf.id: number for number, leaf in enumerate(leaves)}
    takers = {leaf.id: NumberedTarget(leaf.id, number, leaf.take) for number, leaf in enumerate(leaves)}
    subscriptions = [_led_to(one, takers[one.leaf.id]) for one in table.subscriptions]
    for number, mark in enumerate(marks, start=len(leaves)):
        subscriptions.append(subscription(mark.name, NumberedTarget(f"mark {number}", number, _nothing), mark.where))
    wheres = [*table.wheres, *(mark.where for mark in marks)]
    return MeasurePlan(
        tuple(_compiled(sides, numbers) for sides in built),
        leaves,
        router(subscriptions),
        reads_context=any(map(uses_context, wheres)),
        reads_traits=any(map(uses_traits, wheres)),
    )


def _built(measure: Measure | Ratio, table: LeafTable) -> tuple[Side, ...]:
    parts = (measure.of, measure.to) if isinstance(measure, Ratio) else (measure,)
    return tuple((table.measured(part), ValueTest(_itself, back=_back(part))) for part in parts)


def _compiled(sides: tuple[Side, ...], numbers: Mapping[str, int]) -> CompiledMeasure:
    leaves = tuple(numbers[leaf.id] for leaf, _ in sides)
    reads = [_reader(*side) for side in sides]
    if len(reads) == 1:
        return CompiledMeasure(leaves, sides[0][0].kind.default, reads[0])
    above, below = reads

    def read(state: UserState, now: int) -> tuple[Any, int | None]:
        (of, of_change_at), (to, to_change_at) = above(state, now), below(state, now)
        return quotient(of, to), earlier(of_change_at, to_change_at)

    return CompiledMeasure(leaves, None, read)


def _folder(leaf: EventLeaf) -> FoldMatch:
    if leaf.__class__ is not EventLeaf:
        return leaf.add
    # Hot: `EventLeaf.add` without tests: 0.45 µs a match instead of 0.7 µs.
    leaf_id, window_ms, pane_ms = leaf.id, leaf.window_ms or 0, leaf.pane_ms
    lasting, fresh = leaf.window_ms is None, leaf.kind.lifetime if leaf.window_ms is None else leaf.kind.windowed

    def fold(state: UserState, time: int, payload: Any, now: int) -> None:
        cutoff = now - window_ms
        if not lasting and time <= cutoff:
            return
        accumulator: Any = state.accumulators.get(leaf_id)
        if accumulator is None:
            accumulator = fresh()
            state.accumulators.put(leaf_id, accumulator)
        elif not lasting:
            accumulator.forget(cutoff)
        accumulator.add(time, payload, pane_ms)

    return fold


def _reader(leaf: EventLeaf, value_test: ValueTest) -> ReadValue:
    window_ms, nothing = leaf.window_ms, leaf.kind.default
    if leaf.__class__ is not EventLeaf:
        return lambda state, now: (leaf.observe(state, value_test, now), leaf.next_change_in(state, value_test, now))

    def read(state: UserState, now: int) -> tuple[Any, int | None]:
        # Hot: `observe` and `next_change_in` with one `forget`: halves the cost of many values.
        accumulator = state.accumulators.get(leaf.id)
        change_at = next_deferred(state, leaf.id) if state.waiting else None
        if accumulator is None:
            return nothing, change_at
        if window_ms is None:
            return accumulator.value(), change_at
        accumulator.forget(now - window_ms)
        leaving = accumulator.next_departure(None, _itself, now)
        return accumulator.value(), change_at if leaving is None else earlier(change_at, leaving + window_ms)

    return read


def _led_to(one: Subscription, taker: NumberedTarget) -> Subscription:
    return Subscription(one.pattern, taker, one.where, one.facts, one.matches, one.texts)


def _copy(state: UserState) -> UserState:
    return decode_state(encode_state(state))


def _itself(value: Any, _now: int) -> Any:
    return value


def _nothing(_event: Any) -> None:
    return None


def _back(measure: Measure) -> int:
    return measure.window.back if isinstance(measure.window, Calendar) else 0
