"""Pure core: the JSON Schema (2020-12) of a segment document, made from the tables the parser uses.

What a schema cannot say (that a segment exists, that a pattern compiles, how deep a tree is) stays the parser's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from starling_segments.conditions import LEAF_READERS, MAX_EVENT_NAME_CHARACTERS
from starling_segments.document import KEY_PATTERN, MAX_NAME_CHARACTERS, SEGMENT_FIELDS
from starling_segments.faults import MAX_DEPTH, MAX_LEAVES
from starling_segments.filters import EVENT_SOURCES
from starling_segments.groups import GROUP_KINDS, MAX_PARTS
from starling_segments.measures import MEASURES
from starling_segments.operators import OPERATORS, operands
from starling_segments.operators.table import Operator
from starling_segments.paths import MAX_PATH_CHARACTERS
from starling_segments.tree import GroupKind

Schema = dict[str, Any]

_PATH: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARACTERS, "pattern": r"^[^.]+(\.[^.]+)*$"}


def json_schema() -> Schema:
    """A JSON Schema that accepts every document of the language as far as it is built."""
    fields: dict[str, Schema] = {
        "key": {"type": "string", "pattern": KEY_PATTERN},
        "name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
        "description": {"type": ["string", "null"]},
        "timezone": {"type": ["string", "null"], "description": "IANA name; default UTC"},
        "where": _ref("condition"),
        "version": {"readOnly": True},
        "status": {"readOnly": True},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Segment",
        **_object({name: fields[name] for name in fields if name in SEGMENT_FIELDS}, ["key", "name", "where"]),
        "$defs": _definitions(),
    }


def _definitions() -> dict[str, Schema]:
    return {
        "condition": {
            "description": f"A tree of at most {MAX_LEAVES} leaves, groups at most {MAX_DEPTH} deep",
            "anyOf": [*_groups("condition"), *(_ref(name) for name in LEAF_READERS)],
        },
        "trait": _with_predicate({"trait": _PATH}, ["trait"], _predicates(OPERATORS)),
        "event": _event(),
        "first_time": _object(
            {
                "first_time": _object({"event": _ref("event_name"), "where": _ref("event_filter")}, ["event"]),
                "within": _ref("duration"),
            },
            ["first_time"],
        ),
        "segment": _object({"segment": {"type": "string", "pattern": KEY_PATTERN}}, ["segment"]),
        "everyone": _object({"everyone": {"const": True}}, ["everyone"]),
        "event_name": {"type": "string", "minLength": 1, "maxLength": MAX_EVENT_NAME_CHARACTERS},
        "duration": dict(operands.DURATION.schema),
        "event_filter": {
            "anyOf": [
                *_groups("event_filter"),
                *(_with_predicate({source: _PATH}, [source], _predicates(OPERATORS)) for source in EVENT_SOURCES),
            ]
        },
        "item_filter": {"anyOf": [*_groups("item_filter"), _with_predicate({"item": _PATH}, [], _predicates(OPERATORS))]},
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _groups(part: str) -> list[Schema]:
    return [_object({kind: _parts(kind, part)}, [kind]) for kind in GROUP_KINDS]


def _parts(kind: GroupKind, part: str) -> Schema:
    return _ref(part) if kind == "not" else {"type": "array", "items": _ref(part), "minItems": 1, "maxItems": MAX_PARTS}


def _with_predicate(own: dict[str, Schema], required: list[str], predicates: list[Schema]) -> Schema:
    return {
        "type": "object",
        "properties": own,
        "required": required,
        "anyOf": predicates,
        "unevaluatedProperties": False,
    }


def _predicates(operators: Iterable[str]) -> list[Schema]:
    """One alternative for each shape of operand."""
    alike: dict[str, tuple[Schema, list[str], list[str]]] = {}
    for name in operators:
        properties, required = _operand(OPERATORS[name])
        shape = json.dumps(properties, sort_keys=True)
        alike.setdefault(shape, (properties, required, []))[2].append(name)
    return [
        {"properties": {"op": {"enum": names}, **properties}, "required": ["op", *required]}
        for properties, required, names in alike.values()
    ]


def _operand(operator: Operator) -> tuple[Schema, list[str]]:
    if operator.filters:
        return {"where": _ref("item_filter")}, ["where"]
    if operator.operand is operands.NOTHING:
        return {}, []
    case: Schema = {"ignore_case": {"type": "boolean"}} if operator.ignores_case else {}
    return {"value": dict(operator.operand.schema), **case}, ["value"]


def _event() -> Schema:
    """An event measure; without `op` it is a count of at least 1."""
    kinds = {kind.gives for kind in MEASURES.values()}
    fitting = [name for name, operator in OPERATORS.items() if kinds & operator.fits and not operator.filters]
    over_property = [_object({name: _PATH}, [name]) for name, kind in MEASURES.items() if kind.payload]
    own = {
        "event": _ref("event_name"),
        "where": _ref("event_filter"),
        "measure": {"anyOf": [{"const": "count"}, *over_property]},
        "within": _ref("duration"),
    }
    bare = {"properties": {"op": False, "value": False, "measure": {"const": "count"}}}
    return _with_predicate(own, ["event"], [bare, *_predicates(fitting)])
