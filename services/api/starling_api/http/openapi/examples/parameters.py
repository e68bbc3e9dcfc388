"""Pure core: the schemas and the examples of parameters."""

from typing import Final

from starling_api.http.openapi.examples.example import REVISION, Document
from starling_segments.parse.document import KEY_PATTERN

_CURSOR: Final[Document] = {"pattern": "^[A-Za-z0-9_-]*$", "maxLength": 40_000}
PARAMETER_SHAPES: Final[dict[str, Document]] = {
    "key": {"pattern": KEY_PATTERN},
    "user_id": {"minLength": 1, "maxLength": 512},
    "name": {"pattern": "^[a-z][a-z0-9_]{0,63}$"},
    "id": {"pattern": "^[a-z]{3}_[0-9a-f]{16}$"},
    "run": {"pattern": "^[A-Za-z0-9_.:-]{1,100}$"},
    "segment": {"maxLength": 64},
    "tag": {"maxLength": 64},
    "from": {"maxLength": 64},
    "to": {"maxLength": 64},
    "cursor": _CURSOR,
    "after": _CURSOR,
    "Last-Event-ID": _CURSOR,
    "Idempotency-Key": {"minLength": 1, "maxLength": 255},
    "If-Match": {"pattern": r'^(\*|(W/)?"[0-9]{1,18}")$'},
}
"""Schemas of parameters. A value outside its schema has an error response: an unknown key a 404, a bad cursor a 400."""

PARAMETER_EXAMPLES: Final[dict[str, Document]] = {
    "key": {"example": "repeat-buyers"},
    "user_id": {"example": "ada"},
    "name": {"example": "sales_by_product_region"},
    "id": {"example": "tok_5f2c9a7be01d4433"},
    "run": {"example": "2026-03-01-1"},
    "If-Match": {"example": f'"{REVISION}"'},
}
