"""Pure core: date operators, fixed and moving; time alone can change the truth of a moving one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.dates import anniversaries, local, read_instant
from starling_segments.language.operators import operands
from starling_segments.language.operators.operands import WEEKDAYS, Operand
from starling_segments.language.operators.table import DATE, NextChange, Operator, Test, constant_work, negative

_DATE_KIND = frozenset({DATE})
_DATE_WORK, _ANNIVERSARY_WORK = constant_work(3.5), constant_work(22)
"""Most of it for reading a text as a date."""


def _fixed(operand: Operand, holds: Callable[[int, int, int], bool]) -> Operator:
    """`holds(t, start, end)`: the operand is the span `[start, end)` in epoch ms."""

    def build(span: list[int], zone: ZoneInfo) -> Test:
        start, end = span

        def test(value: Any, _now: int) -> bool:
            t = read_instant(value, zone)
            return t is not None and holds(t, start, end)

        return test

    return Operator(_DATE_KIND, operand, build, zoned=True, work=_DATE_WORK)


def _moving(holds: Callable[[int, int, int], bool], changes_at: Callable[[int, int], tuple[int, ...]]) -> Operator:
    """Return an operator whose truth changes with time alone. All instants and durations are in ms.

    `holds`: instant of the value, now, operand -> truth. `changes_at`: instant of the value, operand -> all instants at which the
    truth can change, ascending.
    """

    def build(length_ms: int, zone: ZoneInfo) -> Test:
        def test(value: Any, now: int) -> bool:
            t = read_instant(value, zone)
            return t is not None and holds(t, now, length_ms)

        return test

    def next_change(length_ms: int, zone: ZoneInfo) -> NextChange:
        def after(value: Any, now: int) -> int | None:
            t = read_instant(value, zone)
            return None if t is None else next((change_at for change_at in changes_at(t, length_ms) if change_at > now), None)

        return after

    return Operator(_DATE_KIND, operands.DURATION, build, next_change, zoned=True, work=_DATE_WORK)


def _anniversary(length_ms: int, zone: ZoneInfo) -> Test:
    def holds(value: Any, now: int) -> bool:
        t = read_instant(value, zone)
        return t is not None and any(now < day <= now + length_ms for day in anniversaries(t, zone, now))

    return holds


def _anniversary_changes(length_ms: int, zone: ZoneInfo) -> NextChange:
    def after(value: Any, now: int) -> int | None:
        t = read_instant(value, zone)
        if t is None:
            return None
        days = anniversaries(t, zone, now)
        return min((change_at for day in days for change_at in (day - length_ms, day) if change_at > now), default=None)

    return after


def _calendar(operand: Operand, part: Callable[[datetime], object]) -> Operator:
    """Compare `part` of the value's local date with the operand."""

    def build(wanted: object, zone: ZoneInfo) -> Test:
        def holds(value: Any, _now: int) -> bool:
            t = read_instant(value, zone)
            return t is not None and part(local(t, zone)) == wanted

        return holds

    return Operator(_DATE_KIND, operand, build, zoned=True, work=_DATE_WORK)


_ON = _fixed(operands.DATE, lambda t, start, end: start <= t < end)

OPERATORS: Mapping[str, Operator] = {
    "before": _fixed(operands.DATE, lambda t, start, _end: t < start),
    "after": _fixed(operands.DATE, lambda t, _start, end: t >= end),
    "on": _ON,
    "not_on": negative(_ON),
    "between_dates": _fixed(operands.DATES, lambda t, start, end: start <= t < end),
    "within_last": _moving(lambda t, now, d: now - d < t <= now, lambda t, d: (t, t + d)),
    "older_than": _moving(lambda t, now, d: t <= now - d, lambda t, d: (t + d,)),
    "within_next": _moving(lambda t, now, d: now < t <= now + d, lambda t, d: (t - d, t)),
    "later_than": _moving(lambda t, now, d: t > now + d, lambda t, d: (t - d,)),
    "anniversary_within_next": Operator(
        _DATE_KIND, operands.DURATION, _anniversary, _anniversary_changes, zoned=True, work=_ANNIVERSARY_WORK
    ),
    "day_is": _calendar(operands.DAY, lambda day: day.day),
    "month_is": _calendar(operands.MONTH, lambda day: day.month),
    "weekday_is": _calendar(operands.WEEKDAY, lambda day: WEEKDAYS[day.weekday()]),
}
