"""Validation errors: code and exact location, and all errors of a document at once."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from starling_segments import DefinitionRefused, Known, Measure, Ratio, parse_condition, parse_measure, parse_segment, read_document
from starling_segments.language.tree import Calendar, Within
from starling_segments.language.validation import CODES

KNOWN = Known(
    segments={"vips": frozenset(), "loop-b": frozenset({"loop-a"}), "loop-a": frozenset({"mine"})},
    computed_traits=frozenset({"clv"}),
    taken_keys=frozenset({"old", "vips"}),
    lists=frozenset({"vip-upload"}),
    accounts=True,
)
BUY = {"event": "Buy"}
Doc = dict[str, Any]


def segment(where: object, **fields: object) -> Doc:
    return {"key": "mine", "name": "Mine", "where": where, **fields}


def faults(document: object) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionRefused) as caught:
        parse_segment(document, KNOWN)
    for fault in caught.value.errors:
        assert fault.message, fault
        assert fault.expected, fault
        assert fault.code in CODES, fault
    return [(fault.code, fault.pointer) for fault in caught.value.errors]


def nested_nots(levels: int) -> Doc:
    where: Doc = BUY
    for _ in range(levels):
        where = {"not": where}
    return where


def nested_lists(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def wide(groups: int, parts: int) -> Doc:
    return {"all": [{"any": [BUY] * parts} for _ in range(groups)]}


TRAIT = {"trait": "v"}
RATIO = {"measure": {"ratio": {"of": BUY, "to": {"event": "Look"}}}, "op": "gt", "value": 0.5}
MEASURED = {**BUY, "op": "gt", "value": 1}
Row = tuple[object, str, str]
# Each row: document, code, pointer.
BOUNDS: list[Row] = [
    (segment({**TRAIT, "op": "mod", "value": [10**400, 0]}), "out_of_range", "/where/value/0"),
    (segment({**TRAIT, "op": "eq", "value": 2**53}), "out_of_range", "/where/value"),
    (segment({**TRAIT, "op": "in", "value": ["a", -(2**53)]}), "out_of_range", "/where/value/1"),
    (segment({**TRAIT, "op": "gt", "value": math.inf}), "out_of_range", "/where/value"),
    (segment({**TRAIT, "op": "between", "value": [math.nan, 1]}), "out_of_range", "/where/value/0"),
    (segment({**MEASURED, "measure": {"percentile": "v", "q": 10**5_000}}), "out_of_range", "/where/measure/q"),
    (segment({"bucket": {"salt": "s", "from": 0, "to": 2**60}}), "out_of_range", "/where/bucket/to"),
    (segment({"regularly": BUY, "every": "1d", "at_least": 1, "of": 10**400}), "out_of_range", "/where/of"),
    (segment({"event": "Buy\ud800"}), "bad_text", "/where/event"),
    (segment({"a\udfff": 1}), "bad_text", "/where"),
    (segment(BUY, name="\ud800"), "bad_text", "/name"),
    (segment({**TRAIT, "op": "eq", "value": nested_lists(100)}), "too_deep", "/where/value" + "/0" * 62),
    (segment({**TRAIT, "op": "in", "value": ["x" * 40] * 6_200}), "too_large", ""),
]
EVENTS: list[Row] = [
    (segment({**MEASURED, "measure": {"sum": "v", "avg": "v"}}), "unknown_field", "/where/measure"),
    (segment({**MEASURED, "measure": {"percentile": "v"}}), "missing_field", "/where/measure"),
    (segment({**MEASURED, "measure": {"percentile": "v", "q": 95}}), "wrong_type", "/where/measure/q"),
    (segment({**MEASURED, "measure": {"sum": "v", "q": 0.5}}), "unknown_field", "/where/measure/q"),
    (segment({**MEASURED, "measure": {"days": "v"}}), "wrong_type", "/where/measure/days"),
    (segment({**MEASURED, "measure": "last_time"}), "operator_does_not_fit", "/where/op"),
    (segment({**MEASURED, "measure": "median"}), "wrong_type", "/where/measure"),
    (segment({**BUY, "measure": "last_time", "op": "within_last", "value": "soon"}), "bad_duration", "/where/value"),
    (segment({**RATIO, "event": "Buy"}), "unknown_field", "/where/event"),
    (segment({**RATIO, "measure": {"ratio": {"of": BUY}}}), "missing_field", "/where/measure/ratio"),
    (
        segment({**RATIO, "measure": {"ratio": {"of": {**BUY, "op": "gt"}, "to": BUY}}}),
        "unknown_field",
        "/where/measure/ratio/of/op",
    ),
    (
        segment({**RATIO, "measure": {"ratio": {"of": BUY, "to": {**BUY, "measure": "last_time"}}}}),
        "wrong_type",
        "/where/measure/ratio/to/measure",
    ),
    (segment({**RATIO, "measure": {"ratio": {"of": RATIO, "to": BUY}}}), "wrong_type", "/where/measure/ratio/of/measure"),
    (segment({**RATIO, "op": "contains", "value": "x"}), "operator_does_not_fit", "/where/op"),
    (
        segment({**BUY, "where": {"property": "a", "op": "eq", "value": {"trait": "a..b"}}}),
        "wrong_type",
        "/where/where/value/trait",
    ),
    (
        segment({**BUY, "where": {"property": "a", "op": "eq", "value": {"trait": "computed.no"}}}),
        "unknown_trait",
        "/where/where/value/trait",
    ),
    (
        segment({**BUY, "where": {"property": "a", "op": "matches", "value": {"trait": "p"}}}),
        "operator_does_not_fit",
        "/where/where/op",
    ),
    (segment({**BUY, "where": {"property": "a", "op": "like", "value": {"trait": "p"}}}), "unknown_operator", "/where/where/op"),
    (segment({**BUY, "where": {"property": "a", "value": {"trait": "p"}}}), "missing_field", "/where/where"),
    (
        segment({**BUY, "where": {"property": "a", "op": "eq", "value": {"trait": "p", "of": 1}}}),
        "unknown_field",
        "/where/where/value/of",
    ),
    (
        segment({**BUY, "where": {"property": "a", "op": "eq", "value": {"step": 0, "property": "b"}}}),
        "wrong_type",
        "/where/where/value/step",
    ),
]
WINDOWS: list[Row] = [
    (segment({**BUY, "between_ago": ["30d", "60d"]}), "bad_window", "/where/between_ago"),
    (segment({**BUY, "between_ago": ["30d", "30d"]}), "bad_window", "/where/between_ago"),
    (segment({**BUY, "between_ago": "30d"}), "bad_window", "/where/between_ago"),
    (segment({**BUY, "between_ago": ["60d", 30]}), "bad_duration", "/where/between_ago/1"),
    (segment({**BUY, "calendar": "this_decade"}), "bad_window", "/where/calendar"),
    (segment({**BUY, "calendar": None}), "bad_window", "/where/calendar"),
    (segment({**BUY, "after": "soon"}), "bad_date", "/where/after"),
    (segment({**BUY, "before": 5}), "bad_date", "/where/before"),
    (segment({**BUY, "after": "2026-03-01", "before": "2026-03-01"}), "bad_window", "/where"),
    (segment({**BUY, "after": "2026-03-01", "within": "3d"}), "bad_window", "/where"),
    (segment({"first_time": BUY, "calendar": "sometime"}), "bad_window", "/where/calendar"),
]
OVER_TIME: list[Row] = [
    (segment({**TRAIT, "op": "exists", "held_for": "long"}), "bad_duration", "/where/held_for"),
    (segment({**TRAIT, "op": "exists", "held_for": "7d", "held_less_than": "7d"}), "bad_window", "/where"),
    (segment({**BUY, "held_for": "7d"}), "unknown_field", "/where/held_for"),
    (segment({"sequence": []}), "empty_group", "/where/sequence"),
    (segment({"sequence": BUY}), "wrong_type", "/where/sequence"),
    (segment({"sequence": [BUY] * 65}), "too_wide", "/where/sequence"),
    (segment({"sequence": [BUY, "Look"]}), "wrong_type", "/where/sequence/1"),
    (segment({"sequence": [BUY], "between_ago": ["2d", "1d"]}), "unknown_field", "/where/between_ago"),
    (segment({"sequence": [BUY, {**BUY, "within": "x"}]}), "bad_duration", "/where/sequence/1/within"),
    (segment({"sequence": [{**BUY, "within": "1d"}, BUY]}), "bad_window", "/where/sequence/0/within"),
    (segment({"sequence": [{**BUY, "measure": "count"}]}), "unknown_field", "/where/sequence/0/measure"),
    (segment({"sequence": [{"not": BUY, "for": "1d"}]}), "bad_window", "/where/sequence/0"),
    (segment({"sequence": [BUY, {"not": BUY}]}), "missing_field", "/where/sequence/1"),
    (segment({"sequence": [BUY, {"not": BUY, "for": "1 day"}]}), "bad_duration", "/where/sequence/1/for"),
    (segment({"sequence": [BUY, {"not": {**BUY, "for": "1d"}, "for": "1d"}]}), "unknown_field", "/where/sequence/1/not/for"),
    (segment({"sequence": [BUY, {"not": BUY, "within": "1d"}]}), "unknown_field", "/where/sequence/1/within"),
    (
        segment({"sequence": [BUY, {**BUY, "where": {"property": "a", "op": "eq", "value": {"step": 1, "property": "a"}}}]}),
        "wrong_type",
        "/where/sequence/1/where/value/step",
    ),
    (
        segment({"sequence": [BUY, {**BUY, "where": {"property": "a", "op": "eq", "value": {"step": 0}}}]}),
        "missing_field",
        "/where/sequence/1/where/value/property",
    ),
    (segment({"regularly": BUY, "every": "7d", "at_least": 3}), "missing_field", "/where"),
    (segment({"regularly": BUY, "every": "7d", "at_least": 5, "of": 4}), "wrong_type", "/where/at_least"),
    (segment({"regularly": BUY, "every": "7d", "at_least": 1, "of": 367}), "wrong_type", "/where/of"),
    (segment({"regularly": "Buy", "every": "7d", "at_least": 3, "of": 4}), "wrong_type", "/where/regularly"),
    (segment({"regularly": BUY, "every": 7, "at_least": 3, "of": 4}), "bad_duration", "/where/every"),
]
OTHERS: list[Row] = [
    (segment({"list": "nobodies"}), "unknown_list", "/where/list"),
    (segment({"list": 5}), "wrong_type", "/where/list"),
    (segment({"bucket": {"salt": "a", "from": 0}}), "missing_field", "/where/bucket"),
    (segment({"bucket": {"salt": "", "from": 0, "to": 5}}), "wrong_type", "/where/bucket/salt"),
    (segment({"bucket": {"salt": "a", "from": 0, "to": 101}}), "wrong_type", "/where/bucket/to"),
    (segment({"bucket": {"salt": "a", "from": 5, "to": 5}}), "wrong_type", "/where/bucket"),
    (segment({"bucket": "a"}), "wrong_type", "/where/bucket"),
    (segment({"account": {"match": "most", "where": BUY}}), "wrong_type", "/where/account/match"),
    (segment({"account": {"where": BUY}}), "missing_field", "/where/account"),
    (segment({"account": {"match": "any"}}), "missing_field", "/where/account"),
    (segment({"account": {"match": "any", "where": {"all": []}}}), "empty_group", "/where/account/where/all"),
    (
        segment({"account": {"match": "any", "where": {"account": {"match": "any", "where": BUY}}}}),
        "wrong_type",
        "/where/account/where/account",
    ),
    (segment({"account": {"match": "any", "where": {"segment": "mine"}}}), "cycle", "/where/account/where/segment"),
    (segment({**TRAIT, "op": "in", "value": ["a"] * 10_001}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "contains", "value": ["a"] * 10_001}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "matches", "value": "a" * 1_001}), "bad_pattern", "/where/value"),
    (segment({**TRAIT, "op": "matches", "value": "((a{100}){100}){100}"}), "bad_pattern", "/where/value"),
]
ROWS: list[Row] = [
    ("nonsense", "wrong_type", ""),
    ({"name": "x", "where": BUY}, "missing_field", ""),
    ({"key": "mine", "where": BUY}, "missing_field", ""),
    ({"key": "mine", "name": "x"}, "missing_field", ""),
    (segment(BUY, key="Mine"), "bad_key", "/key"),
    (segment(BUY, key="1abc"), "bad_key", "/key"),
    (segment(BUY, key="a" * 65), "bad_key", "/key"),
    (segment(BUY, key="mine\n"), "bad_key", "/key"),
    (segment(BUY, key=5), "bad_key", "/key"),
    (segment(BUY, key="old"), "key_taken", "/key"),
    (segment(BUY, name=""), "wrong_type", "/name"),
    (segment(BUY, name="x" * 201), "wrong_type", "/name"),
    (segment(BUY, description="é" * 2_049), "too_large", "/description"),
    (segment(BUY, description=5), "wrong_type", "/description"),
    (segment(BUY, timezone="Mars/Olympus"), "bad_timezone", "/timezone"),
    (segment(BUY, timezone="../etc/passwd"), "bad_timezone", "/timezone"),
    (segment(BUY, timezone=9), "bad_timezone", "/timezone"),
    (segment(BUY, colour="red"), "unknown_field", "/colour"),
    (segment(BUY, owner=""), "wrong_type", "/owner"),
    (segment(BUY, tags=["a", ""]), "wrong_type", "/tags"),
    (segment([]), "wrong_type", "/where"),
    (segment({}), "missing_field", "/where"),
    (segment({"evnt": "Buy"}), "missing_field", "/where"),
    (segment({"all": []}), "empty_group", "/where/all"),
    (segment({"all": [{"any": []}]}), "empty_group", "/where/all/0/any"),
    (segment({"all": BUY}), "wrong_type", "/where/all"),
    (segment({"not": [BUY]}), "wrong_type", "/where/not"),
    (segment({"all": [BUY], "any": [BUY]}), "unknown_field", "/where/any"),
    (segment({"all": [BUY] * 65}), "too_wide", "/where/all"),
    (segment(wide(8, 33)), "too_wide", "/where/all/7/any/25"),
    (segment(nested_nots(17)), "too_deep", "/where" + "/not" * 16),
    (
        segment({**nested_nots(0), "where": {"not": {"not": {"property": "a", "op": "lala"}}}}),
        "unknown_operator",
        "/where/where/not/not/op",
    ),
    (segment({"everyone": False}), "wrong_type", "/where/everyone"),
    (segment({"everyone": True, "op": "eq"}), "unknown_field", "/where/op"),
    (segment({"segment": "missing"}), "unknown_segment", "/where/segment"),
    (segment({"segment": ["vips"]}), "wrong_type", "/where/segment"),
    (segment({"segment": "mine"}), "cycle", "/where/segment"),
    (segment({"any": [{"segment": "vips"}, {"segment": "loop-b"}]}), "cycle", "/where/any/1/segment"),
    (segment(TRAIT), "missing_field", "/where"),
    (segment({**TRAIT, "op": "eq"}), "missing_field", "/where"),
    (segment({**TRAIT, "op": "eq", "value": None}), "missing_field", "/where"),
    (segment({**TRAIT, "op": 5, "value": 5}), "wrong_type", "/where/op"),
    (segment({**TRAIT, "op": "like", "value": "x"}), "unknown_operator", "/where/op"),
    (segment({**TRAIT, "op": "exists", "value": True}), "unknown_field", "/where/value"),
    (segment({**TRAIT, "op": "eq", "value": 5, "unit": "m"}), "unknown_field", "/where/unit"),
    (segment({**TRAIT, "op": "gt", "value": 5, "ignore_case": True}), "unknown_field", "/where/ignore_case"),
    (segment({**TRAIT, "op": "eq", "value": 5, "ignore_case": True}), "operator_does_not_fit", "/where/ignore_case"),
    (segment({**TRAIT, "op": "eq", "value": "a", "ignore_case": 1}), "wrong_type", "/where/ignore_case"),
    (segment({"trait": "", "op": "exists"}), "wrong_type", "/where/trait"),
    (segment({"trait": "a..b", "op": "exists"}), "wrong_type", "/where/trait"),
    (segment({"trait": "computed.ltv", "op": "exists"}), "unknown_trait", "/where/trait"),
    (segment({"trait": "computed", "op": "exists"}), "unknown_trait", "/where/trait"),
    (segment({**TRAIT, "op": "eq", "value": [1]}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "in", "value": "a"}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "in", "value": []}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "gt", "value": True}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "between", "value": [3, 1]}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "between", "value": [1, "a"]}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "is_type", "value": "text"}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "contains", "value": 5}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "matches", "value": "a(b"}), "bad_pattern", "/where/value"),
    (segment({**TRAIT, "op": "matches", "value": "(?=a)"}), "bad_pattern", "/where/value"),
    (segment({**TRAIT, "op": "matches", "value": "\ud800"}), "bad_text", "/where/value"),
    (segment({**TRAIT, "op": "semver_gt", "value": "1.0"}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "mod", "value": [0, 0]}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "before", "value": "soon"}), "bad_date", "/where/value"),
    (segment({**TRAIT, "op": "before", "value": "2026-02-30"}), "bad_date", "/where/value"),
    (segment({**TRAIT, "op": "between_dates", "value": ["2026-01-01", "x"]}), "bad_date", "/where/value/1"),
    (segment({**TRAIT, "op": "between_dates", "value": ["2026-01-02", "2026-01-01"]}), "bad_date", "/where/value"),
    (segment({**TRAIT, "op": "within_last", "value": "7 days"}), "bad_duration", "/where/value"),
    (segment({**TRAIT, "op": "weekday_is", "value": "Monday"}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "day_is", "value": 32}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "within_km", "value": {"lat": 1, "lon": 2}}), "wrong_type", "/where/value"),
    (segment({**TRAIT, "op": "any_item", "value": 1}), "unknown_field", "/where/value"),
    (segment({**TRAIT, "op": "any_item", "where": {"all": []}}), "empty_group", "/where/where/all"),
    (segment({**TRAIT, "op": "any_item", "where": {"property": "a", "op": "exists"}}), "unknown_field", "/where/where/property"),
    (segment({"event": ""}), "wrong_type", "/where/event"),
    (segment({"event": 5, "within": "1d"}), "wrong_type", "/where/event"),
    (segment({**BUY, "within": "0d"}), "bad_duration", "/where/within"),
    (segment({**BUY, "within": "1096d"}), "bad_duration", "/where/within"),
    (segment({**BUY, "within": "1.5d"}), "bad_duration", "/where/within"),
    (segment({**BUY, "within": 30}), "bad_duration", "/where/within"),
    (segment({**BUY, "op": "gte", "value": "3"}), "wrong_type", "/where/value"),
    (segment({**BUY, "op": "in", "value": [1, "2"]}), "wrong_type", "/where/value"),
    (segment({**BUY, "op": "gte"}), "missing_field", "/where"),
    (segment({**BUY, "value": 3}), "missing_field", "/where"),
    (segment({**BUY, "measure": {"sum": "v"}}), "missing_field", "/where"),
    (segment({**BUY, "op": "contains", "value": "3"}), "operator_does_not_fit", "/where/op"),
    (segment({**BUY, "op": "within_last", "value": "3d"}), "operator_does_not_fit", "/where/op"),
    (segment({**BUY, "measure": "total", "op": "gt", "value": 1}), "wrong_type", "/where/measure"),
    (segment({**BUY, "measure": {"total": "v"}, "op": "gt", "value": 1}), "unknown_field", "/where/measure/total"),
    (segment({**BUY, "measure": {"sum": 5}, "op": "gt", "value": 1}), "wrong_type", "/where/measure/sum"),
    (segment({**BUY, "times": 3}), "unknown_field", "/where/times"),
    (segment({**BUY, "where": {"op": "exists"}}), "missing_field", "/where/where"),
    (segment({**BUY, "where": {"event": "x"}}), "unknown_field", "/where/where/event"),
    (segment({**BUY, "where": {"property": "a~/b..c", "op": "exists"}}), "wrong_type", "/where/where/property"),
    (segment({"first_time": "Buy"}), "wrong_type", "/where/first_time"),
    (segment({"first_time": {}}), "missing_field", "/where/first_time"),
    (segment({"first_time": {**BUY, "within": "1d"}}), "unknown_field", "/where/first_time/within"),
    (segment({**BUY, "within": "1d", "calendar": "today"}), "bad_window", "/where"),
    (segment({**BUY, "a/b~c": 1}), "unknown_field", "/where/a~1b~0c"),
    *BOUNDS,
    *EVENTS,
    *WINDOWS,
    *OVER_TIME,
    *OTHERS,
]


@pytest.mark.parametrize(("document", "code", "pointer"), ROWS, ids=[f"{i}: {row[1]} {row[2]}" for i, row in enumerate(ROWS)])
def test_refused(document: object, code: str, pointer: str) -> None:
    assert (code, pointer) in faults(document)


def test_every_code_that_can_arise_has_a_row() -> None:
    assert {code for _, code, _ in ROWS} == CODES - {"not_yet", "too_costly"}  # these depend on the service


BEHIND = Known(segments=KNOWN.segments, taken_keys=KNOWN.taken_keys)
"""A service without support for lists and accounts."""
# (condition, pointer): part of the language, not supported by the service; the only error
LATER: list[tuple[Doc, str]] = [
    ({"list": "vip-upload"}, "/where"),
    ({"account": {"match": "any", "where": BUY}}, "/where"),
]


@pytest.mark.parametrize(("where", "pointer"), LATER, ids=[json.dumps(where)[:60] for where, _ in LATER])
def test_recognised_but_not_built_yet(where: Doc, pointer: str) -> None:
    with pytest.raises(DefinitionRefused) as caught:
        parse_segment(segment(where), BEHIND)
    assert [(fault.code, fault.pointer) for fault in caught.value.errors] == [("not_yet", pointer)]
    assert caught.value.not_yet


def test_all_faults_at_once_in_document_order() -> None:
    where = {"all": [{"event": "Buy", "within": "1y"}, {"trait": "a", "op": "nope"}, {"list": "x"}, {"any": []}]}
    assert faults({**segment(where), "key": "Bad", "more": 1}) == [
        ("unknown_field", "/more"),
        ("bad_key", "/key"),
        ("bad_duration", "/where/all/0/within"),
        ("unknown_operator", "/where/all/1/op"),
        ("unknown_list", "/where/all/2/list"),
        ("empty_group", "/where/all/3/any"),
    ]


def test_other_faults_outweigh_not_yet() -> None:
    with pytest.raises(DefinitionRefused) as caught:
        parse_segment(segment({"any": [{"list": "x"}, {"any": []}]}), BEHIND)
    assert not caught.value.not_yet


def test_a_cycle_is_named() -> None:
    with pytest.raises(DefinitionRefused) as caught:
        parse_segment(segment({"segment": "loop-b"}), KNOWN)
    assert "mine → loop-b → loop-a → mine" in caught.value.errors[0].message


def test_the_limits_themselves_are_accepted() -> None:
    assert parse_segment(segment(nested_nots(16)), KNOWN).key == "mine"
    assert parse_segment(segment(wide(8, 32)), KNOWN).key == "mine"
    assert parse_segment(segment({"all": [BUY] * 64}, name="x" * 200, description="é" * 2_048), KNOWN).key == "mine"
    assert parse_segment(segment({**BUY, "within": "1095d"}), KNOWN).key == "mine"


def test_the_largest_numbers_texts_and_lists_are_accepted() -> None:
    most = 2**53 - 1
    for value in (most, -most, 1.7976931348623157e308, -1e308, 5e-324, -0.0, 2.0**53):
        assert parse_segment(segment({**TRAIT, "op": "eq", "value": value}), KNOWN).key == "mine"
    assert parse_segment(segment({**TRAIT, "op": "mod", "value": [most, most - 1]}), KNOWN).key == "mine"
    assert parse_segment(segment({**TRAIT, "op": "size_lt", "value": most}), KNOWN).key == "mine"
    assert parse_segment(segment({**TRAIT, "op": "in", "value": ["x" * 38] * 6_300}), KNOWN).key == "mine"


def test_what_is_out_of_bounds_is_reported_alone_and_up_to_a_hundred_times() -> None:
    assert faults({**segment({**TRAIT, "op": "in", "value": [10**400] * 10_000}), "more": 1}) == [
        ("out_of_range", f"/where/value/{i}") for i in range(100)
    ]


def test_the_text_of_a_definition() -> None:
    assert read_document(b'{"a": [1, -0.0, 1e308, "\\u0000"]}') == {"a": [1, 0.0, 1e308, "\x00"]}
    for text in ("", "{", '{"a": NaN}', b'"\xff"'):
        with pytest.raises(ValueError, match=r".") as caught:
            read_document(text)
        assert not isinstance(caught.value, DefinitionRefused)
    for text, code in (("9" * 5_000, "out_of_range"), ("-1e400", "out_of_range"), ("[" * 9_999 + "]" * 9_999, "too_deep")):
        with pytest.raises(DefinitionRefused) as refused:
            read_document(text)
        assert [(fault.code, fault.pointer) for fault in refused.value.errors] == [(code, "")]


def test_groups_and_leaves_inside_where_count_too() -> None:
    inner = {"not": {"property": "a", "op": "exists"}}
    assert ("too_deep", "/where" + "/not" * 16 + "/where") in faults(segment(_under_nots({**BUY, "where": inner}, 16)))
    checks = {"all": [{"property": "a", "op": "exists"}] * 32}
    assert ("too_wide", "/where/all/7/where/all/24") in faults(segment({"all": [{**BUY, "where": checks}] * 8}))


def _under_nots(where: Doc, levels: int) -> Doc:
    for _ in range(levels):
        where = {"not": where}
    return where


def test_what_the_server_sets_may_be_sent_back() -> None:
    assert parse_segment(segment(BUY, version=7, status="active"), KNOWN).version == 1


def test_a_bare_condition_and_a_measure_point_from_their_own_root() -> None:
    with pytest.raises(DefinitionRefused) as condition:
        parse_condition({"all": []}, "Nowhere", KNOWN)
    assert [(fault.code, fault.pointer) for fault in condition.value.errors] == [
        ("bad_timezone", "/timezone"),
        ("empty_group", "/all"),
    ]
    with pytest.raises(DefinitionRefused) as measure:
        parse_measure({"event": "Buy", "op": "gte", "within": "x", "measure": {"avg": "v"}})
    assert [(fault.code, fault.pointer) for fault in measure.value.errors] == [
        ("unknown_field", "/op"),
        ("bad_duration", "/within"),
    ]


def test_a_measure() -> None:
    measure = parse_measure({"event": "Buy*", "measure": {"sum": "revenue"}, "within": "2w"})
    assert isinstance(measure, Measure)
    assert (measure.event.name, measure.name, measure.path, measure.window) == ("Buy*", "sum", "revenue", Within(14 * 86_400_000))
    count = parse_measure(BUY)
    assert isinstance(count, Measure)
    assert count.name == "count"


def test_a_bare_ratio() -> None:
    sides = {"of": {"event": "Refund"}, "to": {"event": "Buy", "within": "7d"}}
    ratio = parse_measure({"measure": {"ratio": sides}, "within": "30d"})
    assert isinstance(ratio, Ratio)
    assert (ratio.of.window, ratio.to.window) == (Within(30 * 86_400_000), Within(7 * 86_400_000))
    with pytest.raises(DefinitionRefused) as refused:
        parse_measure({"event": "Buy", "op": "gte", "measure": {"ratio": {"of": {"event": "Refund"}}}})
    assert {(fault.code, fault.pointer) for fault in refused.value.errors} == {
        ("unknown_field", "/event"),
        ("unknown_field", "/op"),
        ("missing_field", "/measure/ratio"),
    }


def test_a_bare_measure_has_a_timezone_of_its_own() -> None:
    days = parse_measure({"event": "Buy", "measure": {"days": True}, "calendar": "this_month"}, "Asia/Tokyo")
    assert isinstance(days, Measure)
    assert (days.zone, days.window) == ("Asia/Tokyo", Calendar("month", 0, "Asia/Tokyo"))
    with pytest.raises(DefinitionRefused) as refused:
        parse_measure(BUY, "Mars/Olympus")
    assert [(fault.code, fault.pointer) for fault in refused.value.errors] == [("bad_timezone", "/timezone")]
