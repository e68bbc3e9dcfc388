"""Pure core: the schemas of request bodies and of the segment language, as components of the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, Final

from starling_api.campaigns.schema import campaign_bodies, preview_bodies
from starling_api.credentials.schema import credential_bodies
from starling_api.definitions.kinds.reading import READ_ONLY
from starling_api.http.openapi.schemas import COMPONENTS, Schema, body, read_only
from starling_api.imports.schema import import_bodies
from starling_api.lists.schema import list_body, members_body
from starling_api.messages.schema import message_bodies
from starling_api.policy.schema import policy_body, policy_schemas
from starling_api.sql.schema import SCHEDULED, check_schema, event_type_bodies, incremental_schema, view_bodies
from starling_api.targets.schema import target_bodies
from starling_api.traits.schema import trait_bodies
from starling_api.users.schema import lookup_body
from starling_api.webhooks.schema import webhook_bodies
from starling_common.cassandra.read_models import CAMPAIGN, COMPUTED_TRAIT, EVENT_TYPE, LIST, SEGMENT, TARGET, VIEW, WEBHOOK
from starling_segments import json_schema

MAX_BATCH: Final = 100
"""Maximum segments of one batch."""

_LOCAL: Final = "#/$defs/"

DEFINITIONS: Final = {
    SEGMENT: "SegmentDefinition",
    COMPUTED_TRAIT: "TraitDefinition",
    WEBHOOK: "WebhookDefinition",
    CAMPAIGN: "CampaignDefinition",
    TARGET: "TargetDefinition",
    EVENT_TYPE: "EventTypeDefinition",
    VIEW: "ViewDefinition",
}
"""Kind -> the component of the body that creates one."""
UPDATES: Final = {
    SEGMENT: "SegmentUpdate",
    COMPUTED_TRAIT: "TraitUpdate",
    WEBHOOK: "WebhookUpdate",
    LIST: "ListUpdate",
    CAMPAIGN: "CampaignUpdate",
    TARGET: "TargetUpdate",
    EVENT_TYPE: "EventTypeUpdate",
    VIEW: "ViewUpdate",
}
"""Kind -> the component of the body that changes one. It accepts the read-only fields, so that a response can be sent back."""


def body_of(name: str, *, required: bool = True) -> Schema:
    """Return the OpenAPI entry of a route with a JSON body of the component `name`."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": {"$ref": COMPONENTS + name}}}}}


def users_body() -> Schema:
    """Return the OpenAPI entry of an upload: JSON, or CSV with one id in each row."""
    body = body_of("UserIds")
    body["requestBody"]["content"]["text/csv"] = {"schema": {"type": "string", "description": "One user id in each row, no header"}}
    return body


def body_schemas() -> dict[str, Schema]:
    """Return the components of all request bodies and of the segment language, by name."""
    segment = json_schema()
    names = _names(segment["$defs"])
    found = {
        **{names[name]: schema for name, schema in segment["$defs"].items()},
        **_segment_bodies(segment["properties"]),
        **import_bodies(),
        "SegmentBatch": _batch_body(),
        **trait_bodies(),
        "ResultCheck": check_schema(),
        "Incremental": incremental_schema(),
        **SCHEDULED,
        **webhook_bodies(),
        **event_type_bodies(),
        **view_bodies(),
        "ListUpdate": list_body(),
        "LookupRequest": lookup_body(),
        **policy_schemas(),
        **message_bodies(),
        **credential_bodies(),
        **campaign_bodies(),
        **target_bodies(),
        "PolicyUpdate": policy_body(),
        **preview_bodies(),
        "UserIds": members_body(),
    }
    return {name: _with_components(schema, names) for name, schema in found.items()}


def _segment_bodies(properties: Mapping[str, Schema]) -> dict[str, Schema]:
    fields = {field: schema for field, schema in properties.items() if field not in READ_ONLY}
    condition = {field: schema for field, schema in fields.items() if field in {"where", "timezone"}}
    return {
        "SegmentDefinition": body("A new segment", fields, ["key", "name", "where"]),
        "SegmentUpdate": body("A changed segment", fields | read_only(), ["name", "where"]),
        "ConditionRequest": body(
            "A condition to evaluate. A complete segment document is accepted too.",
            {**fields, **condition, **read_only()},
            ["where"],
        ),
    }


def _batch_body() -> Schema:
    segments = {"type": "array", "items": {"$ref": f"{COMPONENTS}SegmentUpdate"}, "minItems": 1, "maxItems": MAX_BATCH}
    return body("Segments to create or change, each with its key", {"segments": segments}, ["segments"])


def _names(definitions: Mapping[str, Schema]) -> dict[str, str]:
    """Return the component name of each definition of the language. The names of conditions end with `Condition`."""
    conditions = {one["$ref"].removeprefix(_LOCAL) for one in definitions["condition"]["anyOf"]}
    return {
        name: "".join(part.title() for part in name.split("_"))
        + ("Condition" if name in conditions and not name.startswith("condition") else "")
        for name in definitions
    }


def _with_components(schema: Any, names: Mapping[str, str]) -> Any:
    """Return the schema with its references pointing to components, and `false` as `{"not": {}}`, which code generators accept."""
    if isinstance(schema, list):
        return [_with_components(one, names) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith(_LOCAL):
        return {**schema, "$ref": COMPONENTS + names[reference.removeprefix(_LOCAL)]}
    found = {name: _with_components(one, names) for name, one in schema.items()}
    if isinstance(properties := found.get("properties"), dict):
        found["properties"] = {name: {"not": {}} if one is False else one for name, one in properties.items()}
    return found
