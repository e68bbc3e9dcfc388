"""Pure core: the definition of an operator. Types are strict, and a missing value is None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.operators.operands import Operand

Test = Callable[[Any, int], bool]
"""(observed value, instant in epoch ms) -> truth."""
Comparison = Callable[[Any, Any, int], bool]
"""(observed value, other observed value, instant) -> truth."""
NextChange = Callable[[Any, int], int | None]
"""(observed value, instant) -> the earliest later instant at which time alone changes the truth."""

Work = Callable[[Any], float]
"""operand -> the worst-case work of one test, in points of about a microsecond."""

TEXT, NUMBER, FLAG, DATE, ARRAY, OBJECT = "text", "number", "flag", "date", "array", "object"
ANYTHING = frozenset({TEXT, NUMBER, FLAG, DATE, ARRAY, OBJECT})
NUMBER_TYPES = frozenset({int, float})


def constant_work(points: float) -> Work:
    """Return the work of a test that does not depend on the operand."""
    return lambda _operand: points


SIMPLE_WORK = constant_work(0.1)
"""Comparing two scalars, or looking one up in a set."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: its operand, the types that it applies to, and its test.

    `build(operand, zone)` returns the test. `next_change` is set if time alone changes the truth. `zoned`: the test depends on the
    segment's timezone. `ignores_case`: supports `ignore_case`. `filters`: its operand is a `where` over the items instead of a
    `value`. `negates`: it is the negation of another operator. `work`: the worst-case work of one test; that of `filters` follows
    from their `where`.
    """

    fits: frozenset[str]
    operand: Operand
    build: Callable[[Any, ZoneInfo], Test]
    next_change: Callable[[Any, ZoneInfo], NextChange] | None = None
    zoned: bool = False
    ignores_case: bool = False
    filters: bool = False
    negates: bool = False
    work: Work = SIMPLE_WORK


def negative(positive: Operator) -> Operator:
    """Return the exact negation: true for a missing value whenever the positive operator is false for it."""

    def build(operand: Any, zone: ZoneInfo) -> Test:
        holds = positive.build(operand, zone)
        return lambda value, now: not holds(value, now)

    return replace(positive, build=build, fits=ANYTHING, negates=True)
