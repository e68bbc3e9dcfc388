"""Pure core: each workspace's definitions, compiled once and asked for every event."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from starling_rules.definitions import Definition, Definitions
from starling_segments import Evaluator, Plan, plan_in_force


@dataclass(frozen=True, slots=True)
class Rules:
    """One workspace's segments. `definitions` has the archived ones too, `plan` and its `evaluator` have not.

    `reads`: whether any of them looks into events of a name; `reads_context`: whether they look at events' context.
    """

    plan: Plan
    evaluator: Evaluator
    definitions: Mapping[str, Definition]
    reads: Callable[[str], bool]
    reads_context: bool


def compiled(definitions: Mapping[str, Definition]) -> Rules:
    """Raises: InvalidPlan if segments are built on others that are not there; the fold of definitions keeps that from happening."""
    in_force = [definition for definition in definitions.values() if not definition.archived]
    paused = {definition.segment.key for definition in in_force if definition.paused}
    plan = plan_in_force([definition.segment for definition in in_force], paused)
    reads_context = any(definition.reads_context for definition in in_force)
    return Rules(plan, Evaluator(plan), definitions, lru_cache(4096)(plan.reads), reads_context)


NO_RULES: Final = compiled({})
"""Of a workspace without segments: its users are kept as known, so that a later segment finds them."""


def compile_rules(definitions: Definitions, before: Mapping[bytes, Rules]) -> Mapping[bytes, Rules]:
    """Workspace (as in record keys) -> its rules; what did not change since `before` is not compiled again."""
    return {
        workspace.encode(): _unchanged(before.get(workspace.encode()), here) or compiled(here)
        for workspace, here in definitions.by_workspace.items()
    }


def _unchanged(rules: Rules | None, definitions: Mapping[str, Definition]) -> Rules | None:
    return rules if rules is not None and rules.definitions is definitions else None
