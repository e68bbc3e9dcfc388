"""Pure core: the worst-case cost of a definition, computed before anything is evaluated.

The work is that of one event of one user whose accumulators are as full as they can be, in points of about a microsecond. The
state is what the accumulators of one user can grow to. Both follow from the bounds of observed values (`language/bounds.py`) and
of accumulators (`aggregates/`, `engine/sequences/bounds.py`); `benchmarks/worst_cost.py` measures the most expensive definitions.
Conditions that occur twice count twice. Not contained: timers, and events that arrive late in a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar, assert_never

from starling_segments.aggregates.lifetime import EXACT
from starling_segments.language.bounds import MAX_COMBINATIONS, MAX_COMPARED_TEXTS, MAX_ELEMENTS, MAX_TEXT
from starling_segments.language.operators import OPERATORS, operands
from starling_segments.language.tree import (
    Account,
    Ago,
    Bucket,
    Calendar,
    Check,
    Compared,
    Condition,
    EventMeasure,
    EventSelector,
    Everyone,
    Filter,
    FirstTime,
    Fixed,
    Group,
    InList,
    InSegment,
    Leaf,
    Measure,
    MeasureName,
    Predicate,
    Regularly,
    Segment,
    Sequence,
    Step,
    StepValue,
    Trait,
    Window,
    Within,
)
from starling_segments.language.validation import CostLimits, DefinitionRefused, FieldError
from starling_segments.parse.filters import checks

T = TypeVar("T")

CURE: Final = "fewer conditions, a shorter pattern, fewer array predicates, or `eq` in every step of a sequence; or two segments"
_ELEMENTS: Final = 0.3 * MAX_ELEMENTS
"""The elements of an array, weighted: a predicate of an element costs less than one that has to find its value."""
_TESTS_OF_A_TRAIT: Final = 2
"""The new value, and the tree. Twice as many if time alone changes the truth."""
_DATE_KNOWN: Final = 3.2
"""The part of a date operator's work for reading the date: the first test of an event puts it into a cache."""
_TESTS_OF_A_VALUE: Final = 12
"""Before and after the event, the tree, and up to eight departures from the window with the value before them."""
_KB: Final = 1 << 10
_LIFETIME: Final[Mapping[MeasureName, tuple[float, int]]] = {
    "count": (4, 64),
    "sum": (5, 512),
    "avg": (8, 512),
    "min": (4, 64),
    "max": (4, 64),
    "first": (5, 34 * _KB),
    "last": (5, 34 * _KB),
    "distinct": (130, 16 * _KB),
    "most_frequent": (110, 200 * _KB),
    "percentile": (40, 8 * _KB),
    "first_time": (4, 64),
    "last_time": (4, 64),
    "days": (10, 10 * _KB),
}
"""Measure -> (points, bytes) of an accumulator over a lifetime, between two dates, or over one of two calendar periods."""
_WINDOWED: Final[Mapping[MeasureName, tuple[float, int]]] = {
    "count": (15, 8 * _KB),
    "sum": (44, 12 * _KB),
    "avg": (82, 24 * _KB),
    "min": (110, 12 * _KB),
    "max": (110, 12 * _KB),
    "first": (120, 400 * _KB),
    "last": (8, 34 * _KB),
    "distinct": (100, 200 * _KB),
    "most_frequent": (480, 400 * _KB),
    "percentile": (400, 200 * _KB),
    "first_time": (15, 8 * _KB),
    "last_time": (8, 64),
    "days": (40, 24 * _KB),
}
"""The same in a sliding window."""


@dataclass(frozen=True, slots=True)
class Part:
    """The cost of one place of a definition. `pointer`: JSON pointer."""

    pointer: str
    work: float
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """The worst-case cost of a definition. `work`: points an event; `state_bytes`: of one user; `parts`: where they come from."""

    work: int
    state_bytes: int
    parts: tuple[Part, ...]


def cost_of(condition: Condition, pointer: str = "") -> Cost:
    """Return the cost of a condition at a JSON pointer of its document."""
    parts = tuple(_condition_parts(condition, pointer))
    return Cost(round(sum(part.work for part in parts)), sum(part.state_bytes for part in parts), parts)


def cost_of_segment(segment: Segment) -> Cost:
    """Return the cost of a segment."""
    return cost_of(segment.where, "/where")


