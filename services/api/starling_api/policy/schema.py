"""Pure core: the JSON Schemas of the bodies that check and replace a policy, generated from the bounds of the policy."""

from typing import Final

from starling_api.http.openapi.schemas import COMPONENTS, KEY, Schema, body, read_only
from starling_api.policy.request import HELD_OUT, MAX_ADDRESS_CHARACTERS, REQUESTED
from starling_policy import SUPPRESSION_KINDS
from starling_policy.bounds import (
    MAX_CAP_LIMIT,
    MAX_CAPS,
    MAX_CONSENT_CHANGES,
    MAX_DEDUPE_KEY_CHARACTERS,
    MAX_DEVICES,
    MAX_MESSAGES,
    MAX_NAMES,
    MAX_PRIORITY,
    MAX_SUPPRESSIONS,
    MAX_VARIANTS,
)
from starling_policy.campaign import MODES, OTHER_FIELDS_OF_CAMPAIGN
from starling_policy.document import OPT_IN, OPT_OUT, TIME_PATTERN
from starling_segments.language.durations import DURATION_PATTERN
from starling_segments.parse.document import KEY_PATTERN

_DURATION: Final[Schema] = {"type": "string", "pattern": DURATION_PATTERN}
_INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
_PERCENT: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 100, "description": "At most two decimals"}
_PRIORITY: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": MAX_PRIORITY}
_KEYS: Final[Schema] = {"type": "array", "items": KEY, "minItems": 1, "maxItems": MAX_NAMES}
_DEDUPE_KEY: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_DEDUPE_KEY_CHARACTERS}


def policy_schemas() -> dict[str, Schema]:
    """Return the components of the body of a policy check, by name."""
    return {
        "PolicyDocument": _object("The policy of a workspace", _policy_fields()),
        "CampaignRules": _object(
            "The fields of a campaign that the policy reads. The other fields are accepted and have no effect.",
            _campaign_fields(),
            "key",
            "channel",
        ),
        "PolicyCheck": _object(
            "A message to a user, with either `campaign` or `channel`, and what is known of the user",
            {**_message_fields(), **_user_fields()},
            "user",
        ),
    }


def policy_body() -> Schema:
    """Return the body that replaces the policy of a workspace."""
    return body("The policy of the workspace", {"key": KEY, **_policy_fields(), **read_only()}, [])


def _policy_fields() -> dict[str, Schema]:
    cap: dict[str, Schema] = {
        "limit": {"type": "integer", "minimum": 0, "maximum": MAX_CAP_LIMIT},
        "per": _DURATION,
        "channels": _KEYS,
        "purposes": _KEYS,
    }
    return {
        "timezone": {"type": "string", "description": "IANA name; default: the time zone of the workspace"},
        "quiet_hours": _of({name: {"type": "string", "pattern": TIME_PATTERN} for name in ("from", "to")}, "from", "to"),
        "caps": _array(_of(cap, "limit", "per"), MAX_CAPS),
        "consent": {
            "type": "object",
            "propertyNames": {"pattern": KEY_PATTERN},
            "additionalProperties": {"enum": [OPT_IN, OPT_OUT]},
            "maxProperties": MAX_NAMES,
        },
        "control_group": _of({"percent": _PERCENT}, "percent"),
        "priority_hold": _DURATION,
    }


def _campaign_fields() -> dict[str, Schema]:
    variant: dict[str, Schema] = {"key": KEY, "weight": _PERCENT, "content": {}, "locales": {}}
    return {
        "key": KEY,
        "channel": KEY,
        "purpose": KEY,
        "priority": _PRIORITY,
        "expires_after": _DURATION,
        "quiet": {"enum": [*MODES]},
        "caps": {"enum": [*MODES]},
        "reentry": {"anyOf": [{"enum": ["always", "once"]}, _of({"after": _DURATION}, "after")]},
        "dedupe_key": _DEDUPE_KEY,
        "holdout": _of({"percent": _PERCENT}, "percent"),
        "variants": _array(_of(variant, "key", "weight"), MAX_VARIANTS),
        **{name: {} for name in sorted(OTHER_FIELDS_OF_CAMPAIGN)},
    }


def _message_fields() -> dict[str, Schema]:
    """Return the message to check, and the policy."""
    return {
        "user": {"type": "string", "minLength": 1, "maxLength": 512},
        "campaign": {"anyOf": [{"$ref": f"{COMPONENTS}CampaignRules"}, {**KEY, "description": "The key of a stored campaign"}]},
        "channel": KEY,
        "purpose": {**KEY, "description": "Default: marketing"},
        "priority": _PRIORITY,
        "at": {**_INSTANT, "description": "Due instant, not before `as_of`; default: `as_of`"},
        "policy": {"$ref": f"{COMPONENTS}PolicyDocument", "description": "Default: the policy of the workspace"},
    }


def _user_fields() -> dict[str, Schema]:
    """Return what is known of the user."""
    consent: dict[str, Schema] = {"channel": KEY, "purpose": KEY, "granted": {"type": "boolean"}, "at": _INSTANT}
    suppression: dict[str, Schema] = {
        "channel": KEY,
        "address": {"type": "string", "minLength": 1, "maxLength": MAX_ADDRESS_CHARACTERS},
        "reason": {"enum": [*SUPPRESSION_KINDS]},
    }
    message: dict[str, Schema] = {
        "at": _INSTANT,
        "channel": KEY,
        "purpose": KEY,
        "campaign": KEY,
        "dedupe_key": _DEDUPE_KEY,
        "status": {"enum": [REQUESTED, HELD_OUT]},
        "slot_returned": {"type": "boolean", "description": "The message failed, was suppressed or bounced"},
    }
    return {
        "traits": {"type": "object", "description": "Default: the traits of the profile"},
        "devices": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_DEVICES},
            "maxProperties": MAX_NAMES,
            "description": "Channel -> devices",
        },
        "consent": _array(_of(consent, "channel", "granted", "at"), MAX_CONSENT_CHANGES),
        "suppressions": _array(_of(suppression, "channel", "address"), MAX_SUPPRESSIONS),
        "messages": _array(_of(message, "at", "channel"), MAX_MESSAGES),
    }


def _of(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def _object(description: str, properties: dict[str, Schema], *required: str) -> Schema:
    return {"description": description, **_of(properties, *required)}


def _array(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}
