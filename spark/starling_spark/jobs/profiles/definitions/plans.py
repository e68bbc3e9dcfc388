"""Pure core: computed traits -> one plan for each workspace, which matches, folds and reads all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from starling_segments import Measure, MeasurePlan, Ratio, compile_measures
from starling_segments.measures import CompiledMeasure
from starling_spark.jobs.profiles.definitions.entries import Entry
from starling_spark.jobs.profiles.definitions.in_force import Trait, read_definitions


class Span(NamedTuple):
    """The steps of a trait: as `Entry`."""

    since: int = 0
    until: int | None = None

    def covers(self, step: int) -> bool:
        """Return whether the trait is in force after that step."""
        return self.since <= step and (self.until is None or self.until > step)


@dataclass(frozen=True, slots=True)
class TraitPlan:
    """The traits of one workspace. A trait's index is its index in `traits`; numbers are those of `measures`.

    `readings`: one for each trait, None without a measure. `concerned`: number of a leaf or mark -> its traits after the step
    `step`; `before`: the same before it. `spans`: the steps of each trait. `leaf_since`: leaf id -> the step since which the
    accumulators of the leaf are complete without a break.
    """

    traits: tuple[Trait, ...]
    measures: MeasurePlan
    readings: tuple[CompiledMeasure | None, ...]
    concerned: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    spans: tuple[Span, ...]
    leaf_since: Mapping[str, int] = field(default_factory=dict)
    step: int = 0

    @property
    def is_first(self) -> bool:
        """Return whether the query begins with the step, so that earlier queries may have published values of its traits."""
        return self.step > 0 and all(span.since == self.step for span in self.spans)

    @property
    def concerns_all(self) -> bool:
        """Return whether the step concerns users without a history to merge: it ends a trait or a version, whose value they may
        have, or a new trait counts what their states have counted before.
        """
        fresh = self.fresh_leaves()
        new = [reading for span, reading in zip(self.spans, self.readings, strict=True) if span.since == self.step and reading]
        counted = {self.measures.leaves[number].id for reading in new for number in reading.leaves}
        return not counted <= fresh or any(span.until == self.step for span in self.spans)

    def fresh_leaves(self) -> frozenset[str]:
        """Return the ids of the leaves whose history no state has."""
        return frozenset(leaf for leaf, since in self.leaf_since.items() if since == self.step > 0)


def compile_entries(entries: Sequence[Entry], step: int = 0, *, is_complete: bool = True) -> Mapping[str, TraitPlan]:
    """Return the plans by workspace. `is_complete`: no user has a value of a trait that the step ended."""
    spans = [Span(entry.since, entry.until) for entry in entries]
    return compile_traits(read_definitions([entry.definition for entry in entries])[0], spans, step, is_complete=is_complete)


def compile_traits(
    traits: Sequence[Trait], spans: Sequence[Span] | None = None, step: int = 0, *, is_complete: bool = True
) -> Mapping[str, TraitPlan]:
    """As `compile_entries`, of traits that are read. Without `spans` all are in force from the beginning."""
    by_workspace: dict[str, list[tuple[Trait, Span]]] = {}
    for trait, span in zip(traits, spans if spans is not None else [Span()] * len(traits), strict=True):
        by_workspace.setdefault(trait.workspace, []).append((trait, span))
    ended = step if is_complete else step - 1
    return {workspace: _plan(group, step, ended) for workspace, group in by_workspace.items()}


def _plan(group: Sequence[tuple[Trait, Span]], step: int, ended: int) -> TraitPlan:
    """`ended`: traits up to this step are no longer folded; they keep their index."""
    spans = tuple(span for _, span in group)
    traits = tuple(trait if span.until is None or span.until > ended else _without_measure(trait) for trait, span in group)
    marks = [(index, selector) for index, trait in enumerate(traits) for selector in trait.former]
    measured = [index for index, trait in enumerate(traits) if trait.measure is not None]
    measures = compile_measures(
        [trait.measure for trait in traits if trait.measure is not None], [selector for _, selector in marks]
    )
    readings: list[CompiledMeasure | None] = [None] * len(traits)
    reads: list[list[int]] = [[] for _ in measures.leaves] + [[index] for index, _ in marks]
    for index, reading in zip(measured, measures.compiled, strict=True):
        readings[index] = reading
        for number in dict.fromkeys(reading.leaves):
            reads[number].append(index)
    after, before = ({index for index, span in enumerate(spans) if span.covers(one)} for one in (step, max(0, step - 1)))
    return TraitPlan(
        traits,
        measures,
        tuple(readings),
        tuple(tuple(index for index in own if index in after) for own in reads),
        tuple(tuple(index for index in own if index in before) for own in reads),
        spans,
        _leaf_since([leaf.id for leaf in measures.leaves], group, step),
        step,
    )


def _without_measure(trait: Trait) -> Trait:
    return Trait(trait.workspace, trait.key, trait.version, None, ())


def _leaf_since(leaves: Sequence[str], group: Sequence[tuple[Trait, Span]], step: int) -> dict[str, int]:
    if step == 0:
        return dict.fromkeys(leaves, 0)
    spans: dict[str, list[Span]] = {}
    for trait, span in group:
        for leaf in () if trait.measure is None else _leaves_of(trait.measure):
            spans.setdefault(leaf, []).append(span)
    return {leaf: _unbroken_since(spans[leaf], step) for leaf in leaves}


def _unbroken_since(spans: Sequence[Span], step: int) -> int:
    def is_covered(one: int) -> bool:
        return any(span.covers(one) for span in spans)

    since = step if is_covered(step) else step - 1  # the leaf of a trait that the step ends
    while since > 0 and is_covered(since - 1):
        since -= 1
    return since


@lru_cache(maxsize=4096)
def _leaves_of(measure: Measure | Ratio) -> tuple[str, ...]:
    return tuple(leaf.id for leaf in compile_measures([measure]).leaves)
