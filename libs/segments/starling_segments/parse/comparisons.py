"""Pure core: reads comparisons of a value with another one: a trait, or a property of an earlier step of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language import paths
from starling_segments.language.bounds import MAX_COMPARED_TEXTS, MAX_ELEMENTS
from starling_segments.language.dates import read_instant
from starling_segments.language.operators import OPERATORS, operands
from starling_segments.language.operators.table import Comparison, Operator
from starling_segments.language.tree import Compared, Source, StepValue, TraitValue
from starling_segments.language.validation import Known, Location, Validation, refuse_unknown_fields

_NO_REFERENCES = Known()
COMPARING = tuple(
    name
    for name, operator in OPERATORS.items()
    if not operator.filters and operator.operand not in (operands.NOTHING, operands.PATTERN)
)
"""The operators that can compare two values."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The values that a filter may read (none: it is over an array's item), and those that it may compare with.

    `steps`: the earlier steps of a sequence with an event.
    """

    sources: tuple[Source, ...] = ()
    traits: bool = False
    steps: tuple[int, ...] = ()


def refers(value: object) -> bool:
    """Return whether the value refers to another value."""
    return isinstance(value, dict) and not value.keys().isdisjoint(("trait", "step"))


def read_comparison(fields: Mapping[str, Any], location: Location, source: Source, path: str, scope: Scope) -> Compared | None:
    """Read the comparison of a filter's node; None after recording an error."""
    refuse_unknown_fields(fields, frozenset({source, "op", "value", "ignore_case"}), location)
    other = _read_other(fields["value"], location.at("value"), scope)
    name, flag = fields.get("op"), fields.get("ignore_case", False)
    if name is None:
        location.refuse("missing_field", "the operator is missing", '"op": one of ' + ", ".join(COMPARING))
    elif not isinstance(name, str) or name not in OPERATORS:
        code = "unknown_operator" if isinstance(name, str) else "wrong_type"
        location.at("op").refuse(code, f"unknown operator {name!r}", "one of " + ", ".join(COMPARING))
    elif name not in COMPARING:
        location.at("op").refuse(
            "operator_does_not_fit", f"operator {name!r} cannot compare with another value", "one of " + ", ".join(COMPARING)
        )
    elif not isinstance(flag, bool):
        location.at("ignore_case").refuse("wrong_type", "the value is not a boolean", "true or false")
    elif flag and not OPERATORS[name].ignores_case:
        location.at("ignore_case").refuse("unknown_field", f"operator {name!r} does not support ignore_case", "no ignore_case")
    elif other is not None:
        zone = location.validation.zone
        named = zone.key if OPERATORS[name].zoned else None
        return Compared(source, path, name, named, flag, other, comparison(OPERATORS[name], zone, flag))
    return None


def _read_other(value: Mapping[str, Any], location: Location, scope: Scope) -> TraitValue | StepValue | None:
    if "trait" in value:
        refuse_unknown_fields(value, frozenset({"trait"}), location)
        if scope.traits:
            path = read_trait_path(value["trait"], location.at("trait"))
            return None if path is None else TraitValue(path)
        location.refuse("wrong_type", "only an event's property or context can be compared with a trait", "a constant")
        return None
    refuse_unknown_fields(value, frozenset({"step", "property"}), location)
    step, named = value["step"], value.get("property")
    if type(step) is not int or step not in scope.steps:
        steps = ", ".join(map(str, scope.steps)) or "no step precedes this one"
        location.at("step").refuse("wrong_type", "the value is not the number of an earlier step with an event", steps)
    elif not paths.is_path(named):
        code = "missing_field" if named is None else "wrong_type"
        location.at("property").refuse(code, "the value is not a path", paths.EXPECTED)
    else:
        return StepValue(step, str(named))
    return None


def read_trait_path(path: object, location: Location) -> str | None:
    """Read the path of a trait; None after recording an error."""
    known = location.validation.known.computed_traits
    if not isinstance(path, str) or not paths.is_path(path):
        location.refuse("wrong_type", "the value is not a path", paths.EXPECTED)
        return None
    head, _, rest = path.partition(".")
    if head == "computed" and rest.split(".")[0] not in known:
        expected = ", ".join(sorted(known)) or "no computed trait is defined"
        location.refuse("unknown_trait", f"unknown computed trait {path!r}", expected)
    return path


def comparison(operator: Operator, zone: ZoneInfo, ignore_case: bool) -> Comparison:
    """Return a test of a value with another one. A value that the operator does not support is a missing value."""
    location = Location(Validation(_NO_REFERENCES, zone=zone))

    def holds(value: Any, other: Any, now: int) -> bool:
        operand = _operand_of(operator, other, location)
        if operand is None:
            return operator.negates
        if ignore_case:
            operand, value = _folded(operand), _folded(value)
        return operator.build(operand, zone)(value, now)

    return holds


def _operand_of(operator: Operator, other: Any, location: Location) -> Any:
    if operator.operand is operands.DATE and type(other) in (int, float):
        instant = read_instant(other, location.validation.zone)
        return None if instant is None else [instant, instant + 1]
    if type(other) is list:
        other = other[: MAX_COMPARED_TEXTS if operator.operand is operands.TEXTS else MAX_ELEMENTS]
    found = None if other is None else operator.operand.read(other, location)
    location.validation.errors.clear()
    return found


def _folded(value: Any) -> Any:
    if type(value) is list:
        return [_folded(item) for item in value]
    return value.casefold() if type(value) is str else value
