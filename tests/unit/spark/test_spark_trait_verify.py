"""Verification of computed traits without Spark: windows, definitions, and the finding on a user."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_segments import Measure, parse_measure
from starling_segments.parse.windows import contains
from starling_spark.jobs.trait_verify.comparing import DIFFERENT, EQUAL, IN_MOTION, UNCLEAR, WITHIN_ERROR, finding
from starling_spark.jobs.trait_verify.filters import by_language, foreign_operators
from starling_spark.jobs.trait_verify.measures import HIGH, LOW, MOVING, RECENT, WIDE, check_native
from starling_spark.jobs.trait_verify.result import Difference, Verification, as_json, as_text
from starling_spark.jobs.trait_verify.trait import NotVerifiable, find_trait, read_sides
from starling_spark.jobs.trait_verify.windows import recent, span, wider

DAY_MS = 86_400_000
NOW_MS = 1_774_700_000_000
WINDOWS: Sequence[Mapping[str, Any]] = (
    {"within": "9d"}, {"between_ago": ["9d", "2d"]}, {"after": "2026-03-22", "before": "2026-03-29"}, {"before": "2026-03-29"},
    {"calendar": "today"}, {"calendar": "yesterday"}, {"calendar": "this_week"}, {"calendar": "last_week"},
    {"calendar": "this_month"}, {"calendar": "last_month"}, {"calendar": "this_year"},
)  # fmt: skip
SUM: Mapping[str, Any] = {"event": "*", "measure": {"sum": "n"}}


def sides(document: Mapping[str, Any]) -> Sequence[Measure]:
    return read_sides(json.dumps(document))


def fact(view: str, value: object = None, side: int = 0, matches: int = 1, **more: Any) -> dict[str, Any]:
    text = None if value is None else json.dumps(value)
    return {"side": side, "view": view, "value": text, "amounts": None, "matches": matches, "keys": None, "bytes": None, **more}


def record(version: int, action: str = "DEFINED", workspace: str = "w", **document: Any) -> dict[str, Any]:
    text = json.dumps(document or {"event": "*"})
    return {"workspace": workspace, "key": "t", "version": version, "action": action, "document": text}


@given(
    window=st.sampled_from(WINDOWS),
    zone=st.sampled_from(["UTC", "America/New_York", "Pacific/Chatham"]),
    now_ms=st.integers(NOW_MS - 400 * DAY_MS, NOW_MS + 400 * DAY_MS),
    ago_ms=st.sampled_from([0, 1, DAY_MS, 2 * DAY_MS, 9 * DAY_MS]) | st.integers(-DAY_MS, 40 * DAY_MS),
    by_ms=st.integers(-1, 1),
)
def test_a_span_contains_what_the_language_counts(
    window: Mapping[str, Any], zone: str, now_ms: int, ago_ms: int, by_ms: int
) -> None:
    measure, time_ms = parse_measure({"event": "*", **window}, zone), now_ms - ago_ms + by_ms
    assert isinstance(measure, Measure)
    assert measure.window is not None
    found = span(measure.window, now_ms)
    assert (found.first <= time_ms < found.end) is contains(measure.window)(time_ms, now_ms)


def test_only_sliding_windows_are_wider_for_late_departures() -> None:
    within, fixed = sides({"event": "*", "within": "256s"})[0].window, sides({"event": "*", "before": "2026-03-29"})[0].window
    assert wider(within, NOW_MS, is_much=False).first == span(within, NOW_MS).first - 1_001
    assert wider(within, NOW_MS, is_much=True).first == span(within, NOW_MS).first - 16_001
    assert recent(within, NOW_MS) == (NOW_MS - 512_000 + 1, NOW_MS + 1)
    assert wider(fixed, NOW_MS, is_much=True) == recent(fixed, NOW_MS) == span(fixed, NOW_MS)
    assert wider(None, NOW_MS, is_much=True) == span(None, NOW_MS)


def test_the_newest_version_is_verified() -> None:
    found = find_trait([(0, record(1)), (4, record(2, "REVISED", event="Order *")), (5, record(1, workspace="v"))], "t", "w")
    assert (found.version, found.newest, found.sides[0].event.name) == (2, 5, "Order *")


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "there is no computed trait 't'"),
        ([record(1), record(1, workspace="v")], "several workspaces have a trait 't': name one of v, w by --workspace"),
        ([record(1), record(1, "ARCHIVED")], "is archived"),
        ([record(1, sql="SELECT 1")], "is in SQL"),
        ([record(1, event="*", measure={"modus": "x"})], "cannot be read"),
    ],
)
def test_what_cannot_be_verified_has_a_reason(records: Sequence[Mapping[str, Any]], reason: str) -> None:
    with pytest.raises(NotVerifiable, match=reason.replace("*", r"\*")):
        find_trait(enumerate(records), "t", None)


@pytest.mark.parametrize("path", ["products.*.sku", "what?'s up"])
def test_a_property_without_an_equivalent_is_named(path: str) -> None:
    with pytest.raises(NotVerifiable) as raised:
        check_native(sides({"event": "*", "measure": {"last": path}})[0])
    assert path in str(raised.value)


def test_a_filter_by_the_language_is_named() -> None:
    parts = [
        {"property": "a", "op": "eq", "value": "x"},
        {"property": "a", "op": "matches", "value": "^x"},
        {"property": "a", "op": "eq", "value": "x", "ignore_case": True},
        {"property": "a", "op": "eq", "value": {"trait": "city"}},
        {"property": "a.*", "op": "exists"},
        {"property": "a", "op": "lt", "value": 2.0**60},
    ]
    document = {"event": "*", "where": {"all": parts}}
    assert foreign_operators(sides(document)[0].event.where) == [
        "eq with a trait",
        "eq with ignore_case",
        "exists",
        "lt",
        "matches",
    ]
    holds = by_language(json.dumps({"event": "*", "where": {"any": [parts[1], parts[3]]}}), 0)
    assert holds(0, '{"a": "xy"}', "{}", "{}")
    assert holds(0, '{"a": "Rome"}', "{}", '{"city": "Rome"}')
    assert not holds(0, '{"a": "y"}', "{}", "{}")
    assert not holds(0, "broken", "{}", "{}")
    assert not holds(0, "[]", "{}", "{}")


@pytest.mark.parametrize(
    ("document", "published", "facts", "state"),
    [
        ({"event": "*"}, "3", [fact(LOW, 3)], EQUAL),
        ({"event": "*"}, "4", [fact(LOW, 3)], DIFFERENT),
        ({"event": "*"}, None, [], EQUAL),
        ({"event": "*"}, "0", [], EQUAL),
        ({"event": "*"}, "1", [], DIFFERENT),
        (SUM, None, [], EQUAL),
        (SUM, "0.0", [], DIFFERENT),
        (SUM, "0.3", [fact(LOW, amounts=[0.1, 0.2])], DIFFERENT),
        (SUM, "0.30000000000000004", [fact(LOW, amounts=[0.1, 0.2])], EQUAL),
        ({"event": "*", "measure": {"avg": "n"}}, "2.0", [fact(LOW, amounts=[1, 3])], EQUAL),
        ({"event": "*", "measure": {"last": "x"}}, "1", [fact(LOW, value=True)], DIFFERENT),
        ({"event": "*", "measure": {"last": "x"}}, '{"b": [1.0], "a": 2}', [fact(LOW, value={"a": 2, "b": [1]})], EQUAL),
        ({"event": "*", "measure": {"last": "x"}}, '{"b": [true]}', [fact(LOW, value={"b": [1]})], DIFFERENT),
        ({"event": "*", "measure": {"last": "x"}}, "1e20", [fact(LOW, value=10**20 + 1)], EQUAL),
        # Between the cut and the end of the values an event has come, and a match has left the window.
        ({"event": "*"}, "4", [fact(LOW, 3), fact(HIGH, 4), fact(MOVING, 1)], EQUAL),
        ({"event": "*"}, "5", [fact(LOW, 3), fact(HIGH, 6), fact(MOVING, 3)], IN_MOTION),
    ],
)
def test_a_finding(document: Mapping[str, Any], published: str | None, facts: Sequence[Any], state: str) -> None:
    assert finding(sides(document), published, facts).state == state


@pytest.mark.parametrize(
    ("of", "to", "published", "state"),
    [(1, 4, "0.25", EQUAL), (1, 4, "0.5", DIFFERENT), (1, None, None, EQUAL), (None, 4, "0.0", EQUAL), (None, 4, None, DIFFERENT)],
)
def test_a_ratio_is_divided_from_both_sides(of: int | None, to: int | None, published: str | None, state: str) -> None:
    measured = sides({"measure": {"ratio": {"of": {"event": "a"}, "to": {"event": "b"}}}})
    facts = [fact(view, value, side) for view in (LOW, HIGH) for side, value in enumerate((of, to)) if value is not None]
    assert finding(measured, published, facts).state == state


def approximate(measure: object, low: Mapping[str, Any], wide: Mapping[str, Any], window: object = "9d") -> tuple[Any, Any]:
    """Return the measure, and the facts of a window that was above 256 matches."""
    name = "within" if isinstance(window, str) else "between_ago"
    return sides({"event": "*", "measure": measure, name: window}), [low, wide, fact(RECENT, matches=300)]


@pytest.mark.parametrize(
    ("published", "state"), [("280", EQUAL), ("285", WITHIN_ERROR), ("290", WITHIN_ERROR), ("291", DIFFERENT), ('"x"', DIFFERENT)]
)
def test_a_match_may_leave_a_full_window_late(published: str, state: str) -> None:
    measured, facts = approximate("count", fact(LOW, 280, matches=280), fact(WIDE, 290, matches=290))
    assert finding(measured, published, facts).state == state


def test_a_full_window_without_late_matches_has_no_margin() -> None:
    measured, facts = approximate({"avg": "n"}, fact(LOW, matches=2, amounts=[1, 3]), fact(WIDE, matches=2, amounts=[1, 3]))
    assert finding(measured, "2.0000000001", facts).state == WITHIN_ERROR
    assert finding(measured, "2.1", facts).state == DIFFERENT


@pytest.mark.parametrize(
    ("measure", "window", "more"),
    [("count", ["9d", "2d"], {}), ({"avg": "n"}, "9d", {"amounts": [1.0]}), ({"last": "n"}, "9d", {}), ("first_time", "9d", {})],
)
def test_no_bound_is_invented(measure: object, window: object, more: Mapping[str, Any]) -> None:
    measured, facts = approximate(measure, fact(LOW, 5, matches=5, **more), fact(WIDE, 9, matches=9, **more), window)
    assert finding(measured, "7", facts).state == UNCLEAR


def test_estimates_have_the_error_of_their_sketch() -> None:
    distinct, facts = approximate({"distinct": "n"}, fact(LOW, 1000, matches=1000), fact(WIDE, 1000, matches=1000))
    assert [finding(distinct, text, facts).state for text in ("1000", "1049", "951", "1051")] == [EQUAL] + [WITHIN_ERROR] * 2 + [
        DIFFERENT
    ]
    measure = {"percentile": "n", "q": 0.5}
    percentile, facts = approximate(measure, fact(LOW, 50.0, amounts=[48.0, 52.0]), fact(WIDE, 50.0, amounts=[48.0, 52.0]))
    assert [finding(percentile, text, facts).state for text in ("50.0", "52.0", "53.0")] == [EQUAL, WITHIN_ERROR, DIFFERENT]


def test_a_result_is_printed() -> None:
    found = Verification(
        "t", 2, {EQUAL: 5, DIFFERENT: 2}, [Difference("ann", "3", "4"), Difference("bob", None, '"x"')], ["matches"]
    )
    assert not found.is_right
    assert as_text(found._replace(by_language=[])).splitlines() == [
        "t version 2: 2 different, 5 equal",
        "user  published  computed",
        "ann   3          4",
        'bob   -          "x"',
    ]
    assert "the segment language (matches)" in as_text(found)
    assert "and 1 more: raise --limit" in as_text(found._replace(differences=found.differences[:1]))
    lines = [json.loads(line) for line in as_json(found).splitlines()]
    assert lines[0] == {"key": "t", "version": 2, "users": {EQUAL: 5, DIFFERENT: 2}, "filter_by_language": ["matches"]}
    assert lines[2] == {"user": "bob", "published": None, "computed": "x"}
    assert as_text(Verification("t", 1, {}, [], [])) == "t version 1: no users\n"
    assert Verification("t", 1, {}, [], []).is_right
