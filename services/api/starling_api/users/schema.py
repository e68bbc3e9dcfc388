"""Pure core: the schema of the body of a look-up of memberships."""

from typing import Final

from starling_api.http.openapi.schemas import Schema, body

MAX_LOOKUP: Final = 1000
"""Maximum users, and maximum segments, of one look-up."""

_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LOOKUP}
_LOOKUP: Final[dict[str, Schema]] = {
    "users": _TEXTS,
    "segments": {**_TEXTS, "type": ["array", "null"], "description": "Keys of the segments to report; null reports every segment"},
}


def lookup_body() -> Schema:
    """Return the body of a look-up."""
    return body("The users, and the segments, of a look-up", _LOOKUP, ["users"])
