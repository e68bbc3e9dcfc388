"""Pure core: the ids of leaf nodes. Leaf nodes with the same data have the same id.

The id of an event condition's leaf node depends on event, `where`, measure and window, but not on `op` and `value`: "3 orders in
30 days" and "10 orders in 30 days" share one accumulator. Another window is another leaf node, which stores only what this
window needs; a leaf node therefore never lacks history because a longer window was added later.
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
"""The version of the leaf nodes that definitions compile to, part of the name of the plan in force. It must be raised with any
release in which the same definition compiles to another leaf node, or in which an accumulator can no longer be read; that leaf
node then needs another id. Each task then folds its history into the leaf nodes that a state lacks, once; otherwise these would
silently start from zero. `test_segments_stored.py` fails when an id changes.
"""


def leaf_id(*facts: Any) -> str:
    """Return eight characters (48 bits) for the facts; the compiler checks that no two leaf nodes of a plan share them."""
    return urlsafe_b64encode(blake2b(_text(list(facts)).encode(), digest_size=6).digest()).decode()


def measure_facts(measure: Measure) -> list[Any]:
    """Return the facts that determine the data of an event measure."""
    more = [fact for fact in (measure.q, measure.zone) if fact is not None]
    return [*selector_facts(measure.event), measure.name, measure.path, window_facts(measure.window), *more]


def window_facts(window: Window | None) -> Any:
    """Return the facts of a window. All periods of a calendar unit share their data, such as "today" and "yesterday"."""
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
    """Return the facts that determine the data of a sequence."""
    steps = [[*selector_facts(step.event), step.negative, step.within_ms, step.for_ms] for step in sequence.steps]
    return [steps, sequence.within_ms]


def selector_facts(selector: EventSelector) -> list[Any]:
    """Return the facts of an event selector."""
    return [selector.name, filter_facts(selector.where)]


def predicate_facts(predicate: Predicate) -> list[Any]:
    """Return facts that are equal for predicates with the same truth for all values at all instants."""
    operand = predicate.operand
    plain = filter_facts(operand) if isinstance(operand, Check | Compared | Group) else operand
    return [predicate.op, plain, predicate.zone, predicate.ignore_case]


def filter_facts(tree: Filter | None) -> Any:
    """Return the facts of a filter; the order within a group does not matter."""
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
    """Return the facts of a condition or of a part of it: equal for equal conditions, in every process."""
    if is_dataclass(part):
        return [type(part).__name__, *(condition_facts(getattr(part, one.name)) for one in fields(part) if one.repr)]
    return [condition_facts(item) for item in part] if isinstance(part, tuple | list) else part


def meanings(keys: Iterable[str], segments: Mapping[str, Segment]) -> list[Any]:
    """Return the facts of these segments and of those that they use."""
    used = [(key, segments[key]) for key in sorted(keys)]
    return [[key, condition_facts(segment.where), meanings(segment.uses, segments)] for key, segment in used]


def _text(facts: Any) -> str:
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))
