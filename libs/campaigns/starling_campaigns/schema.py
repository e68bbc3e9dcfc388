"""Pure core: the JSON Schemas (2020-12) of campaigns and targets, generated from the tables and bounds of the parsers.

Only the parsers check what a schema cannot express: that a segment exists, that weights sum to 100, what a template costs.
"""

from collections.abc import Iterable
from typing import Any, Final

from starling_campaigns.bounds import DEFAULT_RATE, MAX_LOCALES, MAX_RATE, MAX_SOURCE_BYTES
from starling_campaigns.channels import CHANNELS, Channel
from starling_campaigns.definitions.campaign import REQUIRED_FIELDS
from starling_campaigns.definitions.references import INSTANT_PATTERN, LOCAL_PATTERN
from starling_campaigns.definitions.targets import CHANNEL_FIELDS, TargetField
from starling_campaigns.locales import LOCALE_PATTERN
from starling_policy.bounds import MAX_DEDUPE_KEY_CHARACTERS, MAX_PRIORITY, MAX_VARIANTS
from starling_policy.campaign import DEFAULT_PRIORITY, MARKETING, MODES
from starling_segments import json_schema
from starling_segments.language.durations import DURATION_PATTERN
from starling_segments.parse.document import KEY_PATTERN, MAX_DESCRIPTION_BYTES, MAX_NAME_CHARACTERS
from starling_segments.parse.schema import label_schemas

Schema = dict[str, Any]

_KEY: Final[Schema] = {"type": "string", "pattern": KEY_PATTERN}
_DURATION: Final[Schema] = {"type": "string", "pattern": DURATION_PATTERN}
_PERCENT: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 100, "description": "At most two decimals"}
_TEMPLATE: Final[Schema] = {"type": "string", "maxLength": MAX_SOURCE_BYTES}
_DEFS: Final = "#/$defs/"


def campaign_schema() -> Schema:
    """Return a JSON Schema that accepts every valid campaign."""
    fields = campaign_fields()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Campaign",
        **_object(fields, REQUIRED_FIELDS),
        "allOf": content_by_channel(),
        "$defs": _used_definitions(fields),
    }


def campaign_fields() -> dict[str, Schema]:
    """Return the schemas of the fields of a campaign. Their references lead to the `$defs` of the segment language."""
    mode = {"enum": [*MODES, None], "default": MODES[0]}
    return {
        "key": _KEY,
        "name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
        "description": {"type": ["string", "null"], "maxLength": MAX_DESCRIPTION_BYTES},
        **label_schemas(),
        "trigger": {"anyOf": _triggers()},
        "delay": {**_or_null(_DURATION), "description": "From the trigger, 0s to 90d; default: none"},
        "cancel": _or_null(_object({"left": {"type": ["boolean", "null"], "default": True}, "event": _or_null(_event())})),
        "reentry": {
            "anyOf": [{"enum": ["always", "once", None]}, _object({"after": _DURATION}, ("after",))],
            "default": "always",
        },
        "dedupe_key": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_DEDUPE_KEY_CHARACTERS},
        "priority": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_PRIORITY, "default": DEFAULT_PRIORITY},
        "purpose": {**_or_null(_KEY), "default": MARKETING},
        "expires_after": {**_or_null(_DURATION), "description": "After the due instant, 1s to 7d", "default": "24h"},
        "quiet": mode,
        "caps": mode,
        "channel": {"enum": [*CHANNELS]},
        "target": _KEY,
        "variants": {"type": "array", "items": _variant(), "minItems": 1, "maxItems": MAX_VARIANTS},
        "holdout": _or_null(_object({"percent": _PERCENT}, ("percent",))),
        "goal": _or_null(_goal()),
        "rate": {
            "type": ["integer", "null"], "minimum": 1, "maximum": MAX_RATE, "default": DEFAULT_RATE,
            "description": "Of a broadcast: messages a second",
        },
    }  # fmt: skip


def content_by_channel() -> list[Schema]:
    """Return a condition for each channel: which parts its variants have."""
    return [
        {
            "if": {"properties": {"channel": {"const": channel.name}}, "required": ["channel"]},
            "then": {"properties": {"variants": {"items": {"properties": _content_of(channel)}}}},
        }
        for channel in CHANNELS.values()
    ]