def refuse_costly(condition: Condition, pointer: str, limits: CostLimits | None) -> None:
    """Raise DefinitionRefused if the condition is above a limit. The error names the most expensive place."""
    if limits is None:
        return
    cost = cost_of(condition, pointer)
    errors = []
    if cost.work > limits.work:
        most = max(cost.parts, key=lambda part: part.work)
        message = f"an event can cost {cost.work:,} points of work, {most.work:,.0f} of them here; the limit is {limits.work:,}"
        errors.append(FieldError(most.pointer, "too_costly", message, CURE))
    if cost.state_bytes > limits.state_bytes:
        largest = max(cost.parts, key=lambda part: part.state_bytes)
        message = (
            f"a user can have {cost.state_bytes:,} bytes of state, {largest.state_bytes:,} of them here; "
            f"the limit is {limits.state_bytes:,}"
        )
        errors.append(FieldError(largest.pointer, "too_costly", message, CURE))
    if errors:
        raise DefinitionRefused(tuple(errors))


def _condition_parts(condition: Condition, pointer: str) -> Iterator[Part]:
    if isinstance(condition, Group):
        yield Part(pointer, 0.3)
        for part, child in _children(condition, pointer):
            yield from _condition_parts(part, child)
    else:
        yield from _leaf_parts(condition, pointer)


def _leaf_parts(leaf: Leaf, pointer: str) -> Iterator[Part]:
    match leaf:
        case Trait():
            tests = _TESTS_OF_A_TRAIT * (1 if leaf.predicate.next_change is None else 2)
            yield Part(pointer, 2 + tests * _path_work(leaf.path), 16 if leaf.held_for_ms or leaf.held_less_than_ms else 0)
            yield from _predicate_parts(leaf.predicate, pointer)
            yield from _times(tests - 1, _predicate_parts(leaf.predicate, pointer, repeated=True))
        case EventMeasure():
            measure = leaf.measure
            if isinstance(measure, Measure):
                yield from _measure_parts(measure, pointer)
            else:
                yield from _measure_parts(measure.of, f"{pointer}/measure/ratio/of")
                yield from _measure_parts(measure.to, f"{pointer}/measure/ratio/to")
            yield from _times(_TESTS_OF_A_VALUE, _predicate_parts(leaf.predicate, pointer))
        case FirstTime():
            yield Part(pointer, 8, 32)
            yield from _selector_parts(leaf.event, f"{pointer}/first_time")
        case Regularly():
            yield Part(pointer, 10 + 0.5 * leaf.of, 32 + 18 * leaf.of)
            yield from _selector_parts(leaf.event, f"{pointer}/regularly")
        case Sequence():
            yield from _sequence_parts(leaf, pointer)
        case Account():
            yield from _times(2, _condition_parts(leaf.where, f"{pointer}/account/where"))
        case Bucket():
            yield Part(pointer, 60)  # the hash of a salt and an id of the largest size
        case InSegment() | InList() | Everyone():
            yield Part(pointer, 1)
        case _:
            assert_never(leaf)


def _measure_parts(measure: Measure, pointer: str) -> Iterator[Part]:
    work, state_bytes = _measured(measure.name, measure.window)
    yield Part(pointer, work + (0 if measure.path is None else _path_work(measure.path)), state_bytes)
    yield from _selector_parts(measure.event, pointer)


def _measured(name: MeasureName, window: Window | None) -> tuple[float, int]:
    match window:
        case Within():
            return _WINDOWED[name]
        case Ago():  # matches that are not old enough yet are kept in the same way
            work, state_bytes = _WINDOWED[name]
            return 1.5 * work, 2 * state_bytes
        case Calendar():
            work, state_bytes = _LIFETIME[name]
            return 10 + work, 2 * state_bytes
        case Fixed() | None:
            return _LIFETIME[name]
        case _:
            assert_never(window)


def _selector_parts(event: EventSelector, pointer: str) -> Iterator[Part]:
    if event.where is not None:
        yield from _filter_parts(event.where, f"{pointer}/where")


def _filter_parts(where: Filter, pointer: str, *, repeated: bool = False) -> Iterator[Part]:
    if isinstance(where, Group):
        yield Part(pointer, 0.2)
        for part, child in _children(where, pointer):
            yield from _filter_parts(part, child, repeated=repeated)
        return
    yield Part(pointer, 0.1 + (0.0 if where.path is None else _path_work(where.path)))
    if isinstance(where, Check):
        yield from _predicate_parts(where.predicate, pointer, repeated=repeated)
    else:
        yield Part(pointer, _comparison_work(where))


