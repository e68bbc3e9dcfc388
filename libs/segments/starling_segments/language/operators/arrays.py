"""Pure core: operators on arrays; any other value is a missing value.

Every operator but `size_…` looks at the first `MAX_ELEMENTS` elements only, so that the work of an event is bounded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.bounds import MAX_ELEMENTS
from starling_segments.language.operators import operands
from starling_segments.language.operators.scalars import one_of, strict_set
from starling_segments.language.operators.table import ARRAY, Operator, Test, constant_work, negative

_ARRAY_KIND = frozenset({ARRAY})
_LOOKUPS = constant_work(0.05 * MAX_ELEMENTS)


def _has_any(wanted: list[Any], zone: ZoneInfo) -> Test:
    is_wanted = one_of(wanted, zone)
    return lambda value, now: type(value) is list and any(is_wanted(item, now) for item in value[:MAX_ELEMENTS])


def _has_all(wanted: list[Any], _zone: ZoneInfo) -> Test:
    flags, others = strict_set(wanted)

    def holds(value: Any, _now: int) -> bool:
        if type(value) is not list:
            return False
        found_flags, found = strict_set(value[:MAX_ELEMENTS])
        return others <= found and flags <= found_flags

    return holds


def _size(compare: Callable[[Any, Any], bool]) -> Callable[[Any, ZoneInfo], Test]:
    def build(size: int, _zone: ZoneInfo) -> Test:
        return lambda value, _now: type(value) is list and compare(len(value), size)

    return build


def _any_item(test: Test, _zone: ZoneInfo) -> Test:
    return lambda value, now: type(value) is list and any(test(item, now) for item in value[:MAX_ELEMENTS])


def _all_items(test: Test, _zone: ZoneInfo) -> Test:
    return lambda value, now: type(value) is list and len(value) > 0 and all(test(item, now) for item in value[:MAX_ELEMENTS])


_HAS_ANY = Operator(_ARRAY_KIND, operands.SCALARS, _has_any, work=_LOOKUPS)

OPERATORS: Mapping[str, Operator] = {
    "has_any": _HAS_ANY,
    "has_none": negative(_HAS_ANY),
    "has_all": Operator(_ARRAY_KIND, operands.SCALARS, _has_all, work=_LOOKUPS),
    "size_eq": Operator(_ARRAY_KIND, operands.SIZE, _size(operator.eq)),
    "size_gt": Operator(_ARRAY_KIND, operands.SIZE, _size(operator.gt)),
    "size_lt": Operator(_ARRAY_KIND, operands.SIZE, _size(operator.lt)),
    # Their operand is the compiled `where` over one item.
    "any_item": Operator(_ARRAY_KIND, operands.NOTHING, _any_item, filters=True),
    "all_items": Operator(_ARRAY_KIND, operands.NOTHING, _all_items, filters=True),
}
