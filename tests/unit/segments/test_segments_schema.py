"""The JSON Schema accepts what the parser accepts, as far as a schema can express it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import starling_segments
from starling_segments import json_schema
from starling_segments.language.operators import OPERATORS

CASES = Path(starling_segments.__file__).parent.parent / "cases"
SHOES = {"property": "category", "op": "eq", "value": "shoes"}
VERSION = {"context": "app.version", "op": "semver_gte", "value": "2.0.0"}
Doc = dict[str, Any]

LAPSING_VIPS = {
    "key": "lapsing-vips",
    "name": "Lapsing VIPs",
    "description": "Big spenders who stopped coming",
    "timezone": "Asia/Tokyo",
    "tags": ["spring"],
    "owner": "crm team",
    "where": {
        "all": [
            {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 50000, "within": "365d"},
            {"not": {"event": "Page Viewed", "within": "30d"}},
            {"trait": "consent.email", "op": "eq", "value": True},
        ]
    },
}
ACCEPTED: list[Doc] = [
    LAPSING_VIPS["where"],  # type: ignore[list-item]
    {"everyone": True},
    {"trait": "plan", "op": "eq", "value": "pro"},
    {"trait": "name", "op": "in", "value": ["a"], "ignore_case": True},
    {"event": "Order Completed", "where": {"all": [SHOES, VERSION]}, "measure": "count", "op": "gte", "value": 3, "within": "30d"},
    {"event": "Message *"},
    {"first_time": {"event": "Order Completed"}, "within": "7d"},
    {"segment": "other-key"},
    {"trait": "plan", "op": "eq", "value": "pro", "held_for": "7d"},
    {"trait": "plan", "op": "neq", "value": "pro", "held_less_than": "7d"},
    *({"event": "X", "measure": {name: "v"}, "op": "gt", "value": 1} for name in ("avg", "min", "max", "first", "last")),
    {"event": "X", "measure": {"most_frequent": "shop"}, "op": "starts_with", "value": "north"},
    {"event": "X", "measure": {"percentile": "total", "q": 0.95}, "op": "gte", "value": 100, "between_ago": ["60d", "30d"]},
    {"event": "X", "measure": "last_time", "op": "older_than", "value": "30d"},
    {"event": "X", "measure": "first_time", "op": "before", "value": "2026-03-01", "calendar": "this_year"},
    {"event": "X", "measure": {"days": True}, "op": "gte", "value": 3, "calendar": "last_week"},
    {
        "measure": {"ratio": {"of": {"event": "X", "after": "2026-01-01"}, "to": {"event": "Y"}}},
        "op": "lt",
        "value": 0.1,
        "within": "7d",
    },
    {"event": "X", "after": "2026-01-01", "before": "2026-02-01"},
    {"event": "X", "where": {"property": "shop", "op": "eq", "value": {"trait": "favourite_shop"}}},
    {
        "sequence": [
            {"event": "Product Added"},
            {"event": "Checkout Started", "within": "1h"},
            {"not": {"event": "Order Completed"}, "for": "30m"},
        ],
        "within": "7d",
    },
    {
        "sequence": [
            {"event": "X"},
            {"not": {"event": "Z"}},
            {"event": "Y", "where": {"property": "sku", "op": "eq", "value": {"step": 0, "property": "sku"}}},
        ]
    },
    {"regularly": {"event": "Page Viewed"}, "every": "7d", "at_least": 3, "of": 4},
    {"list": "vip-upload"},
    {"bucket": {"salt": "exp-7", "from": 0, "to": 25}},
    {"account": {"match": "any", "where": {"all": [{"event": "X"}, {"segment": "other-key"}]}}},
    {"none": [{"any": [{"not": {"event": "X", "within": "30d"}}]}]},
    {"trait": "cart", "op": "all_items", "where": {"any": [{"item": "sku", "op": "eq", "value": "a"}, {"op": "eq", "value": 1}]}},
]
REFUSED: list[Doc] = [
    {},
    {"all": []},
    {"all": [{"everyone": True}] * 65},
    {"all": [{"everyone": True}], "any": [{"everyone": True}]},
    {"everyone": False},
    {"trait": "plan"},
    {"trait": "plan", "op": "eq"},
    {"trait": "plan", "op": "like", "value": "x"},
    {"trait": "plan", "op": "exists", "value": 1},
    {"trait": "plan", "op": "gt", "value": True},
    {"trait": "plan", "op": "gt", "value": 1, "ignore_case": True},
    {"trait": "plan", "op": "eq", "value": "a", "held_for": 7},
    {"trait": "a..b", "op": "exists"},
    {"trait": "cart", "op": "any_item", "value": 1},
    {"event": "X", "within": "1y"},
    {"event": "X", "value": 3},
    {"event": "X", "measure": {"sum": "v"}},
    {"event": "X", "measure": {"avg": "v"}, "op": "contains", "value": "x"},
    {"event": "X", "measure": {"avg": "v", "sum": "v"}, "op": "gt", "value": 1},
    {"event": "X", "measure": {"percentile": "v"}, "op": "gt", "value": 1},
    {"event": "X", "measure": "last_time", "op": "gt", "value": 1},
    {"event": "X", "within": "7d", "calendar": "today"},
    {"event": "X", "between_ago": ["7d"]},
    {"event": "X", "calendar": "this_decade"},
    {"measure": {"ratio": {"of": {"event": "X"}}}, "op": "gt", "value": 1},
    {"measure": {"ratio": {"of": {"event": "X", "op": "gt"}, "to": {"event": "X"}}}, "op": "gt", "value": 1},
    {"event": "X", "where": {"property": "a", "op": "matches", "value": {"trait": "p"}}},
    {"event": "X", "where": {"property": "a", "op": "eq", "value": {"trait": "p", "step": 0}}},
    {"sequence": []},
    {"sequence": [{"not": {"event": "X", "for": "1d"}}]},
    {"sequence": [{"event": "X", "measure": "count"}]},
    {"regularly": {"event": "X"}, "every": "7d", "at_least": 3},
    {"bucket": {"salt": "a", "from": 0, "to": 101}},
    {"account": {"match": "most", "where": {"everyone": True}}},
    {"event": "X", "op": "contains", "value": "x"},
    {"event": "X", "where": {"event": "Y"}},
    {"event": "X", "where": {"op": "exists"}},
    {"first_time": {"event": "X", "within": "7d"}},
    {"list": 5},
    {"trait": "v", "op": "mod", "value": [2**53, 0]},
    {"trait": "v", "op": "size_gt", "value": 2**53},
]
VALIDATOR = Draft202012Validator(json_schema())


def document(where: object) -> Doc:
    return {"key": "mine", "name": "Mine", "where": where}


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert json.loads(json.dumps(json_schema())) == json_schema()


def test_the_documented_segment_is_valid() -> None:
    assert list(VALIDATOR.iter_errors(LAPSING_VIPS)) == []


@pytest.mark.parametrize("where", ACCEPTED, ids=lambda where: json.dumps(where)[:60])
def test_accepts(where: Doc) -> None:
    assert list(VALIDATOR.iter_errors(document(where))) == []


@pytest.mark.parametrize("where", REFUSED, ids=lambda where: json.dumps(where)[:60])
def test_refuses(where: Doc) -> None:
    assert not VALIDATOR.is_valid(document(where))


@pytest.mark.parametrize(
    "change",
    [{"key": "Mine"}, {"name": ""}, {"name": "x" * 201}, {"description": "x" * 4097}, {"owner": 1}, {"timezone": 5}],
    ids=str,
)
def test_refuses_a_segment_with(change: Doc) -> None:
    assert not VALIDATOR.is_valid({**document({"everyone": True}), **change})


def test_accepts_every_shared_case_and_knows_every_operator() -> None:
    used = set()
    for path in CASES.glob("*/*.json"):
        for case in json.loads(path.read_text())["cases"]:
            documents = case.get("segments") or [document({"trait": "v", **case["predicate"]})]
            used.add(case.get("predicate", {}).get("op"))
            for found in documents:
                assert list(VALIDATOR.iter_errors(found)) == [], found
    assert used - {None} == OPERATORS.keys()
