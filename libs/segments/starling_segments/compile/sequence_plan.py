"""Pure core: a sequence as it is written -> a sequence as it is folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from starling_segments.aggregates.values import anything
from starling_segments.engine.sequences.parts import Keep, Slot, Stage, StepTest
from starling_segments.engine.sequences.sequence import SequenceLeaf
from starling_segments.language import paths
from starling_segments.language.tree import Compared, EventSelector, Filter, Sequence, Source, Step, StepValue, TraitValue
from starling_segments.parse.filters import checks, compile_filter, looks_at_traits

_SOURCES = {"property": "properties", "context": "context"}


def sequence_leaf(found: str, sequence: Sequence) -> SequenceLeaf:
    """The leaf of a sequence, under its identity."""
    stages = tuple(_stages(sequence.steps))
    keeps = tuple(sorted(_keeps(sequence.steps), key=lambda keep: keep.name))  # however the definition orders its checks
    places = {keep.name: place for place, keep in enumerate(keeps)}
    slots = tuple(_slots(sequence.steps, stage.step, places) for stage in stages)
    return SequenceLeaf(
        found,
        tuple(_test(step.event, places) for step in sequence.steps),
        stages,
        sequence.within_ms,
        _horizon_ms(sequence),
        keeps,
        slots,
        any(looks_at_traits(step.event.where) for step in sequence.steps),
        tuple(k for k, stage in enumerate(stages) if stage.pause_ms is not None),
    )


def waits_for_steps(where: Filter | None) -> Filter | None:
    """What can be asked of an event when it comes: nothing when it depends on the events before it."""
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
    """How long before now the first event of a chain that still counts can lie; None: any time."""
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


def _keeps(steps: tuple[Step, ...]) -> Iterator[Keep]:
    """Of each event, whatever the steps that look back look at, and what they look back at."""
    names: dict[str, Keep] = {}
    for step in steps:
        if not _looks_back(step.event.where):
            continue
        for check in checks(step.event.where):
            wanted = [(_SOURCES[check.source], check.path or "")]
            if isinstance(check, Compared):
                wanted.append(("traits" if isinstance(check.other, TraitValue) else "properties", check.other.path))
            for source, path in wanted:
                names.setdefault(f"{source}:{path}", Keep(f"{source}:{path}", source, _kept(paths.reader(path))))
    yield from names.values()


def _kept(read: paths.Reader) -> paths.Reader:
    return lambda found: anything(read(found))


def _slots(steps: tuple[Step, ...], last: int, places: Mapping[str, int]) -> tuple[Slot, ...]:
    """What steps after `last` ask of it and of those before it."""
    found: dict[str, int] = {}
    for step in steps[last + 1 :]:
        for check in checks(step.event.where):
            if isinstance(check, Compared) and isinstance(check.other, StepValue) and check.other.step <= last:
                own = places[f"properties:{check.other.path}"] if check.other.step == last else -1
                found[f"{check.other.step}:{check.other.path}"] = own
    return tuple(sorted(found.items()))