def _predicate_parts(predicate: Predicate, pointer: str, *, repeated: bool = False) -> Iterator[Part]:
    operator = OPERATORS[predicate.op]
    if operator.filters:
        yield Part(pointer, 0.1 * MAX_ELEMENTS)
        yield from _times(_ELEMENTS, _filter_parts(predicate.operand, f"{pointer}/where", repeated=repeated))
    else:
        # Texts are folded up to the length of the longest operand (`parse/filters.py`).
        folding = 0.0 if not predicate.ignore_case else 0.5 + 0.0015 * max(map(len, operands.scalars_of(predicate.operand)))
        known = _DATE_KNOWN if repeated and operator.zoned else 0.0
        yield Part(pointer, operator.work(predicate.operand) - known + folding)


def _comparison_work(compared: Compared) -> float:
    """The operand is read and prepared for each event."""
    operator = OPERATORS[compared.op]
    other = 0.0 if isinstance(compared.other, StepValue) else _path_work(compared.other.path)
    folding = 50.0 if compared.ignore_case else 0.0
    if operator.operand is operands.TEXTS:
        return 20 + other + operator.work(["x" * (MAX_TEXT // 2)] * MAX_COMPARED_TEXTS)
    if operator.operand is operands.SCALARS:
        return 20 + other + folding + 0.1 * MAX_ELEMENTS + operator.work([])
    return 20 + other + folding + operator.work(None)


def _path_work(path: str) -> float:
    parts = path.split(".")
    return 0.06 * len(parts) + 0.1 * MAX_ELEMENTS * parts.count("*")


def _sequence_parts(sequence: Sequence, pointer: str) -> Iterator[Part]:
    """A step looks back at the stored events, and at every combination of values that its comparisons refer to."""
    keeps = False
    for i, step in enumerate(sequence.steps):
        here = f"{pointer}/sequence/{i}"
        yield Part(here, 3 + (0.25 if step.for_ms else 0.04) * EXACT + _combination_work(sequence.steps, i))
        yield from _selector_parts(step.event, here + "/not" if step.negative else here)
        keeps = keeps or any(True for _ in _references(step))
    yield Part(pointer, 60, (400 if keeps else 24) * _KB)


def _combination_work(steps: tuple[Step, ...], i: int) -> float:
    """The work of step i on the values of earlier steps that it or a later step refers to.

    An event continues every combination of them. Only a step that requires each of them to equal one of its own keeps one.
    """
    needed = _needed(steps, i)
    if not needed:
        return 0
    between = range(min(step for step, _ in needed) + 1, i)
    if any(not steps[j].negative and not _keeps_one(steps, j) for j in between):
        return 0.95 * MAX_COMBINATIONS
    return (0.5 if _keeps_one(steps, i) else 0.9) * EXACT


def _needed(steps: tuple[Step, ...], i: int) -> set[tuple[int, str]]:
    """Return (step, path) of each value of a step before i that step i or a later one refers to."""
    return {(value.step, value.path) for later in steps[i:] for value in _references(later) if value.step < i}


def _keeps_one(steps: tuple[Step, ...], i: int) -> bool:
    return _needed(steps, i) <= {(value.step, value.path) for value in _required(steps[i].event.where)}


def _required(where: Filter | None) -> Iterator[StepValue]:
    """Return the values that an event must equal, whatever else its step requires."""
    if isinstance(where, Group):
        if where.kind == "all":
            for part in where.parts:
                yield from _required(part)
    elif isinstance(where, Compared) and where.op == "eq" and isinstance(where.other, StepValue):
        yield where.other


def _references(step: Step) -> Iterator[StepValue]:
    for check in checks(step.event.where):
        if isinstance(check, Compared) and isinstance(check.other, StepValue):
            yield check.other


def _children(group: Group[T], pointer: str) -> Iterator[tuple[T, str]]:
    if group.kind == "not":
        yield group.parts[0], f"{pointer}/not"
    else:
        for i, part in enumerate(group.parts):
            yield part, f"{pointer}/{group.kind}/{i}"


def _times(times: float, parts: Iterable[Part]) -> Iterator[Part]:
    return (replace(part, work=part.work * times) for part in parts)
