"""Pure core: the schemas of the bodies of uploaded lists."""

from starling_api.http.openapi.schemas import KEY, NAME, Schema, body, read_only
from starling_api.lists.uploads import MAX_IDS
from starling_segments.parse.schema import label_schemas


def list_body() -> Schema:
    """Return the body that creates or changes a list."""
    fields: dict[str, Schema] = {"key": KEY, "name": NAME, "description": {"type": ["string", "null"]}, **label_schemas()}
    return body("A new or a changed list", fields | read_only(), [])


def members_body() -> Schema:
    """Return the body of an upload of members."""
    return body("User ids", {"users": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_IDS}}, ["users"])
