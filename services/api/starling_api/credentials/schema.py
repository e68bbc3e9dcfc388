"""Pure core: the schemas of the bodies of tokens and write keys."""

from typing import Final

from starling_api.http.openapi.schemas import Schema, body
from starling_common.records.credentials import SCOPES
from starling_segments.parse.document import MAX_NAME_CHARACTERS

_EXPIRY: Final[Schema] = {
    "type": ["string", "null"], "format": "date-time",
    "description": "Instant from which the secret is refused; null: never. A rotation keeps it.",
}  # fmt: skip
_LABEL: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_NAME_CHARACTERS,
    "description": "For people: what uses it",
}


def credential_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of tokens and write keys, by name."""
    return {
        "TokenRequest": body(
            "A new token",
            {
                "name": _LABEL,
                "role": {
                    "enum": ["viewer", "editor", "approver", "admin", "marketer"],
                    "description": "`marketer` is another name of `editor`.",
                },
                "expires_at": _EXPIRY,
            },
            ["name", "role"],
        ),
        "WriteKeyRequest": body(
            "A new write key",
            {
                "name": _LABEL,
                "scopes": {
                    "type": ["array", "null"], "items": {"enum": list(SCOPES)}, "minItems": 1,
                    "description": "The endpoints that it may use. Null is every one except `import`.",
                },
                "expires_at": _EXPIRY,
            },
            ["name"],
        ),
        "RotationRequest": body(
            "A rotation",
            {
                "overlap": {
                    "type": ["string", "null"], "pattern": "^[0-9]{1,9}[smhdw]$",
                    "description": "How long the earlier secrets work, from 0s to 30d; null is 24h",
                }
            },
            [],
        ),
    }  # fmt: skip
