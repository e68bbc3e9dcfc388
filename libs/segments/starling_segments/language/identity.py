"""Pure core: the canonical identity of a leaf. Two leaves that keep the same data have the same identity.

An event leaf's identity is its event, its `where`, its measure and its window, without `op` and `value`: "3 orders in
30 days" and "10 orders in 30 days" share one accumulator. Another window is another leaf: each keeps just what its own
window needs, so that a leaf never lacks history because a longer window came later.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

from starling_segments.language.tree import (
    Ago,
    Calendar,
    Check,
    Compared,
    EventSelector,
    Filter,
    Fixed,
    Group,
    Measure,
    Predicate,
    Segment,
    Sequence,
    StepValue,
    Window,
    Within,
)  # fmt: skip

LEAVES = 1
"""Which leaves definitions are compiled to. It is part of the name of what is in force, and has to go up with any release in which
the same definition makes another leaf, or what is kept for a leaf can no longer be read: that leaf needs another identity then.
Each task will fold its past into the leaves that a state lacks, once; without, they would silently begin to count at nothing.
`test_segments_stored.py` fails when an identity changes.
"""


def leaf_id(*facts: Any) -> str:
    """Eight characters (48 bits) that stand for the facts; a plan checks that no two of its leaves share them."""
    return urlsafe_b64encode(blake2b(_text(list(facts)).encode(), digest_size=6).digest()).decode()


def measure_facts(measure: Measure) -> list[Any]:
    """What an event measure keeps data for."""
    more = [fact for fact in (measure.q, measure.zone) if fact is not None]
    return [*selector_facts(measure.event), measure.name, measure.path, window_facts(measure.window), *more]


def window_facts(window: Window | None) -> Any:
    """What a window keeps. All periods of one calendar unit are kept together, for "today" and "yesterday" alike."""
    match window:
        case None:
            return None
        case Within(length):
            return length
        case Ago(older, newer):
            return ["ago", older, newer]
        case Fixed(after, before):
            return ["fixed", after, before]
        case Calendar(unit, _, zone):
            return ["calendar", unit, zone]


def sequence_facts(sequence: Sequence) -> list[Any]:
    """What a sequence keeps data for."""
    steps = [[*selector_facts(step.event), step.negative, step.within_ms, step.for_ms] for step in sequence.steps]
    return [steps, sequence.within_ms]


def selector_facts(selector: EventSelector) -> list[Any]:
    """Which events."""
    return [selector.name, filter_facts(selector.where)]


def predicate_facts(predicate: Predicate) -> list[Any]:
    """Equal for predicates that are true of the same values at the same instants."""
    operand = predicate.operand
    plain = filter_facts(operand) if isinstance(operand, Check | Compared | Group) else operand
    return [predicate.op, plain, predicate.zone, predicate.ignore_case]


def filter_facts(tree: Filter | None) -> Any:
    """Order within a group does not count."""
    if tree is None:
        return None
    if isinstance(tree, Group):
        return [tree.kind, sorted((filter_facts(part) for part in tree.parts), key=_text)]
    if isinstance(tree, Compared):
        other = tree.other
        found = ["step", other.step, other.path] if isinstance(other, StepValue) else ["trait", other.path]
        return [tree.source, tree.path, tree.op, found, tree.zone, tree.ignore_case, "compared"]
    return [tree.source, tree.path, *predicate_facts(tree.predicate)]


def condition_facts(part: Any) -> Any:
    """A whole condition, or any part of one: equal for equal conditions, in every process."""
    if is_dataclass(part):
        return [type(part).__name__, *(condition_facts(getattr(part, one.name)) for one in fields(part) if one.repr)]
    return [condition_facts(item) for item in part] if isinstance(part, tuple | list) else part


def meanings(keys: Iterable[str], segments: Mapping[str, Segment]) -> list[Any]:
    """What these segments ask for, and those that they are built on."""
    asked = [(key, segments[key]) for key in sorted(keys)]
    return [[key, condition_facts(segment.where), meanings(segment.uses, segments)] for key, segment in asked]


def _text(facts: Any) -> str:
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))
