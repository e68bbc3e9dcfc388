"""Values of every type, and predicates of every family over them. `located` moves instants into a world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

Doc = dict[str, Any]
DURATIONS = ("1s", "2s", "3s", "5s")
BORN = 1996
"""A year with a 29 February."""


@dataclass(frozen=True)
class At:
    """Return an instant of the world as a value: epoch ms, or text with an offset, in local time, or of long ago."""

    ms: int
    form: Literal["number", "utc", "local", "born", "day"] = "number"

    def put(self, zone: str, base_ms: int) -> int | str:
        if self.form == "number":
            return base_ms + self.ms
        here = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=base_ms + self.ms)).astimezone(ZoneInfo(zone))
        if self.form == "day":
            return here.date().isoformat()
        shown = here.astimezone(UTC) if self.form == "utc" else here.replace(tzinfo=None)
        return (shown.replace(year=BORN) if self.form == "born" else shown).isoformat(timespec="milliseconds")


def located(value: Any, zone: str, base_ms: int) -> Any:
    """Return the value with its instants moved into the world."""
    if isinstance(value, At):
        return value.put(zone, base_ms)
    if isinstance(value, list):
        return [located(item, zone, base_ms) for item in value]
    return {key: located(item, zone, base_ms) for key, item in value.items()} if isinstance(value, dict) else value


def _each(ops: Sequence[str], wanted: Sequence[Any], **more: Any) -> list[Doc]:
    return [{"op": op, "value": value, **more} for op in ops for value in wanted]


TEXTS = ["x", "Xy", "xyz", "", "ab x"]
VERSIONS = ["1.2.0", "1.10.0", "1.2.0-rc.1", "1.2.0-rc.11", "2.0.0-alpha"]
PLACES = [{"lat": 52.5, "lon": 13.4}, {"lat": 52.52, "lon": 13.405}, {"lat": -17.8, "lon": 179.6}, {"lat": -17.8, "lon": -179.6}]
LISTS = [[], ["x"], ["x", 1], [True, "Xy", "x"], [1, 2, 3], [{"sku": "x", "n": 1}, {"sku": "Xy", "n": 3}], [{"n": 2}, "x", None]]
DATED = [[{"at": At(ms)} for ms in times] for times in ([0], [4_000, 9_500], [1_000, 12_000, 12_000])]
WIDE_VALUES: list[Any] = [*TEXTS, *VERSIONS, *PLACES, *LISTS, *DATED, {}, True, 2, 1.5, None]
WIDE_PATHS = ["w", "w", "w", "w.0", "w.*.sku", "w.lat", "w.1.n"]
MOVING = ["within_last", "older_than", "within_next", "later_than"]

SCALAR_TESTS: list[Doc] = [
    *_each(["contains", "not_contains"], ["x", ["X", "z"], [""]]),
    *_each(["starts_with", "not_starts_with"], ["x", ["X", "a"]]),
    *_each(["ends_with", "not_ends_with"], ["x", ["y", "z"]]),
    *_each(["eq", "neq"], ["XY", "x"], ignore_case=True),
    *_each(["in", "not_in"], [["XY", "b"], ["x", ""]], ignore_case=True),
    *_each(["in", "not_in"], [["x", 2, True], [1, ""]]),
    *_each(["between", "not_between"], [["w", "xz"], [1, 2]]),
    *_each(["matches", "not_matches"], ["^x", "y$", "[x-z]{2}", "(?i)^XY$", "^$", "a.*x"]),
    *_each([f"semver_{name}" for name in ("eq", "gt", "gte", "lt", "lte")], ["1.2.0", "1.2.0-rc.2", "1.2.0-rc.11"]),
    *({"op": op} for op in ("empty", "not_empty", "exists", "missing")),
    *_each(["is_type"], ["string", "number", "boolean", "array", "object"]),
    *_each(["has_any", "has_none", "has_all"], [["x"], ["x", 1], [True, 2]]),
    *_each(["size_eq", "size_gt", "size_lt"], [0, 1, 2]),
    *_each(["within_km"], [{"lat": 52.52, "lon": 13.405, "km": km} for km in (1, 2, 3)]),
    *_each(["within_km"], [{"lat": -18, "lon": 180, "km": 60}]),
    *_each(
        ["in_box"], [{"north": 53, "south": 52, "east": 14, "west": 13}, {"north": 53, "south": -20, "east": -179, "west": 179}]
    ),
]
"""The predicates that also apply to measures."""
_OF_AN_ITEM: list[Doc] = [
    *_each(["eq", "neq"], ["x", 1, True]),
    *_each(["contains", "ends_with"], ["y", ["x", "z"]]),
    *({"item": "n", **test} for test in _each(["gte", "lt"], [2, 3])),
    *({"item": "sku", **test} for test in _each(["in", "not_in"], [["x"], ["XY"]], ignore_case=True)),
    *({"item": "at", **test} for test in _each(MOVING, ["1s", "3s"])),
]
_OF_ITEMS: list[Doc] = [
    *_OF_AN_ITEM,
    *({"not": test} for test in _OF_AN_ITEM[::3]),
    *({kind: [one, other]} for kind in ("all", "any", "none") for one, other in zip(_OF_AN_ITEM, _OF_AN_ITEM[7:], strict=False)),
]
ITEM_TESTS: list[Doc] = [{"op": op, "where": where} for op in ("any_item", "all_items") for where in _OF_ITEMS]
"""In a measure, `where` is over its event instead of an item."""

_DAYS = [At(day * 86_400_000, "day") for day in (-1, 0, 1)]
DAY_TESTS: list[Doc] = [
    *_each(["on", "not_on", "before", "after"], [*_DAYS, At(0, "utc"), At(9_500, "utc"), At(12_000, "utc")]),
    *_each(["between_dates"], [[one, other] for one in _DAYS for other in _DAYS if one.ms <= other.ms]),
    *_each(["day_is"], [1, 8, 27, 28, 29, 31]),
    *_each(["month_is"], [1, 3, 9, 12]),
    *_each(["weekday_is"], ["sunday", "saturday", "wednesday", "thursday"]),
]
BIRTHDAY_TESTS: list[Doc] = _each(["anniversary_within_next"], DURATIONS)

wide_values = st.sampled_from(WIDE_VALUES)
wide_paths = st.sampled_from(WIDE_PATHS)
scalar_tests = st.sampled_from(SCALAR_TESTS)
wide_tests = st.one_of(scalar_tests, scalar_tests, scalar_tests, st.sampled_from(ITEM_TESTS))
day_tests = st.sampled_from(DAY_TESTS)
birthday_tests = st.sampled_from(BIRTHDAY_TESTS)
_times = st.integers(0, 60).map(lambda i: i * 500)
date_values = st.builds(At, _times, st.sampled_from(["number", "utc", "local", "day"]))
birthdays = st.builds(At, _times, st.just("born"))
