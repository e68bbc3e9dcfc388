"""Pure core: compiles a sequence to its leaf node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from starling_segments.aggregates.values import storable
from starling_segments.engine.sequences.parts import Capture, Slot, Stage, StepTest
from starling_segments.engine.sequences.sequence import SequenceLeaf
from starling_segments.language import paths
from starling_segments.language.tree import Compared, EventSelector, Filter, Sequence, Source, Step, StepValue, TraitValue
from starling_segments.parse.filters import checks, compile_filter, uses_traits

_SOURCES = {"property": "properties", "context": "context"}


def compile_sequence(found: str, sequence: Sequence) -> SequenceLeaf:
    """Return the leaf node of a sequence."""
    stages = tuple(_stages(sequence.steps))
    captures = tuple(
        sorted(_captures(sequence.steps), key=lambda capture: capture.name)
    )  # independent of the order of checks in the definition
    places = {capture.name: place for place, capture in enumerate(captures)}
    slots = tuple(_slots(sequence.steps, stage.step, places) for stage in stages)
    return SequenceLeaf(
        found,
        tuple(_test(step.event, places) for step in sequence.steps),
        stages,
        sequence.within_ms,
        _horizon_ms(sequence),
        captures,
        slots,
        any(uses_traits(step.event.where) for step in sequence.steps),
        tuple(k for k, stage in enumerate(stages) if stage.pause_ms is not None),
    )


def immediate_filter(where: Filter | None) -> Filter | None:
    """Return the filter that can be evaluated when an event arrives; None if it refers to earlier steps."""
    return None if _looks_back(where) else where


def _looks_back(where: Filter | None) -> bool:
    return any(isinstance(check, Compared) and isinstance(check.other, StepValue) for check in checks(where))


def _stages(steps: tuple[Step, ...]) -> Iterator[Stage]:
    forbidden: list[int] = []
    after_ms = 0
    for i, step in enumerate(steps):
        if step.negative and step.for_ms is None:
            forbidden.append(i)
            continue
        after_ms = 0 if step.for_ms is None else after_ms + step.for_ms
        yield Stage(i, step.for_ms, after_ms, step.within_ms, tuple(forbidden))
        forbidden = []


def _horizon_ms(sequence: Sequence) -> int | None:
    """Return the maximum age of the first event of a chain that still counts; None: unlimited."""
    events = [step for step in sequence.steps[1:] if not step.negative]
    if sequence.within_ms is None or any(step.within_ms is None for step in events):
        return None
    return sequence.within_ms + sum((step.within_ms or 0) + (step.for_ms or 0) for step in sequence.steps)


def _test(selector: EventSelector, places: Mapping[str, int]) -> StepTest:
    where = selector.where
    if where is None:
        return StepTest(selector.name, None, None)
    if _looks_back(where):
        return StepTest(selector.name, None, compile_filter(where, partial(_of_record, places), partial(_of_chain, places)))
    return StepTest(selector.name, compile_filter(where), None)


def _of_record(places: Mapping[str, int], source: Source, path: str) -> Callable[[Any], Any]:
    place = places[f"{_SOURCES[source]}:{path}"]
    return lambda record: record.kept[place]


def _of_chain(places: Mapping[str, int], other: TraitValue | StepValue) -> Callable[[Any], Any]:
    if isinstance(other, TraitValue):
        place = places[f"traits:{other.path}"]
        return lambda record: record.kept[place]
    slot = f"{other.step}:{other.path}"
    return lambda record: record.bound.get(slot)


def _captures(steps: tuple[Step, ...]) -> Iterator[Capture]:
    """Return the values to capture of each event: both sides of comparisons with earlier steps."""
    names: dict[str, Capture] = {}
    for step in steps:
        if not _looks_back(step.event.where):
            continue
        for check in checks(step.event.where):
            wanted = [(_SOURCES[check.source], check.path or "")]
            if isinstance(check, Compared):
                wanted.append(("traits" if isinstance(check.other, TraitValue) else "properties", check.other.path))
            for source, path in wanted:
                names.setdefault(f"{source}:{path}", Capture(f"{source}:{path}", source, _kept(paths.reader(path))))
    yield from names.values()


def _kept(read: paths.Reader) -> paths.Reader:
    return lambda found: storable(read(found))


def _slots(steps: tuple[Step, ...], last: int, places: Mapping[str, int]) -> tuple[Slot, ...]:
    """Return the values of step `last` and earlier ones that later steps compare with."""
    found: dict[str, int] = {}
    for step in steps[last + 1 :]:
        for check in checks(step.event.where):
            if isinstance(check, Compared) and isinstance(check.other, StepValue) and check.other.step <= last:
                own = places[f"properties:{check.other.path}"] if check.other.step == last else -1
                found[f"{check.other.step}:{check.other.path}"] = own
    return tuple(sorted(found.items()))
