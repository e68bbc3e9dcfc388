"""Pure core: what the schemas of request bodies share."""

from collections.abc import Mapping
from typing import Any, Final

from starling_api.definitions.kinds.reading import READ_ONLY
from starling_segments.parse.document import KEY_PATTERN, MAX_NAME_CHARACTERS

Schema = dict[str, Any]

COMPONENTS: Final = "#/components/schemas/"
KEY: Final[Schema] = {"type": "string", "pattern": KEY_PATTERN}
NAME: Final[Schema] = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_CHARACTERS}

_READ_ONLY_TYPES: Final[Mapping[str, Schema]] = {
    "version": {"type": "integer"},
    "revision": {"type": "integer"},
    "used_by": {"type": ["array", "null"], "items": {"type": "string"}},
    "backfill": {"anyOf": [{"$ref": f"{COMPONENTS}Backfill"}, {"type": "null"}]},
    "progress": {"anyOf": [{"$ref": f"{COMPONENTS}TraitProgress"}, {"type": "null"}]},
    "broadcast": {"type": ["object", "null"]},
    "last_run": {"anyOf": [{"$ref": f"{COMPONENTS}{name}"} for name in ("TraitRun", "ViewRun")] + [{"type": "null"}]},
    "disabled": {"type": ["boolean", "null"]},
    "size": {"type": ["integer", "null"]},
}
"""Types of read-only fields. A field without an entry is text or null."""


def body(description: str, properties: Mapping[str, Schema], required: list[str]) -> Schema:
    """Return the schema of a body with these fields and no others."""
    schema: Schema = {"description": description, "type": "object", "properties": dict(properties), "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def read_only() -> dict[str, Schema]:
    """Return the schemas of the read-only fields, which a request body may repeat."""
    text: Schema = {"type": ["string", "null"]}
    return {field: {**_READ_ONLY_TYPES.get(field, text), "readOnly": True} for field in sorted(READ_ONLY)}
