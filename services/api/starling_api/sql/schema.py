"""Pure core: the JSON schema of a check of the result of a statement in SQL."""

from typing import Any

from starling_rules.sql.checks import (
    COLUMN_PATTERN,
    FRESHNESS,
    MAX_NUMBER,
    MAX_PERCENT,
    MAX_UNIQUE_COLUMNS,
    NOT_NULL,
    RANGE,
    SEVERITIES,
    UNIQUE,
    VOLUME,
)
from starling_segments.language.durations import DURATION_PATTERN

Schema = dict[str, Any]


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
    severity: Schema = {
        "enum": [*SEVERITIES, None],
        "description": "error, the default: the result before stays if the check fails; warning: the result is published",
    }
    return {
        "description": "One check of the result of a statement in SQL",
        "anyOf": [_object({rule: schema, "severity": severity}, [rule]) for rule, schema in rules.items()],
    }


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
