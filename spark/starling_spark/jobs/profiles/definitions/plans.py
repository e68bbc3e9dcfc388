"""Pure core: computed traits -> one plan for each workspace, which matches, folds and reads all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starling_segments import MeasurePlan, compile_measures
from starling_segments.measures import CompiledMeasure
from starling_spark.jobs.profiles.definitions.in_force import Trait


@dataclass(frozen=True, slots=True)
class TraitPlan:
    """The traits of one workspace. A trait's index is its index in `traits`; numbers are those of `measures`.

    `readings`: one for each trait, None without a measure. `concerned`: number of a leaf or mark -> its traits.
    """

    traits: tuple[Trait, ...]
    measures: MeasurePlan
    readings: tuple[CompiledMeasure | None, ...]
    concerned: tuple[tuple[int, ...], ...]


def compile_traits(traits: Sequence[Trait]) -> Mapping[str, TraitPlan]:
    """Return the plans by workspace."""
    by_workspace: dict[str, list[Trait]] = {}
    for trait in traits:
        by_workspace.setdefault(trait.workspace, []).append(trait)
    return {workspace: _plan(tuple(group)) for workspace, group in by_workspace.items()}


def _plan(traits: tuple[Trait, ...]) -> TraitPlan:
    marks = [(index, selector) for index, trait in enumerate(traits) for selector in trait.former]
    measured = [index for index, trait in enumerate(traits) if trait.measure is not None]
    measures = compile_measures(
        [trait.measure for trait in traits if trait.measure is not None], [selector for _, selector in marks]
    )
    readings: list[CompiledMeasure | None] = [None] * len(traits)
    concerned: list[list[int]] = [[] for _ in measures.leaves] + [[index] for index, _ in marks]
    for index, reading in zip(measured, measures.compiled, strict=True):
        readings[index] = reading
        for number in dict.fromkeys(reading.leaves):
            concerned[number].append(index)
    return TraitPlan(traits, measures, tuple(readings), tuple(map(tuple, concerned)))
