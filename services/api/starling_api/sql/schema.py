"""Pure core: the schemas of the bodies of event types, views and traits in SQL, and of the checks of their results."""

from typing import Final

from starling_api.definitions.event_types import MAX_EVENT_BYTES
from starling_api.http.openapi.schemas import COMPONENTS, KEY, NAME, Schema, body, read_only
from starling_rules.sql.checks import (
    COLUMN_PATTERN,
    FRESHNESS,
    MAX_CHECKS,
    MAX_NUMBER,
    MAX_PERCENT,
    MAX_UNIQUE_COLUMNS,
    NOT_NULL,
    RANGE,
    SEVERITIES,
    UNIQUE,
    VOLUME,
)
from starling_rules.sql.event_types import KEY_PATTERN as EVENT_TYPE_KEY
from starling_rules.sql.event_types import MAX_PROPERTIES, NAME_PATTERN, TYPES
from starling_rules.sql.incremental import COLUMN, WATERMARK
from starling_rules.sql.incremental import FIELD as INCREMENTAL
from starling_rules.sql.schedule import MAX_CHARACTERS as MAX_SCHEDULE_CHARACTERS
from starling_rules.sql.statement import MAX_CHARACTERS
from starling_rules.sql.tables import TABLES
from starling_segments.language.durations import DURATION_PATTERN
from starling_segments.parse.schema import label_schemas

SCHEDULED: Final[dict[str, Schema]] = {
    "Timezone": {"type": ["string", "null"], "description": "IANA name, of the schedule and of dates; default UTC"},
    "Schedule": {
        "type": "string",
        "maxLength": MAX_SCHEDULE_CHARACTERS,
        "description": "Minute, hour, day, month and weekday of cron",
    },
    "CheckSeverity": {
        "enum": [*SEVERITIES, None],
        "description": "error, the default: the result before stays if the check fails; warning: the result is published",
    },
    "Checks": {
        "type": ["array", "null"],
        "maxItems": MAX_CHECKS,
        "items": {"$ref": f"{COMPONENTS}ResultCheck"},
        "description": "Checks of the result, before it is published; of an event type, checks of its events",
    },
}
"""Components of the bodies with checks: computed traits and views in SQL, and event types."""
_CHECKING: Final[dict[str, Schema]] = {name.lower(): {"$ref": f"{COMPONENTS}{name}"} for name in ("Timezone", "Schedule", "Checks")}
_EVENT_TYPE: Final[dict[str, Schema]] = {
    "key": {"type": "string", "pattern": EVENT_TYPE_KEY, "description": "In SQL the table is event_ and the key"},
    "event": {"type": "string", "minLength": 1, "maxLength": MAX_EVENT_BYTES, "description": "Name of the event; it never changes"},
    "description": {"type": ["string", "null"]},
    "properties": {
        "type": "array", "maxItems": MAX_PROPERTIES,
        "description": "A property is never left out, and its type never changes; `archived` removes its column",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": NAME_PATTERN},
                "type": {"enum": list(TYPES)},
                "description": {"type": ["string", "null"]},
                "archived": {"type": ["boolean", "null"]},
            },
            "required": ["name", "type"],
            "additionalProperties": False,
        },
    },
    **_CHECKING,
    "within": {
        "type": ["string", "null"], "pattern": DURATION_PATTERN,
        "description": "Checks see the events of this period before the run; default 1d",
    },
    **label_schemas(),
}  # fmt: skip


def event_type_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of event types, by name."""
    return {
        "EventTypeDefinition": body("A new event type", _EVENT_TYPE, ["key", "event", "properties"]),
        "EventTypeUpdate": body("A changed event type", _EVENT_TYPE | read_only(), ["event", "properties"]),
    }


def view_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of views, by name."""
    return {
        "ViewDefinition": body("A new view", _view(), ["key", "sql", "schedule"]),
        "ViewUpdate": body("A changed view", _view() | read_only(), ["sql", "schedule"]),
    }


def sql_trait_schema() -> Schema:
    """Return the schema of a new computed trait in SQL, without its labels."""
    return {
        "type": "object",
        "properties": {
            "key": KEY,
            "name": NAME,
            "sql": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_CHARACTERS,
                "description": "One SELECT with the columns user_id and value, over the tables " + ", ".join(TABLES),
            },
            **_CHECKING,
        },
        "required": ["key", "sql", "schedule"],
        "additionalProperties": False,
    }


def _view() -> dict[str, Schema]:
    own = dict(sql_trait_schema()["properties"]) | {INCREMENTAL: {"$ref": f"{COMPONENTS}Incremental"}}
    sql = own["sql"] | {"description": "One SELECT with a name for each column, over the tables " + ", ".join(TABLES)}
    key = {"type": "string", "pattern": EVENT_TYPE_KEY, "description": "Name of the table"}
    return own | {"key": key, "sql": sql, "description": {"type": ["string", "null"]}, **label_schemas()}


def incremental_schema() -> Schema:
    """Return the schema of the field `incremental` of a view."""
    watermark: Schema = {
        "type": ["string", "null"],
        "pattern": DURATION_PATTERN,
        "description": "Days that are older wait for the next day; default 7d",
    }
    column: Schema = {"type": "string", "pattern": COLUMN_PATTERN, "description": "to_date(event_time) in the result"}
    fields = _object({COLUMN: column, WATERMARK: watermark}, [COLUMN])
    return fields | {"type": ["object", "null"], "description": "A run replaces the rows of the days that have new events"}


def check_schema() -> Schema:
    """Return the schema of one check."""
    column: Schema = {"type": "string", "pattern": COLUMN_PATTERN}
    number: Schema = {"type": ["number", "null"], "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}
    count: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_NUMBER}
    percent: Schema = {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": MAX_PERCENT}
    duration: Schema = {"type": "string", "pattern": DURATION_PATTERN}
    rules: dict[str, Schema] = {
        NOT_NULL: column,
        RANGE: _object({"column": column, "min": number, "max": number}, ["column"]),
        UNIQUE: {"type": "array", "items": column, "minItems": 1, "maxItems": MAX_UNIQUE_COLUMNS},
        VOLUME: _object({"min": count, "max": count, "change_percent": percent}, []),
        FRESHNESS: _object({"column": column, "within": duration}, ["column", "within"]),
    }
    severity: Schema = {"$ref": f"{COMPONENTS}CheckSeverity"}
    return {
        "description": "One check of the result of a statement in SQL",
        "anyOf": [_object({rule: schema, "severity": severity}, [rule]) for rule, schema in rules.items()],
    }


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
