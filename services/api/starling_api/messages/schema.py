"""Pure core: the schemas of the bodies that change consent and suppress addresses."""

from starling_api.http.openapi.schemas import Schema, body
from starling_api.messages.bodies import CONSENT_CHANNELS, MAX_ADDRESSES
from starling_segments.parse.document import KEY_PATTERN


def message_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of messages, by name."""
    address: Schema = {"type": "string", "minLength": 1}
    return {
        "ConsentChange": body(
            "An explicit change of consent",
            {
                "channel": {"type": "string", "enum": list(CONSENT_CHANNELS)},
                "purpose": {"type": ["string", "null"], "pattern": KEY_PATTERN, "description": "null: every purpose"},
                "granted": {"type": "boolean"},
            },
            ["channel", "granted"],
        ),
        "SuppressionRequest": body(
            "Addresses to suppress",
            {
                "addresses": {"type": "array", "items": address, "minItems": 1, "maxItems": MAX_ADDRESSES},
                "suppressed": {"type": "boolean", "default": True, "description": "false ends the suppression"},
            },
            ["addresses"],
        ),
    }
