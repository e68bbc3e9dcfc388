"""Pure core: reads the window of a condition, and computes when an event enters and leaves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.operators import operands
from starling_segments.language.periods import span_of
from starling_segments.language.tree import Ago, Calendar, Fixed, Unit, Window, Within
from starling_segments.language.validation import Location

CALENDAR: Mapping[str, tuple[Unit, int]] = {
    "today": ("day", 0),
    "yesterday": ("day", 1),
    "this_week": ("week", 0),
    "last_week": ("week", 1),
    "this_month": ("month", 0),
    "last_month": ("month", 1),
    "this_year": ("year", 0),
}
"""Name -> the unit, and the number of periods back."""
WINDOW_FIELDS = frozenset({"within", "between_ago", "after", "before", "calendar"})
_FORMS = ({"within"}, {"between_ago"}, {"after", "before"}, {"calendar"})


def read_window(node: Mapping[str, Any], location: Location) -> Window | None:
    """Read the window; None without one, or after recording an error."""
    if sum(1 for form in _FORMS if form & node.keys()) > 1:
        location.refuse(
            "bad_window", "the condition has more than one window", "one of: within; between_ago; after and before; calendar"
        )
    if "between_ago" in node:
        return _read_ago(node["between_ago"], location.at("between_ago"))
    if "calendar" in node:
        return _read_calendar(node["calendar"], location.at("calendar"))
    if "after" in node or "before" in node:
        return _read_fixed(node, location)
    if "within" in node:
        length: int | None = operands.DURATION.read(node["within"], location.at("within"))
        return None if length is None else Within(length)
    return None


def _read_ago(value: object, location: Location) -> Window | None:
    expected = '[longer, shorter]: two durations such as ["60d", "30d"]'
    if not isinstance(value, list) or len(value) != 2:
        location.refuse("bad_window", "the value is not a pair of durations", expected)
        return None
    older, newer = (operands.DURATION.read(part, location.at(i)) for i, part in enumerate(value))
    if older is None or newer is None:
        return None
    if older <= newer:
        location.refuse("bad_window", "the first duration is not longer than the second", expected)
        return None
    return Ago(older, newer)


def _read_calendar(value: object, location: Location) -> Window | None:
    if not isinstance(value, str) or value not in CALENDAR:
        location.refuse("bad_window", "unknown calendar period", "one of " + ", ".join(CALENDAR))
        return None
    unit, back = CALENDAR[value]
    return Calendar(unit, back, location.validation.zone.key)


def _read_fixed(node: Mapping[str, Any], location: Location) -> Window | None:
    """Read `after` and `before`; a bare date is the start of that day on both sides."""
    ends = {name: operands.DATE.read(node[name], location.at(name)) for name in ("after", "before") if name in node}
    if None in ends.values():
        return None
    after, before = (ends[name][0] if name in ends else None for name in ("after", "before"))
    if after is not None and before is not None and after >= before:
        location.refuse("bad_window", "the window ends before it starts", '"after" earlier than "before"')
        return None
    return Fixed(after, before)


def contains(window: Window) -> Callable[[int, int], bool]:
    """Return (t, now) -> whether an event at `t` is inside at `now`."""
    if isinstance(window, Within):
        length = window.length_ms
        return lambda t, now: now - length < t <= now
    if isinstance(window, Ago):
        older, newer = window.older_ms, window.newer_ms
        return lambda t, now: now - older < t <= now - newer
    if isinstance(window, Calendar):
        return lambda t, now: _visible(window, t)[0] <= now < _visible(window, t)[1]
    after, before = window.after_ms, window.before_ms
    return lambda t, _now: (after is None or after <= t) and (before is None or t < before)


def next_crossing(window: Window) -> Callable[[int, int], int | None]:
    """Return (t, now) -> the earliest instant after `now` at which an event at `t` enters or leaves."""
    if isinstance(window, Fixed):
        return lambda _t, _now: None
    changes_at = _changes_at(window)
    return lambda t, now: next((change_at for change_at in changes_at(t) if change_at > now), None)


def _changes_at(window: Within | Ago | Calendar) -> Callable[[int], tuple[int, int]]:
    if isinstance(window, Within):
        length = window.length_ms
        return lambda t: (t, t + length)
    if isinstance(window, Ago):
        older, newer = window.older_ms, window.newer_ms
        return lambda t: (t + newer, t + older)
    return lambda t: _visible(window, t)


def _visible(window: Calendar, t: int) -> tuple[int, int]:
    """Return `[start, end)`: the instants at which an event at `t` is inside."""
    zone = ZoneInfo(window.zone)
    span = span_of(window.unit, zone, t)
    for _ in range(window.back):
        span = span_of(window.unit, zone, span[1])
    return span
