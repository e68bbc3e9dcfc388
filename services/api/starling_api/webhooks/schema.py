"""Pure core: the schemas of the bodies of webhooks."""

from typing import Final

from starling_api.definitions.webhook_fields import (
    BATCH_DEFAULTS,
    BATCH_LIMITS,
    FORMATS,
    MASK,
    MAX_HEADER_CHARACTERS,
    MAX_HEADERS,
    RATE_LIMITS,
)
from starling_api.http.openapi.schemas import KEY, Schema, body, read_only
from starling_segments.parse.schema import label_schemas


def _integer(field: str) -> Schema:
    lowest, highest = BATCH_LIMITS[field]
    return {"type": ["integer", "null"], "minimum": lowest, "maximum": highest}


_WEBHOOK: Final[dict[str, Schema]] = {
    "key": KEY,
    "url": {"type": "string", "format": "uri", "description": "Address that receives the changes, http or https"},
    "secret": {
        "type": ["string", "null"],
        "description": "Signing secret: `whsec_` and the base64 of 24 to 64 bytes. The server generates one if it is missing.",
    },
    "segments": {
        "type": ["array", "null"], "items": {"type": "string"}, "minItems": 1,
        "description": "Keys of the segments to send; null sends every segment",
    },
    "events": {"type": ["array", "null"], "items": {"enum": ["entered", "exited"]}, "minItems": 1},
    "format": {
        "enum": [*FORMATS, None],
        "description": "`standard` sends the membership change. `segment-track` and `segment-identify` send a call of the Segment "
        "specification, which any compatible endpoint accepts. Null is `standard`.",
    },
    "headers": {
        "type": ["object", "null"], "maxProperties": MAX_HEADERS,
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": MAX_HEADER_CHARACTERS},
        "description": f"Headers of each request, such as `Authorization`. `{MASK}` keeps the stored value of a header.",
    },
    "batch": {
        "type": ["object", "null"],
        "properties": {
            "max_items": {
                **_integer("max_items"),
                "description": f"Maximum of changes in one request; default {BATCH_DEFAULTS['max_items']}",
            },
            "max_wait_ms": {
                **_integer("max_wait_ms"),
                "description": "Maximum time in milliseconds that a change waits for others; "
                f"default {BATCH_DEFAULTS['max_wait_ms']}",
            },
        },
        "additionalProperties": False,
        "description": "Sends several changes in one request. Null sends each change in a request of its own.",
    },
    "rate": {
        "type": ["integer", "null"], "minimum": RATE_LIMITS[0], "maximum": RATE_LIMITS[1],
        "description": "Most requests a second, from all processes together. Further changes wait for their turn. Null: no limit.",
    },
    **label_schemas(),
}  # fmt: skip


def webhook_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of webhooks, by name."""
    return {
        "WebhookDefinition": body("A new webhook", _WEBHOOK, ["key", "url"]),
        "WebhookUpdate": body("A changed webhook", _WEBHOOK | read_only(), ["url"]),
    }
