"""Pure core: filters of the language -> conditions of Spark; those without an equivalent are evaluated by the language.

Native: equality, order, existence, text and fixed dates. A filter that has anything else is evaluated as a whole by the filters
of the language (not by its fold): patterns, versions, places, lists, `mod`, moving dates, parts of dates, `ignore_case`,
comparisons with traits, and numbers or paths that Spark does not represent alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any, Final

from pyspark.sql import Column, functions

from starling_segments.language.tree import Check, Compared, Filter, Group
from starling_segments.parse.filters import checks, compile_filter
from starling_spark.jobs.trait_verify.trait import read_sides
from starling_spark.jobs.trait_verify.variants import Value, is_native

_SEARCHED: Final = 1_024
"""The characters of a text that `contains` searches."""
_EXACT: Final = 2**53
_MOST_PARTS: Final = 100
"""Texts of an operator that become one expression."""

Test = Callable[[Value, Any], Column]
"""(value, operand) -> truth, null for false."""


def native(where: Filter | None, properties: Column, context: Column) -> Column | None:
    """Return the condition of a filter; None if a part of it has no equivalent. `properties`, `context`: VARIANT."""
    if where is None:
        return functions.lit(True)
    if foreign_operators(where):
        return None
    return _condition(where, {"property": properties, "context": context})


def foreign_operators(where: Filter | None) -> list[str]:
    """Return what of a filter Spark has no equivalent for, by operator."""
    return sorted({_named(one) for one in checks(where) if not _is_native(one)})


def by_language(document: str, side: int) -> Callable[[int, str, str, str], bool]:
    """Return the test of an event by the language: (time in ms, properties, context, traits) -> whether it matches."""

    def holds(time_ms: int, properties: str, context: str, traits: str) -> bool:
        try:
            return bool(_compiled(document, side)(_Event(properties, context, traits), time_ms))
        except _Unreadable:
            return False

    return holds


@lru_cache(maxsize=16)
def _compiled(document: str, side: int) -> Callable[[Any, int], bool]:
    where = read_sides(document)[side].event.where
    assert where is not None  # noqa: S101 - no filter is native
    return compile_filter(where)


class _Unreadable(Exception):
    """A field of an event is no JSON object; the job `profiles` refuses the event."""


class _Event:
    """An event as the filters of the language look at it; its JSON is read when they do."""

    def __init__(self, properties: str, context: str, traits: str) -> None:
        self._texts = {"properties": properties, "context": context, "traits": traits}

    def __getattr__(self, name: str) -> Mapping[str, Any]:
        try:
            found = json.loads(self._texts[name])
        except (ValueError, TypeError, RecursionError) as cause:
            raise _Unreadable from cause
        if not isinstance(found, dict):
            raise _Unreadable
        setattr(self, name, found)
        return found


def _named(check: Check | Compared) -> str:
    if isinstance(check, Compared):
        return f"{check.op} with a trait"
    return f"{check.predicate.op} with ignore_case" if check.predicate.ignore_case else check.predicate.op


def _is_native(check: Check | Compared) -> bool:
    if isinstance(check, Compared) or check.path is None or check.predicate.ignore_case:
        return False
    op, operand = check.predicate.op, check.predicate.operand
    is_short = op in {"in", "not_in"} or not isinstance(operand, list) or len(operand) <= _MOST_PARTS
    return op in _TESTS and is_short and is_native(check.path) and all(map(_is_alike, _scalars(operand)))


def _scalars(operand: Any) -> Iterator[Any]:
    yield from operand if isinstance(operand, list | tuple) else (operand,)


def _is_alike(operand: Any) -> bool:
    """Return whether a comparison with the nearest double is exact."""
    return type(operand) not in (int, float) or abs(operand) < _EXACT


def _condition(where: Filter, sources: Mapping[str, Column]) -> Column:
    if isinstance(where, Group):
        parts = [_condition(part, sources) for part in where.parts]
        match where.kind:
            case "all":
                return reduce(and_, parts)
            case "any":
                return reduce(or_, parts)
            case "none" | "not":
                return ~reduce(or_, parts)
    assert isinstance(where, Check)  # noqa: S101 - a comparison is foreign
    predicate = where.predicate
    value = Value(sources[where.source], where.path or "")
    test, is_negative = _TESTS[predicate.op]
    zone = predicate.zone or "UTC"
    holds = functions.coalesce(test(value, (predicate.operand, zone)), functions.lit(False))
    return ~holds if is_negative else holds


def _equals(value: Value, operand: Any) -> Column:
    if type(operand) is bool:
        return value.flag == operand
    return value.text == operand if type(operand) is str else value.number == float(operand)


def _is_in(value: Value, given: Any) -> Column:
    flags = [one for one in given[0] if type(one) is bool]
    texts = [one for one in given[0] if type(one) is str]
    numbers = [float(one) for one in given[0] if type(one) in (int, float)]
    found = [column.isin(some) for column, some in ((value.flag, flags), (value.text, texts), (value.number, numbers)) if some]
    return reduce(or_, [functions.coalesce(one, functions.lit(False)) for one in found])


def _ordered(compare: Callable[[Column, Any], Column]) -> Test:
    return lambda value, given: compare(_alike(value, given[0]), _literal(given[0]))


def _alike(value: Value, operand: Any) -> Column:
    return value.text if type(operand) is str else value.number


def _literal(operand: Any) -> Column:
    return functions.lit(operand if type(operand) is str else float(operand))


def _any(test: Callable[[Value, Any], Column]) -> Test:
    return lambda value, given: reduce(or_, [functions.coalesce(test(value, one), functions.lit(False)) for one in given[0]])


def _searched(value: Value) -> Column:
    return functions.left(value.text, functions.lit(_SEARCHED))


def _between(value: Value, given: Any) -> Column:
    (low, high), _ = given
    return _alike(value, low).between(_literal(low), _literal(high))


def _empty(value: Value, _given: Any) -> Column:
    is_bare = (value.text == "") | (value.is_list & (value.json == "[]")) | (value.is_object & (value.json == "{}"))
    return ~value.exists | functions.coalesce(is_bare, functions.lit(False))


def _is_type(value: Value, given: Any) -> Column:
    return {
        "string": value.text.isNotNull(),
        "number": value.is_number,
        "boolean": value.flag.isNotNull(),
        "array": value.is_list,
        "object": value.is_object,
    }[given[0]]


def _date(holds: Callable[[Column, int, int], Column]) -> Test:
    """`holds(instant, start, end)`: the operand is the span `[start, end)` in epoch ms."""
    return lambda value, given: holds(value.instant_ms(given[1]), *given[0])


def _both(positive: str, negation: str, test: Test) -> Mapping[str, tuple[Test, bool]]:
    return {positive: (test, False), negation: (test, True)}


_TESTS: Final[Mapping[str, tuple[Test, bool]]] = {
    **_both("eq", "neq", lambda value, given: _equals(value, given[0])),
    **_both("in", "not_in", _is_in),
    "gt": (_ordered(lambda value, operand: value > operand), False),
    "gte": (_ordered(lambda value, operand: value >= operand), False),
    "lt": (_ordered(lambda value, operand: value < operand), False),
    "lte": (_ordered(lambda value, operand: value <= operand), False),
    **_both("between", "not_between", _between),
    **_both("exists", "missing", lambda value, _given: value.exists),
    **_both("empty", "not_empty", _empty),
    "is_type": (_is_type, False),
    **_both("contains", "not_contains", _any(lambda value, part: _searched(value).contains(part))),
    **_both("starts_with", "not_starts_with", _any(lambda value, part: value.text.startswith(part))),
    **_both("ends_with", "not_ends_with", _any(lambda value, part: value.text.endswith(part))),
    "before": (_date(lambda at, start, _end: at < start), False),
    "after": (_date(lambda at, _start, end: at >= end), False),
    **_both("on", "not_on", _date(lambda at, start, end: (at >= start) & (at < end))),
    "between_dates": (_date(lambda at, start, end: (at >= start) & (at < end)), False),
}
"""Operator -> the test of its positive form, and whether the operator is the negation of it."""
