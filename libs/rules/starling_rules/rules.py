"""Pure core: the compiled segments of each workspace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from starling_rules.definitions import Definition, Definitions
from starling_segments import Evaluator, Plan, plan_in_force


@dataclass(frozen=True, slots=True)
class Rules:
    """One workspace's segments. `definitions` includes the archived ones; `plan` and its `evaluator` do not.

    `reads`: returns whether a segment reads the properties of events of that name; `reads_context`: whether one reads the
    context of events.
    """

    plan: Plan
    evaluator: Evaluator
    definitions: Mapping[str, Definition]
    reads: Callable[[str], bool]
    reads_context: bool


def compiled(definitions: Mapping[str, Definition]) -> Rules:
    """Return the rules. Raises: InvalidPlan if a segment uses a missing one, which the fold of definitions prevents."""
    in_force = [definition for definition in definitions.values() if not definition.archived]
    paused = {definition.segment.key for definition in in_force if definition.paused}
    plan = plan_in_force([definition.segment for definition in in_force], paused)
    reads_context = any(definition.reads_context for definition in in_force)
    return Rules(plan, Evaluator(plan), definitions, lru_cache(4096)(plan.reads), reads_context)


NO_RULES: Final = compiled({})
"""For a workspace without segments: the states of its users are stored, so that a later segment can evaluate them."""


def compile_rules(definitions: Definitions, before: Mapping[bytes, Rules]) -> Mapping[bytes, Rules]:
    """Return workspace (as in record keys) -> its rules; workspaces without a change since `before` are not compiled again."""
    return {
        workspace.encode(): _unchanged(before.get(workspace.encode()), here) or compiled(here)
        for workspace, here in definitions.by_workspace.items()
    }


def _unchanged(rules: Rules | None, definitions: Mapping[str, Definition]) -> Rules | None:
    return rules if rules is not None and rules.definitions is definitions else None
