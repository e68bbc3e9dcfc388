"""Pure core: what an operator is. Types are strict and a missing value is None, everywhere."""

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
"""(observed value, instant) -> the earliest later instant at which the truth can change by itself."""

TEXT, NUMBER, FLAG, DATE, ARRAY, OBJECT = "text", "number", "flag", "date", "array", "object"
ANYTHING = frozenset({TEXT, NUMBER, FLAG, DATE, ARRAY, OBJECT})
NUMBER_TYPES = frozenset({int, float})


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: how its `value` is read, which observed types it can be true of, and what it does.

    `build(operand, zone)` makes the test. `next_change` is only there when time alone changes the truth. `zoned`: the
    test depends on the segment's timezone. `ignores_case`: may carry `ignore_case`. `filters`: its operand is a
    `where` over each item and not a `value`. `negates`: it is the negation of another one.
    """

    fits: frozenset[str]
    operand: Operand
    build: Callable[[Any, ZoneInfo], Test]
    next_change: Callable[[Any, ZoneInfo], NextChange] | None = None
    zoned: bool = False
    ignores_case: bool = False
    filters: bool = False
    negates: bool = False


def negative(positive: Operator) -> Operator:
    """The exact negation: true of a missing value whenever the positive one is false of it."""

    def build(operand: Any, zone: ZoneInfo) -> Test:
        holds = positive.build(operand, zone)
        return lambda value, now: not holds(value, now)

    return replace(positive, build=build, fits=ANYTHING, negates=True)
