"""Pure core: equality, order, existence, text, pattern, version and number operators."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language import semver
from starling_segments.language.bounds import MAX_TEXT
from starling_segments.language.operators import operands
from starling_segments.language.operators.operands import TYPE_NAMES, compile_pattern
from starling_segments.language.operators.table import (
    ANYTHING,
    FLAG,
    NUMBER,
    NUMBER_TYPES,
    TEXT,
    Operator,
    Test,
    constant_work,
    negative,
)  # fmt: skip

_LITERALS = re.compile(r"(?:[^\\.\[\](){}*+?]|\\[^\w\s])*")
"""A pattern of texts and `|`: its automaton has no more states than characters, so that all of them are cached."""
_CONTAINERS = frozenset({str, list, dict})
_TEXT_TYPES = frozenset({str})


def equals(operand: Any, _zone: ZoneInfo) -> Test:
    """Return a test for strict equality."""
    if type(operand) is bool:
        return lambda value, _now: value is operand
    # `True == 1` in Python, but a boolean must never equal a number. Text equals only text.
    return lambda value, _now: value == operand and type(value) is not bool


def one_of(operand: list[Any], _zone: ZoneInfo) -> Test:
    """Return a test for strict equality with one of the values."""
    flags, others = strict_set(operand)

    def holds(value: Any, _now: int) -> bool:
        if type(value) is bool:
            return value in flags
        return (type(value) is str or type(value) in NUMBER_TYPES) and value in others

    return holds


def strict_set(items: list[Any]) -> tuple[frozenset[bool], frozenset[Any]]:
    """Return (booleans, texts and numbers): in one set `True` and `1` would be one element. Anything else is left out."""
    flags = frozenset([item for item in items if type(item) is bool])
    return flags, frozenset([item for item in items if type(item) is str or type(item) in NUMBER_TYPES])


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, ZoneInfo], Test]:
    def build(operand: Any, _zone: ZoneInfo) -> Test:
        alike = _TEXT_TYPES if type(operand) is str else NUMBER_TYPES
        return lambda value, _now: type(value) in alike and compare(value, operand)

    return build


def _between(operand: list[Any], _zone: ZoneInfo) -> Test:
    low, high = operand
    alike = _TEXT_TYPES if type(low) is str else NUMBER_TYPES
    return lambda value, _now: type(value) in alike and low <= value <= high


def _exists(_operand: Any, _zone: ZoneInfo) -> Test:
    return lambda value, _now: value is not None


def _empty(_operand: Any, _zone: ZoneInfo) -> Test:
    return lambda value, _now: value is None or (type(value) in _CONTAINERS and not value)


def _is_type(operand: str, _zone: ZoneInfo) -> Test:
    return lambda value, _now: TYPE_NAMES.get(type(value)) == operand


def _contains(parts: list[str], _zone: ZoneInfo) -> Test:
    return lambda value, _now: type(value) is str and _has_part(value[:MAX_TEXT], parts)


def _has_part(text: str, parts: list[str]) -> bool:
    return any(part in text for part in parts)


def _contains_work(parts: list[str]) -> float:
    """The search of Python for a part in a short text takes up to the product of their lengths."""
    return sum(0.3 + 0.00013 * len(part) * max(0, MAX_TEXT - len(part)) for part in parts)


def _affix_work(parts: list[str]) -> float:
    return 0.5 + 0.01 * len(parts)


def _starts_with(parts: list[str], _zone: ZoneInfo) -> Test:
    heads = tuple(parts)
    return lambda value, _now: type(value) is str and value.startswith(heads)


def _ends_with(parts: list[str], _zone: ZoneInfo) -> Test:
    tails = tuple(parts)
    return lambda value, _now: type(value) is str and value.endswith(tails)


def _matches(pattern: str, _zone: ZoneInfo) -> Test:
    search, reads_the_end = compile_pattern(pattern).search, "$" in pattern or "\\z" in pattern

    def holds(value: Any, _now: int) -> bool:
        if type(value) is not str:
            return False
        if len(value) <= MAX_TEXT:
            return search(value) is not None
        # The end of the part that is searched is not the end of the text.
        return not reads_the_end and search(value[:MAX_TEXT]) is not None

    return holds


def _matches_work(pattern: str) -> float:
    """RE2 takes a step for each character, and for each instruction where it cannot cache the states of the automaton."""
    if _LITERALS.fullmatch(pattern):
        return 1 + 0.02 * MAX_TEXT
    return 1 + (0.18 + 0.01 * int(compile_pattern(pattern).programsize)) * MAX_TEXT


def _version(compare: Callable[[Any, Any], bool]) -> Callable[[Any, ZoneInfo], Test]:
    def build(operand: str, _zone: ZoneInfo) -> Test:
        wanted = semver.precedence(operand)

        def holds(value: Any, _now: int) -> bool:
            found = semver.precedence(value) if type(value) is str else None
            return found is not None and compare(found, wanted)

        return holds

    return build


def _mod(operand: list[int], _zone: ZoneInfo) -> Test:
    """The remainder is never negative: -1 mod 3 is 2."""
    divisor, remainder = operand
    return lambda value, _now: type(value) in NUMBER_TYPES and value % divisor == remainder


_SCALAR_KINDS = frozenset({TEXT, NUMBER, FLAG})
_ORDERED_KINDS = frozenset({TEXT, NUMBER})
_TEXT_KIND = frozenset({TEXT})
_VERSION_WORK = constant_work(8)

_EQ = Operator(_SCALAR_KINDS, operands.SCALAR, equals, ignores_case=True)
_IN = Operator(_SCALAR_KINDS, operands.SCALARS, one_of, ignores_case=True)
_BETWEEN = Operator(_ORDERED_KINDS, operands.RANGE, _between)
_EXISTS = Operator(ANYTHING, operands.NOTHING, _exists)
_EMPTY = Operator(ANYTHING, operands.NOTHING, _empty)
_CONTAINS = Operator(_TEXT_KIND, operands.TEXTS, _contains, work=_contains_work)
_STARTS = Operator(_TEXT_KIND, operands.TEXTS, _starts_with, work=_affix_work)
_ENDS = Operator(_TEXT_KIND, operands.TEXTS, _ends_with, work=_affix_work)
_MATCHES = Operator(_TEXT_KIND, operands.PATTERN, _matches, work=_matches_work)

OPERATORS: Mapping[str, Operator] = {
    "eq": _EQ,
    "neq": negative(_EQ),
    "in": _IN,
    "not_in": negative(_IN),
    "gt": Operator(_ORDERED_KINDS, operands.ORDERED, _ordered(operator.gt)),
    "gte": Operator(_ORDERED_KINDS, operands.ORDERED, _ordered(operator.ge)),
    "lt": Operator(_ORDERED_KINDS, operands.ORDERED, _ordered(operator.lt)),
    "lte": Operator(_ORDERED_KINDS, operands.ORDERED, _ordered(operator.le)),
    "between": _BETWEEN,
    "not_between": negative(_BETWEEN),
    "exists": _EXISTS,
    "missing": negative(_EXISTS),
    "empty": _EMPTY,
    "not_empty": negative(_EMPTY),
    "is_type": Operator(ANYTHING, operands.TYPE_NAME, _is_type),
    "contains": _CONTAINS,
    "not_contains": negative(_CONTAINS),
    "starts_with": _STARTS,
    "not_starts_with": negative(_STARTS),
    "ends_with": _ENDS,
    "not_ends_with": negative(_ENDS),
    "matches": _MATCHES,
    "not_matches": negative(_MATCHES),
    "semver_eq": Operator(_TEXT_KIND, operands.VERSION, _version(operator.eq), work=_VERSION_WORK),
    "semver_gt": Operator(_TEXT_KIND, operands.VERSION, _version(operator.gt), work=_VERSION_WORK),
    "semver_gte": Operator(_TEXT_KIND, operands.VERSION, _version(operator.ge), work=_VERSION_WORK),
    "semver_lt": Operator(_TEXT_KIND, operands.VERSION, _version(operator.lt), work=_VERSION_WORK),
    "semver_lte": Operator(_TEXT_KIND, operands.VERSION, _version(operator.le), work=_VERSION_WORK),
    "mod": Operator(frozenset({NUMBER}), operands.MODULUS, _mod),
}
