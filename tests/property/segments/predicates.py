"""Reference implementation of the predicates, from the text of the language. Shares no code with the package."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

Doc = dict[str, Any]
UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
EARLIEST_MS, LATEST_MS = -62_135_510_400_000, 253_402_128_000_000
"""2 January of the year 1 and 30 December 9999, UTC: the range of dates."""
GROUPS = frozenset({"all", "any", "none", "not"})
NEGATIONS = {"neq": "eq", "missing": "exists", "has_none": "has_any"}
"""The operators with a negation named `not_…`."""
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "number": (int, float), "boolean": bool, "array": list, "object": dict
}  # fmt: skip
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def grouped(where: Doc, holds: Callable[[Doc], bool]) -> bool:
    ((kind, parts),) = where.items()
    truths = [holds(part) for part in ([parts] if kind == "not" else parts)]
    return all(truths) if kind == "all" else any(truths) if kind == "any" else not any(truths)


def looked_up(value: Any, path: str) -> Any:
    """Return the value at a dotted path; None if it is missing."""
    here, _, rest = path.partition(".")
    if isinstance(value, list) and here == "*":
        return [found for item in value if (found := looked_up(item, rest) if rest else item) is not None]
    if isinstance(value, list):
        found = value[int(here)] if here.isdigit() and int(here) < len(value) else None
    else:
        found = value.get(here) if isinstance(value, dict) else None
    return looked_up(found, rest) if rest else found


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def alike(value: Any, wanted: Any) -> bool:
    return (is_number(value) and is_number(wanted)) or (isinstance(value, str) and isinstance(wanted, str))


def length(text: str) -> int:
    return int(text[:-1]) * UNITS_MS[text[-1]]


def clock(ms: int, zone: str) -> datetime:
    return datetime.fromtimestamp(min(max(ms, EARLIEST_MS), LATEST_MS) / 1_000, ZoneInfo(zone))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def span(text: str, zone: str) -> tuple[int, int]:
    """Return start and end in epoch ms: one instant, or the whole local day. Raises: ValueError unless it is a date."""
    if len(text) == len("2026-03-01"):
        day = date.fromisoformat(text)
        return tuple(_ms(datetime(d.year, d.month, d.day, tzinfo=ZoneInfo(zone))) for d in (day, day + timedelta(1)))  # type: ignore[return-value]
    moment = datetime.fromisoformat(text)
    start = _ms(moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone)))
    return start, start + 1


def instant(value: Any, zone: str) -> int | None:
    if is_number(value):
        return int(value // 1) if EARLIEST_MS <= value <= LATEST_MS else None  # whole milliseconds
    try:
        start, end = span(value, zone) if isinstance(value, str) and "-" in value else (LATEST_MS, EARLIEST_MS)
    except (ValueError, OverflowError):
        return None
    return start if start >= EARLIEST_MS and end <= LATEST_MS and start < end else None


def version(text: Any) -> tuple[Any, ...] | None:
    """Return a sort key of a version; None for anything else."""
    core, dash, pre = text.partition("-") if isinstance(text, str) and len(text) <= 256 else ("", "", "")
    numbers = core.split(".")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers) or (dash and not all(pre.split("."))):
        return None
    parts = [(0, int(part)) if part.isdigit() else (1, part) for part in pre.split(".")]
    return (*map(int, numbers), parts if dash else [(2,)])


def _on_globe(place: Any) -> tuple[float, float, float] | None:
    """Return a unit vector."""
    lat: Any = place.get("lat") if isinstance(place, dict) else None
    lon: Any = place.get("lon") if isinstance(place, dict) else None
    if not (is_number(lat) and is_number(lon) and abs(lat) <= 90 and abs(lon) <= 180):
        return None
    up, round_ = math.radians(lat), math.radians(lon)
    return math.cos(up) * math.cos(round_), math.cos(up) * math.sin(round_), math.sin(up)


def _within_km(place: Any, circle: Doc) -> bool:
    here, there = _on_globe(place), _on_globe(circle)
    if here is None or there is None:
        return False
    distance_km: float = 6_371.0088 * math.acos(max(-1.0, min(1.0, sum(a * b for a, b in zip(here, there, strict=True)))))
    return bool(distance_km <= circle["km"])


def _in_box(place: Any, box: Doc) -> bool:
    if _on_globe(place) is None or not box["south"] <= place["lat"] <= box["north"]:
        return False
    west = Fraction(box["west"])
    return (Fraction(place["lon"]) - west) % 360 <= (Fraction(box["east"]) - west) % 360


def _has(value: Any, wanted: Any) -> bool:
    return any(same(item, wanted) for item in value)


def _texts(value: Any, wanted: Any, holds: Callable[[str, str], bool]) -> bool:
    return isinstance(value, str) and any(holds(value, text) for text in ([wanted] if isinstance(wanted, str) else wanted))


def _version_is(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda v, w: version(v) is not None and holds(version(v), version(w))


SEARCHED = 1_024
"""The characters of a text that `contains` and `matches` search, by the reference of the language."""

STANDING: dict[str, Callable[[Any, Any], bool]] = {
    "exists": lambda v, _w: v is not None,
    "empty": lambda v, _w: v is None or v in ("", [], {}),
    "is_type": lambda v, w: isinstance(v, TYPES[w]) and (w == "boolean") == isinstance(v, bool),
    "eq": lambda v, w: v is not None and same(v, w),
    "in": lambda v, w: any(same(v, item) for item in w),
    "gte": lambda v, w: alike(v, w) and v >= w,
    "gt": lambda v, w: alike(v, w) and v > w,
    "lt": lambda v, w: alike(v, w) and v < w,
    "lte": lambda v, w: alike(v, w) and v <= w,
    "between": lambda v, w: alike(v, w[0]) and w[0] <= v <= w[1],
    "mod": lambda v, w: is_number(v) and v % w[0] == w[1],
    "contains": lambda v, w: _texts(v, w, lambda text, part: part in text[:SEARCHED]),
    "starts_with": lambda v, w: _texts(v, w, str.startswith),
    "ends_with": lambda v, w: _texts(v, w, str.endswith),
    "matches": lambda v, w: isinstance(v, str) and not (len(v) > SEARCHED and "$" in w) and re.search(w, v[:SEARCHED]) is not None,
    "semver_eq": _version_is(lambda v, w: v == w),
    "semver_gt": _version_is(lambda v, w: v > w),
    "semver_gte": _version_is(lambda v, w: v >= w),
    "semver_lt": _version_is(lambda v, w: v < w),
    "semver_lte": _version_is(lambda v, w: v <= w),
    "has_any": lambda v, w: isinstance(v, list) and any(_has(v, item) for item in w),
    "has_all": lambda v, w: isinstance(v, list) and all(_has(v, item) for item in w),
    "size_eq": lambda v, w: isinstance(v, list) and len(v) == w,
    "size_gt": lambda v, w: isinstance(v, list) and len(v) > w,
    "size_lt": lambda v, w: isinstance(v, list) and len(v) < w,
    "within_km": _within_km,
    "in_box": _in_box,
}
FIXED: dict[str, Callable[[int, tuple[int, int]], bool]] = {
    "before": lambda t, day: t < day[0],
    "after": lambda t, day: t >= day[1],
    "on": lambda t, day: day[0] <= t < day[1],
}
MOVING: dict[str, Callable[[int, int, int], bool]] = {
    "within_last": lambda t, n, d: n - d < t <= n,
    "older_than": lambda t, n, d: t <= n - d,
    "within_next": lambda t, n, d: n < t <= n + d,
    "later_than": lambda t, n, d: t > n + d,
}
CALENDAR: dict[str, Callable[[datetime], object]] = {
    "day_is": lambda day: day.day,
    "month_is": lambda day: day.month,
    "weekday_is": lambda day: DAYS[day.weekday()],
}


def evaluate(predicate: Doc, value: Any, n: int, zone: str) -> bool:
    """Evaluate a predicate. `n`: the instant, epoch ms."""
    op, wanted = predicate["op"], predicate.get("value")
    if op in NEGATIONS or op.startswith("not_"):
        return not evaluate({**predicate, "op": NEGATIONS.get(op, op.removeprefix("not_"))}, value, n, zone)
    if predicate.get("ignore_case"):
        value, wanted = _small(value), _small(wanted)
    if op in STANDING:
        return bool(STANDING[op](value, wanted))
    if op in ("any_item", "all_items"):
        truths = [_item_holds(predicate["where"], item, n, zone) for item in value] if isinstance(value, list) else []
        return any(truths) if op == "any_item" else bool(truths) and all(truths)
    t = instant(value, zone)
    return t is not None and _of_date(op, wanted, t, n, zone)


def _of_date(op: str, wanted: Any, t: int, n: int, zone: str) -> bool:
    if op == "between_dates":
        return bool(span(wanted[0], zone)[0] <= t < span(wanted[1], zone)[1])
    if op == "anniversary_within_next":
        year = clock(n, zone).year
        return any(n < _ms(_in_year(clock(t, zone), y)) <= n + length(wanted) for y in range(max(year - 1, 2), min(year + 5, 9998)))
    if op in CALENDAR:
        return bool(CALENDAR[op](clock(t, zone)) == wanted)
    return FIXED[op](t, span(wanted, zone)) if op in FIXED else MOVING[op](t, n, length(wanted))


def _in_year(then: datetime, year: int) -> datetime:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return then.replace(year=year, day=28 if (then.month, then.day) == (2, 29) and not leap else then.day, fold=0)


def _item_holds(where: Doc, item: Any, n: int, zone: str) -> bool:
    if where.keys() & GROUPS:
        return grouped(where, lambda part: _item_holds(part, item, n, zone))
    return evaluate(where, looked_up(item, where["item"]) if "item" in where else item, n, zone)


def _small(value: Any) -> Any:
    return [_small(item) for item in value] if isinstance(value, list) else value.lower() if isinstance(value, str) else value
