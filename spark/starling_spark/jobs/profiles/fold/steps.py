"""Pure core: one user's traits from one set of definitions to the next, with a history of the new ones that was folded apart."""

from starling_segments import decode_state
from starling_spark.jobs.profiles.definitions.plans import TraitPlan
from starling_spark.jobs.profiles.fold.traits import UserTraits

_REPLACED = "?"
"""The published value of a trait that has a new version: no value equals it, so that the next one is published."""


def forget_broken_leaves(user: UserTraits, plan: TraitPlan) -> None:
    """Delete the accumulators of leaves that the plan lacks, or that it had not at all steps since the state was written."""
    state, kept = user.state, {leaf for leaf, since in plan.leaf_since.items() if since <= user.written_at}
    user.written_at = plan.step
    state.accumulators.restrict(kept)
    if state.waiting:
        state.waiting = [match for match in state.waiting if match.leaf in kept]


def advance(user: UserTraits, plan: TraitPlan, step: int, now_ms: int) -> None:
    """Put the traits of a later step in force: values of ended ones are replaced, and new ones with matches are due."""
    spans, before = plan.spans, user.step
    user.step, user.is_waiting = step, False
    replaced: set[tuple[str, str]] = set()
    for index in {*user.published, *user.due}:
        until = spans[index].until
        if until is not None and until <= step:
            user.due.pop(index, None)
            if index in user.published:
                del user.published[index]
                replaced.add((plan.traits[index].workspace, plan.traits[index].key))
    for index, span in enumerate(spans):
        if span.since <= before or not span.covers(step):
            continue
        trait = plan.traits[index]
        if (trait.workspace, trait.key) in replaced:
            user.published[index] = _REPLACED
            user.due[index] = now_ms
        elif index in user.due or _has_matches(user, plan, index):
            user.due[index] = now_ms


def _has_matches(user: UserTraits, plan: TraitPlan, index: int) -> bool:
    reading = plan.readings[index]
    leaves = {plan.measures.leaves[number].id for number in (() if reading is None else reading.leaves)}
    state = user.state
    return any(leaf in state.accumulators for leaf in leaves) or any(match.leaf in leaves for match in state.waiting)


def has_fresh_matches(user: UserTraits, plan: TraitPlan) -> bool:
    """Return whether the user has a match of a trait that the step of the plan adds."""
    return any(
        span.since == plan.step and (index in user.due or _has_matches(user, plan, index)) for index, span in enumerate(plan.spans)
    )


def merge_seed(user: UserTraits, plan: TraitPlan, seed: bytes, now_ms: int) -> None:
    """Put the history of the new leaves in front of what the user's state has of them. Raises: as `MeasurePlan.merge`."""
    merged = plan.measures.merge(decode_state(seed), user.state, now_ms)
    user.state.accumulators, user.state.waiting = merged.accumulators, merged.waiting