def target_schema() -> Schema:
    """Return a JSON Schema that accepts every valid target. Secrets are marked as `writeOnly`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Target",
        "anyOf": [*target_schemas().values()],
        "$defs": _used_definitions(label_schemas()),
    }


def target_schemas() -> dict[str, Schema]:
    """Return the closed schema of the targets of each channel."""
    return {channel: _target(channel, table) for channel, table in CHANNEL_FIELDS.items()}


def _target(channel: str, table: Any) -> Schema:
    common: dict[str, Schema] = {
        "key": _KEY,
        "channel": {"const": channel},
        "name": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
        "description": {"type": ["string", "null"], "maxLength": MAX_DESCRIPTION_BYTES},
        **label_schemas(),
    }
    return _table(table, common, ("key", "channel"))


def _table(table: dict[str, TargetField], common: dict[str, Schema], required: tuple[str, ...]) -> Schema:
    own = {name: _field(field) for name, field in table.items()}
    return _object({**common, **own}, (*required, *(name for name, field in table.items() if field.required)))


def _field(field: TargetField) -> Schema:
    if field.fields is not None:
        schema = _table(dict(field.fields), {}, ())
    elif field.each is not None and field.kind is not None:
        schema = {**field.kind.schema, "additionalProperties": _field(field.each)}
    else:
        schema = dict(field.kind.schema) if field.kind is not None else {}
    if field.secret:
        schema = {**schema, "writeOnly": True}
    return schema if field.required else _or_null(schema)


def _triggers() -> list[Schema]:
    flag = {"type": ["boolean", "null"], "description": "Changes by definitions and merges count too; default: false"}
    at = {"type": "string", "pattern": INSTANT_PATTERN, "description": "An instant with its offset"}
    local = {"type": "string", "pattern": LOCAL_PATTERN, "description": "By the clock of each user"}
    none: Schema = {"type": "null"}
    return [
        _object({"enter": _KEY, "on_definition": flag}, ("enter",)),
        _object({"exit": _KEY, "on_definition": flag}, ("exit",)),
        _object({"event": _event(), "while": _or_null(_KEY)}, ("event",)),
        _object({"broadcast": _KEY, "at": at, "local": none}, ("broadcast", "at")),
        _object({"broadcast": _KEY, "local": local, "at": none}, ("broadcast", "local")),
    ]


def _goal() -> Schema:
    fields = {**_event()["properties"], "within": _DURATION, "value": _or_null(_ref("path"))}
    return _object(fields, ("event", "within"))


def _event() -> Schema:
    return _object({"event": _ref("event_name"), "where": _or_null(_ref("event_filter"))}, ("event",))


def _variant() -> Schema:
    names = list(dict.fromkeys(part.name for channel in CHANNELS.values() for part in channel.parts))
    content = _object({name: {"type": ["string", "null"], "maxLength": MAX_SOURCE_BYTES} for name in names})
    return _object(
        {"key": _KEY, "weight": _PERCENT, "content": content, "locales": _or_null(_locales(content))}, ("key", "weight", "content")
    )


def _locales(content: Schema) -> Schema:
    names = {"propertyNames": {"pattern": LOCALE_PATTERN}, "maxProperties": MAX_LOCALES}
    return {"type": "object", **names, "additionalProperties": content}


def _content_of(channel: Channel) -> dict[str, Schema]:
    any_part = {part.name: _or_null(_TEMPLATE) for part in channel.parts}
    base = {part.name: _TEMPLATE if part.required else _or_null(_TEMPLATE) for part in channel.parts}
    content = _object(base, [part.name for part in channel.parts if part.required])
    if channel.one_of:
        content["anyOf"] = [{"properties": {name: _TEMPLATE}, "required": [name]} for name in channel.one_of]
    return {"content": content, "locales": _or_null(_locales(_object(any_part)))}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": _DEFS + name}


def _object(properties: dict[str, Schema], required: Iterable[str] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    names = [*required]
    return {**schema, "required": names} if names else schema


def _used_definitions(schema: Any) -> Schema:
    """Return the definitions of the segment language that a schema needs."""
    every, found, waiting = json_schema()["$defs"], {}, [*_references(schema)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = every[name]
            waiting.extend(_references(every[name]))
    return {name: found[name] for name in every if name in found}


def _references(schema: Any) -> Iterable[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.removeprefix(_DEFS)
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)
