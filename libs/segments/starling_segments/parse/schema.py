"""Pure core: the JSON Schema (2020-12) of a segment document, generated from the tables of the parser.

Only the parser checks what a schema cannot express: that a segment exists, that a pattern compiles, how deep a tree is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from starling_segments.aggregates.measure_table import ANY_TYPE, MEASURES, PLAIN
from starling_segments.language.operators import OPERATORS, operands
from starling_segments.language.operators.table import NUMBER, Operator
from starling_segments.language.paths import MAX_PATH_CHARACTERS
from starling_segments.language.tree import GroupKind, MeasureName
from starling_segments.language.validation import MAX_DEPTH, MAX_LEAVES
from starling_segments.parse.behaviour import MAX_EVENT_NAME_CHARACTERS, MAX_PERIODS, OVER_PROPERTY
from starling_segments.parse.comparisons import COMPARING
from starling_segments.parse.conditions import LEAF_READERS, MATCHES, MAX_SALT_CHARACTERS
from starling_segments.parse.document import (
    KEY_PATTERN,
    MAX_DESCRIPTION_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_OWNER_CHARACTERS,
    MAX_TAG_CHARACTERS,
    MAX_TAGS,
    SEGMENT_FIELDS,
)
from starling_segments.parse.filters import EVENT_SOURCES
from starling_segments.parse.groups import GROUP_KINDS, MAX_PARTS
from starling_segments.parse.windows import CALENDAR

Schema = dict[str, Any]

_PATH: Schema = {"$ref": "#/$defs/path"}

_AREAS = {"circle": operands.CIRCLE, "box": operands.BOX}


def json_schema() -> Schema:
    """Return a JSON Schema that accepts every valid document."""
    fields: dict[str, Schema] = {
        "key": {"type": "string", "pattern": KEY_PATTERN},
        "name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
        "description": {"type": ["string", "null"], "maxLength": MAX_DESCRIPTION_BYTES},
        "timezone": {"type": ["string", "null"], "description": "IANA name; default UTC"},
        **label_schemas(),
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


def label_schemas() -> dict[str, Schema]:
    """Return the schemas of the labels of a definition. Their reference leads to the `$defs` of the language."""
    return {"tags": _ref("tags"), "owner": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_OWNER_CHARACTERS}}


def trait_schema() -> Schema:
    """Return the JSON Schema of a computed trait: an event measure with a key, without `op` and `value`."""
    own: dict[str, Schema] = {
        "key": {"type": "string", "pattern": KEY_PATTERN},
        "name": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
        "timezone": {"type": ["string", "null"], "description": "IANA name; default UTC"},
    }
    every = {"anyOf": _refs(map(_measure_of, _types()))}
    one = {"event": _ref("event_name"), "where": _ref("event_filter"), "measure": every}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Computed trait",
        "anyOf": [
            _windowed(own | one, ["key", "event"]),
            _windowed(own | {"measure": _object({"ratio": _sides()}, ["ratio"])}, ["key", "measure"]),
        ],
        "$defs": _definitions(),
    }


def _definitions() -> dict[str, Schema]:
    return {
        "condition": {
            "description": f"At most {MAX_LEAVES} conditions; groups nested at most {MAX_DEPTH} deep",
            "anyOf": [*_refs(_groups("condition")), *(_ref("ratio" if name == "measure" else name) for name in LEAF_READERS)],
        },
        **_groups("condition"),
        "trait": _with_predicate({"trait": _PATH, "held_for": _ref("duration"), "held_less_than": _ref("duration")}, ["trait"]),
        "predicate": {"anyOf": _predicates(OPERATORS)},
        "items_predicate": _items_predicate(),
        **{_fitting(gives): {"anyOf": _predicates(_operators_of(gives))} for gives in _types() if gives != ANY_TYPE},
        "event": _event(),
        "ratio": _ratio(),
        "measured": _measured(),
        "first_time": _windowed({"first_time": _ref("events")}, ["first_time"]),
        **_over_time(),
        "segment": _object({"segment": {"type": "string", "pattern": KEY_PATTERN}}, ["segment"]),
        "list": _object({"list": {"type": "string"}}, ["list"]),
        "bucket": _object({"bucket": _bucket()}, ["bucket"]),
        "account": _object({"account": _ref("account_users")}, ["account"]),
        "account_users": _object({"match": {"enum": [*MATCHES]}, "where": _ref("condition")}, ["match", "where"]),
        "everyone": _object({"everyone": {"const": True}}, ["everyone"]),
        "events": _object({"event": _ref("event_name"), "where": _ref("event_filter")}, ["event"]),
        "tags": {
            "type": ["array", "null"],
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARACTERS},
            "maxItems": MAX_TAGS,
        },
        "event_name": {"type": "string", "minLength": 1, "maxLength": MAX_EVENT_NAME_CHARACTERS},
        "path": {"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARACTERS, "pattern": r"^[^.]+(\.[^.]+)*$"},
        "duration": dict(operands.DURATION.schema),
        "window": {"anyOf": _one_window()},
        **{_measure_of(gives): _measures(gives) for gives in _types()},
        **{name: dict(area.schema) for name, area in _AREAS.items()},
        **_event_filters(),
        **_item_filters(),
    }


def _event_filters() -> dict[str, Schema]:
    parts = _groups("event_filter")
    parts |= {f"event_{source}": _with_predicate({source: _PATH}, [source]) for source in EVENT_SOURCES}
    compared = {source: _object({source: _PATH, **_compared()}, [source, "op", "value"]) for source in EVENT_SOURCES}
    parts |= {f"event_{source}_compared": one for source, one in compared.items()}
    return {"event_filter": {"anyOf": _refs(parts)}, **parts}


def _item_filters() -> dict[str, Schema]:
    parts = _groups("item_filter") | {"item": _with_predicate({"item": _PATH}, [])}
    return {"item_filter": {"anyOf": _refs(parts)}, **parts}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _refs(names: Iterable[str]) -> list[Schema]:
    return [_ref(name) for name in names]


def _groups(part: str) -> dict[str, Schema]:
    """Return the groups of a part by name: code generators need a name for each alternative of a recursive type."""
    return {f"{part}_{kind}": _object({kind: _parts(kind, part)}, [kind]) for kind in GROUP_KINDS}


def _parts(kind: GroupKind, part: str) -> Schema:
    return _ref(part) if kind == "not" else {"type": "array", "items": _ref(part), "minItems": 1, "maxItems": MAX_PARTS}


def _with_predicate(own: dict[str, Schema], required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": own,
        "required": required,
        "anyOf": [_ref("predicate")],
        "unevaluatedProperties": False,
    }


def _types() -> list[str]:
    """Return the value types of all measures."""
    return list(dict.fromkeys(kind.value_type for kind in MEASURES.values()))


def _operators_of(gives: str) -> list[str]:
    return [name for name, operator in OPERATORS.items() if gives == ANY_TYPE or gives in operator.fits]


def _fitting(gives: str) -> str:
    """Return the name of the predicates for values of a type."""
    return "predicate" if gives == ANY_TYPE else f"{gives}_predicate"


def _measure_of(gives: str) -> str:
    """Return the name of the measures with values of a type."""
    return f"{gives}_measure"


def _predicates(operators: Iterable[str]) -> list[Schema]:
    """Return one alternative for each shape of operand. Filters over items are recursive and therefore have a name."""
    alike: dict[str, tuple[Schema, list[str], list[str]]] = {}
    filtering = False
    for name in operators:
        if OPERATORS[name].filters:
            filtering = True
            continue
        properties, required = _operand(OPERATORS[name])
        shape = json.dumps(properties, sort_keys=True)
        alike.setdefault(shape, (properties, required, []))[2].append(name)
    found = [
        {"properties": {"op": {"enum": names}, **properties}, "required": ["op", *required]}
        for properties, required, names in alike.values()
    ]
    return [*found, _ref("items_predicate")] if filtering else found


def _items_predicate() -> Schema:
    names = [name for name, operator in OPERATORS.items() if operator.filters]
    return {"type": "object", "properties": {"op": {"enum": names}, "where": _ref("item_filter")}, "required": ["op", "where"]}


def _operand(operator: Operator) -> tuple[Schema, list[str]]:
    if operator.operand is operands.NOTHING:
        return {}, []
    case: Schema = {"ignore_case": {"type": "boolean"}} if operator.ignores_case else {}
    name = next((name for name, area in _AREAS.items() if area is operator.operand), None)
    return {"value": dict(operator.operand.schema) if name is None else _ref(name), **case}, ["value"]


def _compared() -> dict[str, Schema]:
    """Return the schema of a comparison with a trait or with an earlier step."""
    step = _object({"step": {"type": "integer", "minimum": 0}, "property": _PATH}, ["step", "property"])
    return {
        "op": {"enum": [*COMPARING]},
        "value": {"anyOf": [_object({"trait": _PATH}, ["trait"]), step]},
        "ignore_case": {"type": "boolean"},
    }


def _bucket() -> Schema:
    share = {"type": "number", "minimum": 0, "maximum": 100}
    salt = {"type": "string", "minLength": 1, "maxLength": MAX_SALT_CHARACTERS}
    return _object({"salt": salt, "from": share, "to": share}, ["salt", "from", "to"])


def _over_time() -> dict[str, Schema]:
    """Return the schemas of sequences and regular habits."""
    whole = {"type": "integer", "minimum": 1, "maximum": MAX_PERIODS}
    events = {"event": _ref("event_name"), "where": _ref("event_filter")}
    step = {
        "anyOf": [
            _object({**events, "within": _ref("duration")}, ["event"]),
            _object({"not": _ref("events"), "for": _ref("duration")}, ["not"]),
        ]
    }
    steps = {"type": "array", "items": step, "minItems": 1, "maxItems": MAX_PARTS}
    return {
        "sequence": _object({"sequence": steps, "within": _ref("duration")}, ["sequence"]),
        "regularly": _object(
            {"regularly": _ref("events"), "every": _ref("duration"), "at_least": whole, "of": whole},
            ["regularly", "every", "at_least", "of"],
        ),
    }


def _window_forms() -> list[dict[str, Schema]]:
    """Return the fields of each kind of window; at least one field of one kind is required."""
    pair: Schema = {"type": "array", "items": _ref("duration"), "minItems": 2, "maxItems": 2}
    date = dict(operands.DATE.schema)
    return [
        {"within": _ref("duration")},
        {"between_ago": pair},
        {"after": date, "before": date},
        {"calendar": {"enum": [*CALENDAR]}},
    ]


def _one_window() -> list[Schema]:
    """Return one alternative for each kind of window, with the fields of the others forbidden."""
    forms = _window_forms()
    every = [name for form in forms for name in form]
    return [{"properties": {name: form.get(name, False) for name in every}} for form in forms]


def _windowed(own: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": own, "required": required, "anyOf": [_ref("window")], "unevaluatedProperties": False}


def _measure(name: MeasureName) -> Schema:
    if name == "percentile":
        return _object({name: _PATH, "q": {"type": "number", "minimum": 0, "maximum": 1}}, [name, "q"])
    return _object({name: _PATH}, [name])


def _measures(gives: str) -> Schema:
    """Return the schema of the measures with values of a type."""
    fitting = [name for name, kind in MEASURES.items() if kind.value_type == gives]
    plain = [name for name in fitting if name in PLAIN]
    days = [_object({"days": {"const": True}}, ["days"])] if "days" in fitting else []
    return {"anyOf": [*([{"enum": plain}] if plain else []), *(_measure(name) for name in fitting if name in OVER_PROPERTY), *days]}


def _event() -> Schema:
    """Return the schema of an event measure; without `op` it is a count of at least 1."""
    own = {"event": _ref("event_name"), "where": _ref("event_filter")}
    bare = {"properties": {"op": False, "value": False, "measure": {"const": "count"}}}
    by_type = [
        {
            "properties": {"measure": _ref(_measure_of(gives))},
            "required": [] if gives == NUMBER else ["measure"],
            "anyOf": [_ref(_fitting(gives))],
        }
        for gives in _types()
    ]
    return {
        "type": "object",
        "properties": own,
        "required": ["event"],
        "allOf": [{"anyOf": [_ref("window")]}, {"anyOf": [bare, *by_type]}],
        "unevaluatedProperties": False,
    }


def _measured() -> Schema:
    """Return the schema of one side of a ratio: a numeric event measure without `op`."""
    own = {"event": _ref("event_name"), "where": _ref("event_filter"), "measure": _ref(_measure_of(NUMBER))}
    return _windowed(own, ["event"])


def _ratio() -> Schema:
    fitting = [name for name, operator in OPERATORS.items() if NUMBER in operator.fits and not operator.filters]
    return {
        "type": "object",
        "properties": {"measure": _object({"ratio": _sides()}, ["ratio"])},
        "required": ["measure"],
        "allOf": [{"anyOf": [_ref("window")]}, {"anyOf": _predicates(fitting)}],
        "unevaluatedProperties": False,
    }


def _sides() -> Schema:
    return _object({"of": _ref("measured"), "to": _ref("measured")}, ["of", "to"])
