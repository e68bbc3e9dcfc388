"""Pure core: reads and compiles predicates, and filters over one event or one array item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starling_segments.language import paths
from starling_segments.language.bounds import MAX_ELEMENTS
from starling_segments.language.operators import OPERATORS, operands
from starling_segments.language.operators.operands import is_number, scalars_of
from starling_segments.language.operators.table import NUMBER, NextChange, Operator, Test
from starling_segments.language.tree import Check, Compared, Filter, Group, Predicate, Source, TraitValue
from starling_segments.language.validation import UTC, Location, refuse_unknown_fields
from starling_segments.parse.comparisons import Scope, read_comparison, refers
from starling_segments.parse.groups import combine, group_kind, read_group, read_object

EVENT_SOURCES: tuple[Source, ...] = ("property", "context")
EVENT = Scope(EVENT_SOURCES, traits=True)
ITEM = Scope()
_MIXED_OPERANDS = (operands.SCALAR, operands.SCALARS, operands.ORDERED, operands.RANGE)


def read_predicate(node: Mapping[str, Any], location: Location, own: frozenset[str], fits: str = "") -> Predicate | None:
    """Read `op`, `value` and so on of a node whose other fields are `own`.

    `fits`: the type of the observed value, if known; an operator that does not apply to it is refused.
    """
    name = node.get("op")
    operator = OPERATORS.get(name) if isinstance(name, str) else None
    refuse_unknown_fields(node, own | _fields(operator), location)
    if "op" not in node:
        location.refuse("missing_field", "the operator is missing", '"op": one of ' + ", ".join(OPERATORS))
    elif not isinstance(name, str):
        location.at("op").refuse("wrong_type", "the operator is not a string", "one of " + ", ".join(OPERATORS))
    elif operator is None:
        location.at("op").refuse("unknown_operator", f"unknown operator {name!r}", "one of " + ", ".join(OPERATORS))
    elif fits and fits not in operator.fits:
        location.at("op").refuse(
            "operator_does_not_fit", f"operator {name!r} does not apply to a {fits}", "one of " + _fitting(fits)
        )
    elif operator.filters:
        return _read_item_predicate(name, operator, node, location)
    else:
        return _read_value_predicate(name, operator, node, location, fits)
    return None


def _fields(operator: Operator | None) -> frozenset[str]:
    if operator is None:
        return frozenset({"op", "value", "where", "ignore_case"})
    value = {"where"} if operator.filters else set() if operator.operand is operands.NOTHING else {"value"}
    return frozenset({"op"} | value | ({"ignore_case"} if operator.ignores_case else set()))


def _fitting(kind: str) -> str:
    return ", ".join(name for name, operator in OPERATORS.items() if kind in operator.fits)


def _read_value_predicate(
    name: str, operator: Operator, node: Mapping[str, Any], location: Location, fits: str
) -> Predicate | None:
    ignore_case = _read_ignore_case(node, location)
    if operator.operand is operands.NOTHING:
        return predicate(name, ())
    if node.get("value") is None:
        location.refuse("missing_field", f"operator {name!r} requires a value", '"value"')
        return None
    operand = operator.operand.read(node["value"], location.at("value"))
    if operand is None or ignore_case is None:
        return None
    if fits == NUMBER and operator.operand in _MIXED_OPERANDS and not all(map(is_number, scalars_of(operand))):
        location.at("value").refuse("wrong_type", "the measure is a number, the value is not", "a number")
        return None
    if ignore_case and not all(type(item) is str for item in scalars_of(operand)):
        location.at("ignore_case").refuse("operator_does_not_fit", "ignore_case applies to text only", "a text value")
        return None
    return predicate(name, operand, location, ignore_case)


def _read_ignore_case(node: Mapping[str, Any], location: Location) -> bool | None:
    flag = node.get("ignore_case", False)
    if isinstance(flag, bool):
        return flag
    location.at("ignore_case").refuse("wrong_type", "the value is not a boolean", "true or false")
    return None


def predicate(name: str, operand: Any, location: Location | None = None, ignore_case: bool = False) -> Predicate:
    """Return the predicate for an operand in canonical form."""
    operator = OPERATORS[name]
    zone = UTC if location is None else location.validation.zone
    moving = operator.next_change(operand, zone) if operator.next_change else None
    named = zone.key if operator.zoned else None
    if not ignore_case:
        return Predicate(name, operand, named, ignore_case, operator.build(operand, zone), moving)
    folded = [item.casefold() for item in operand] if isinstance(operand, list) else operand.casefold()
    test, longest = operator.build(folded, zone), max(map(len, scalars_of(folded)))

    def holds(value: Any, now: int) -> bool:
        # Folding never shortens a text: one that is longer than every operand equals none of them.
        return test(value.casefold() if type(value) is str and len(value) <= longest else value, now)

    return Predicate(name, folded, named, ignore_case, holds, moving)


def _read_item_predicate(name: str, operator: Operator, node: Mapping[str, Any], location: Location) -> Predicate | None:
    if "where" not in node:
        location.refuse("missing_field", f"operator {name!r} requires a condition on the items", '"where"')
        return None
    where = read_filter(node["where"], location.at("where"), ITEM)
    if where is None:
        return None
    holds = operator.build(compile_filter(where), location.validation.zone)
    return Predicate(name, where, None, False, holds, _next_change_of_items(where))


def read_filter(node: object, location: Location, scope: Scope) -> Filter | None:
    """Read a filter over the values of the scope: `property` and `context` of an event, or one array item."""
    fields = read_object(node, location, "a predicate, or a group of them")
    if fields is None:
        return None
    kind = group_kind(fields)
    if kind is not None:
        return read_group(fields, kind, location, lambda part, child: read_filter(part, child, scope))
    if not location.count_condition():
        return None
    sources = scope.sources
    source = next((source for source in sources if source in fields), None) if sources else "item"
    if source is None:
        location.refuse("missing_field", "the source of the value is missing", "one of " + ", ".join(sources))
    path = fields.get(source) if source else None
    fine = path is None or paths.is_path(path)
    if not fine or (source in fields and path is None):
        location.at(source or "").refuse("wrong_type", "the value is not a path", paths.EXPECTED)
        fine = False
    if source and refers(fields.get("value")):
        compared = read_comparison(fields, location, source, path if fine and path else "", scope)
        return compared if fine else None
    found = read_predicate(fields, location, frozenset({source} if source else sources))
    return Check(source, path, found) if found and source and fine else None


Access = Callable[[Source, str], Callable[[Any], Any]]
"""(source, path) -> function from the subject of a filter to that value."""
Other = Callable[[Any], Callable[[Any], Any]]
"""The other value of a comparison -> function from the subject of a filter to that value."""


def of_event(source: Source, path: str) -> Callable[[Any], Any]:
    """Read a value of a subject with `properties` and `context`."""
    read = paths.reader(path)
    if source == "property":
        return lambda event: read(event.properties)
    return lambda event: read(event.context)


def of_traits(other: Any) -> Callable[[Any], Any]:
    """Read a value of a subject with `traits`."""
    read = paths.reader(other.path)
    return lambda subject: read(subject.traits)


def compile_filter(tree: Filter, access: Access = of_event, other: Other = of_traits) -> Test:
    """Return the test of a filter for a subject and an instant. A comparison with traits needs a subject with `traits`."""
    if isinstance(tree, Group):
        return combine(tree.kind, [compile_filter(part, access, other) for part in tree.parts])
    if isinstance(tree, Compared):
        value, found, compare = access(tree.source, tree.path), other(tree.other), tree.holds
        return lambda subject, now: compare(value(subject), found(subject), now)
    holds = tree.predicate.holds
    if tree.source == "item":
        read_item = paths.item_reader(tree.path)
        return lambda item, now: holds(read_item(item), now)
    if access is not of_event:
        value = access(tree.source, tree.path or "")
        return lambda subject, now: holds(value(subject), now)
    read = paths.reader(tree.path or "")
    if tree.source == "property":  # one call less than through `of_event`
        return lambda event, now: holds(read(event.properties), now)
    return lambda event, now: holds(read(event.context), now)


def checks(tree: Filter | None) -> Iterator[Check | Compared]:
    """Iterate over the predicates of a filter, except those inside array predicates."""
    if isinstance(tree, Group):
        for part in tree.parts:
            yield from checks(part)
    elif tree is not None:
        yield tree


def uses_traits(tree: Filter | None) -> bool:
    """Return whether a filter compares with a trait."""
    return any(isinstance(check, Compared) and isinstance(check.other, TraitValue) for check in checks(tree))


def uses_context(tree: Filter | None) -> bool:
    """Return whether a filter reads an event's context."""
    return any(check.source == "context" for check in checks(tree))


def _next_change_of_items(where: Filter) -> NextChange | None:
    moving = list(_moving_checks(where))
    if not moving:
        return None

    def after(value: Any, now: int) -> int | None:
        items = value[:MAX_ELEMENTS] if type(value) is list else ()
        changes_at = (change(read(item), now) for read, change in moving for item in items)
        return min((change_at for change_at in changes_at if change_at is not None), default=None)

    return after


def _moving_checks(where: Filter) -> list[tuple[Callable[[Any], Any], NextChange]]:
    if isinstance(where, Group):
        return [check for part in where.parts for check in _moving_checks(part)]
    change = None if isinstance(where, Compared) else where.predicate.next_change
    return [] if change is None else [(paths.item_reader(where.path), change)]
