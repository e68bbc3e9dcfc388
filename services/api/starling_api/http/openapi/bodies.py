"""Pure core: the schemas of request bodies and of the segment language, as components of the OpenAPI document."""

from collections.abc import Mapping
from typing import Any, Final

from starling_api.definitions.event_types import MAX_EVENT_BYTES
from starling_api.definitions.kinds import READ_ONLY
from starling_api.definitions.webhook_fields import (
    BATCH_DEFAULTS,
    BATCH_LIMITS,
    FORMATS,
    MASK,
    MAX_HEADER_CHARACTERS,
    MAX_HEADERS,
    RATE_LIMITS,
)
from starling_api.lists.uploads import MAX_IDS
from starling_api.messages.bodies import CONSENT_CHANNELS, MAX_ADDRESSES
from starling_api.policy.schema import policy_schemas
from starling_api.sql.schema import check_schema
from starling_campaigns.definitions.campaign import REQUIRED_FIELDS
from starling_campaigns.definitions.targets import CHANNEL_FIELDS, COMMON_FIELDS
from starling_campaigns.schema import campaign_fields, target_schemas
from starling_common.cassandra.read_models import CAMPAIGN, COMPUTED_TRAIT, EVENT_TYPE, LIST, SEGMENT, TARGET, VIEW, WEBHOOK
from starling_common.records.credentials import SCOPES
from starling_rules.jdbc import FETCH_SIZES, PARTITIONS
from starling_rules.sql.checks import MAX_CHECKS
from starling_rules.sql.event_types import KEY_PATTERN as EVENT_TYPE_KEY
from starling_rules.sql.event_types import MAX_PROPERTIES, NAME_PATTERN, TYPES
from starling_rules.sql.schedule import MAX_CHARACTERS as MAX_SCHEDULE_CHARACTERS
from starling_rules.sql.statement import MAX_CHARACTERS
from starling_rules.sql.tables import TABLES
from starling_segments import json_schema
from starling_segments.language.durations import DURATION_PATTERN
from starling_segments.parse.document import KEY_PATTERN, MAX_NAME_CHARACTERS
from starling_segments.parse.schema import label_schemas, trait_schema

Schema = dict[str, Any]

MAX_LOOKUP: Final = 1000
"""Maximum users, and maximum segments, of one look-up."""

MAX_BATCH: Final = 100
"""Maximum segments of one batch."""

_LOCAL: Final = "#/$defs/"
_COMPONENTS: Final = "#/components/schemas/"
_KEY: Final[Schema] = {"type": "string", "pattern": KEY_PATTERN}
_READ_ONLY_TYPES: Final[Mapping[str, Schema]] = {
    "version": {"type": "integer"},
    "revision": {"type": "integer"},
    "used_by": {"type": ["array", "null"], "items": {"type": "string"}},
    "backfill": {"anyOf": [{"$ref": f"{_COMPONENTS}Backfill"}, {"type": "null"}]},
    "progress": {"anyOf": [{"$ref": f"{_COMPONENTS}TraitProgress"}, {"type": "null"}]},
    "broadcast": {"type": ["object", "null"]},
    "last_run": {"anyOf": [{"$ref": f"{_COMPONENTS}{name}"} for name in ("TraitRun", "ViewRun")] + [{"type": "null"}]},
    "disabled": {"type": ["boolean", "null"]},
    "size": {"type": ["integer", "null"]},
}
"""Types of read-only fields. A field without an entry is text or null."""


_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_IMPORT: Final[Schema] = {
    "key": {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,63}$"},
    "uri": {
        "type": "string",
        "pattern": "^((file|s3a?|gs|jdbc:[a-z][a-z0-9]*)://|iceberg:)",
        "description": "File, directory, database such as jdbc:postgresql://host/database, or iceberg:namespace.table",
    },
    "format": {"enum": ["csv", "parquet", "jsonl", "jdbc", "iceberg"]},
    "kind": {"enum": ["events", "traits", "accounts", "lists", "catalog"]},
    "user_column": {"type": ["string", "null"], "description": "Column with the user ids; all kinds but catalog need it"},
    "product_column": {"type": ["string", "null"], "description": "With catalog: column with the product ids"},
    "account_column": {"type": ["string", "null"], "description": "With accounts: column with the account ids"},
    "list_key": {"type": ["string", "null"], "description": "With lists: the list to which the users are added"},
    "event": {"type": ["string", "null"], "description": "Name of all events; or give event_column"},
    "event_column": {"type": ["string", "null"], "description": "Column with the names of the events"},
    "time_column": {"type": ["string", "null"], "description": "Column with times in ISO 8601; else that of the import"},
    "id_column": {
        "type": ["string", "null"],
        "description": "Column with a unique id of the row; jdbc and iceberg need it",
    },
    "columns": {
        "type": ["object", "null"],
        "additionalProperties": {"type": "string", "pattern": r"^(properties|traits|product)\.[^.]+$"},
        "description": "Column -> field, such as properties.revenue; null: all others, by their names",
    },
    "delimiter": {"type": "string", "minLength": 1, "maxLength": 1, "description": "Of CSV"},
    "max_rejects": {
        "type": "integer",
        "minimum": 0,
        "maximum": 1_000_000,
        "description": "A file, or a task, with more ends the import as failed",
    },
    "jdbc": {"anyOf": [{"$ref": f"{_COMPONENTS}JdbcSource"}, {"type": "null"}], "description": "With the format jdbc"},
    "iceberg": {"anyOf": [{"$ref": f"{_COMPONENTS}IcebergSource"}, {"type": "null"}], "description": "Default: mode full"},
    "schedule": {
        "type": ["string", "null"],
        "maxLength": MAX_SCHEDULE_CHARACTERS,
        "description": "When jdbc or iceberg runs again: five fields of cron, such as 15 * * * *",
    },
    "timezone": {"type": ["string", "null"], "description": "Of the schedule, such as Europe/Berlin; else that of the workspace"},
}
_JDBC: Final[Schema] = {
    "user": {**_TEXT, "description": "User of the database, with the right to read only"},
    "password": {"type": ["string", "null"], "writeOnly": True, "description": "It is stored encrypted, and shown as ***"},
    "table": {"type": ["string", "null"], "description": "Table, such as crm.customers; or give query"},
    "query": {"type": ["string", "null"], "description": "One SELECT without a semicolon; or give table"},
    "mode": {"enum": ["full", "cursor"], "description": "full: all rows, of which new and changed ones are sent"},
    "cursor_column": {"type": ["string", "null"], "description": "With cursor: a number, date or time that grows with each change"},
    "fetch_size": {"type": "integer", "minimum": FETCH_SIZES[0], "maximum": FETCH_SIZES[1], "description": "Rows a round trip"},
    "partition_column": {"type": ["string", "null"], "description": "Column with whole numbers, by which tasks share the rows"},
    "partitions": {"type": "integer", "minimum": PARTITIONS[0], "maximum": PARTITIONS[1], "description": "Tasks, with that column"},
    "deletions": {
        "enum": ["guarded", "any", "none"],
        "description": "Traits of rows that are gone are set to null, or users or products removed; guarded: unless most are gone",
    },
}
_ICEBERG: Final[Schema] = {
    name: {word: value for word, value in _JDBC[name].items() if word != "description"}
    for name in ("mode", "cursor_column", "deletions")
}


def body_of(name: str, *, required: bool = True) -> Schema:
    """Return the OpenAPI entry of a route with a JSON body of the component `name`."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": {"$ref": _COMPONENTS + name}}}}}


def users_body() -> Schema:
    """Return the OpenAPI entry of an upload: JSON, or CSV with one id in each row."""
    body = body_of("UserIds")
    body["requestBody"]["content"]["text/csv"] = {"schema": {"type": "string", "description": "One user id in each row, no header"}}
    return body


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


def body_schemas() -> dict[str, Schema]:
    """Return the components of all request bodies and of the segment language, by name."""
    segment = json_schema()
    names = _names(segment["$defs"])
    fields = {field: schema for field, schema in segment["properties"].items() if field not in READ_ONLY}
    condition = {field: schema for field, schema in fields.items() if field in {"where", "timezone"}}
    found = {
        **{names[name]: schema for name, schema in segment["$defs"].items()},
        "SegmentDefinition": _body("A new segment", fields, ["key", "name", "where"]),
        "SegmentUpdate": _body("A changed segment", fields | read_only(), ["name", "where"]),
        "ConditionRequest": _body(
            "A condition to evaluate. A complete segment document is accepted too.",
            {**fields, **condition, **read_only()},
            ["where"],
        ),
        "ImportRequest": _body("Files or rows to import", _IMPORT, ["key", "uri", "format", "kind"]),
        "JdbcSource": _body("A table or a query of a database", _JDBC, ["user"]),
        "IcebergSource": _body("How an Iceberg table is read: as JdbcSource", _ICEBERG, []),
        "ImportRepetition": _body(
            "A repetition",
            {
                "password": {"type": "string", "writeOnly": True, "description": "A new one"},
                "deletions": {"enum": ["any"], "description": "Of this run alone"},
            },
            [],
        ),
        "ImportSchedule": _body(
            "When an import runs again",
            {name: _IMPORT[name] for name in ("schedule", "timezone")},
            ["schedule"],
        ),
        "SegmentBatch": _body(
            "Segments to create or change, each with its key",
            {
                "segments": {
                    "type": "array",
                    "items": {"$ref": f"{_COMPONENTS}SegmentUpdate"},
                    "minItems": 1,
                    "maxItems": MAX_BATCH,
                }
            },
            ["segments"],
        ),
        **_trait_bodies(),
        "ResultCheck": check_schema(),
        **_SCHEDULED,
        "WebhookDefinition": _body("A new webhook", _WEBHOOK, ["key", "url"]),
        "WebhookUpdate": _body("A changed webhook", _WEBHOOK | read_only(), ["url"]),
        "EventTypeDefinition": _body("A new event type", _EVENT_TYPE, ["key", "event", "properties"]),
        "EventTypeUpdate": _body("A changed event type", _EVENT_TYPE | read_only(), ["event", "properties"]),
        "ViewDefinition": _body("A new view", _view(), ["key", "sql", "schedule"]),
        "ViewUpdate": _body("A changed view", _view() | read_only(), ["sql", "schedule"]),
        "ListUpdate": _body("A new or a changed list", _LIST | read_only(), []),
        "LookupRequest": _body("The users, and the segments, of a look-up", _LOOKUP, ["users"]),
        **policy_schemas(),
        **_message_bodies(),
        **_CREDENTIALS,
        **_delivery_bodies(),
        "UserIds": _body("User ids", {"users": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_IDS}}, ["users"]),
    }
    return {name: _with_components(schema, names) for name, schema in found.items()}


def _message_bodies() -> dict[str, Schema]:
    address: Schema = {"type": "string", "minLength": 1}
    return {
        "ConsentChange": _body(
            "An explicit change of consent",
            {
                "channel": {"type": "string", "enum": list(CONSENT_CHANNELS)},
                "purpose": {"type": ["string", "null"], "pattern": KEY_PATTERN, "description": "null: every purpose"},
                "granted": {"type": "boolean"},
            },
            ["channel", "granted"],
        ),
        "SuppressionRequest": _body(
            "Addresses to suppress",
            {
                "addresses": {"type": "array", "items": address, "minItems": 1, "maxItems": MAX_ADDRESSES},
                "suppressed": {"type": "boolean", "default": True, "description": "false ends the suppression"},
            },
            ["addresses"],
        ),
    }


def read_only() -> dict[str, Schema]:
    """Return the schemas of the read-only fields, which a request body may repeat."""
    text: Schema = {"type": ["string", "null"]}
    return {field: {**_READ_ONLY_TYPES.get(field, text), "readOnly": True} for field in sorted(READ_ONLY)}


def _integer(field: str) -> Schema:
    lowest, highest = BATCH_LIMITS[field]
    return {"type": ["integer", "null"], "minimum": lowest, "maximum": highest}


_NAME: Final[Schema] = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_CHARACTERS}
_WEBHOOK: Final[dict[str, Schema]] = {
    "key": _KEY,
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
_LIST: Final[dict[str, Schema]] = {"key": _KEY, "name": _NAME, "description": {"type": ["string", "null"]}, **label_schemas()}
_SCHEDULED: Final[dict[str, Schema]] = {
    "Timezone": {"type": ["string", "null"], "description": "IANA name, of the schedule and of dates; default UTC"},
    "Schedule": {
        "type": "string",
        "maxLength": MAX_SCHEDULE_CHARACTERS,
        "description": "Minute, hour, day, month and weekday of cron",
    },
    "Checks": {
        "type": ["array", "null"],
        "maxItems": MAX_CHECKS,
        "items": {"$ref": f"{_COMPONENTS}ResultCheck"},
        "description": "Checks of the result, before it is published; of an event type, checks of its events",
    },
}
"""Components of the bodies with checks: computed traits and views in SQL, and event types."""
_CHECKING: Final[dict[str, Schema]] = {name.lower(): {"$ref": f"{_COMPONENTS}{name}"} for name in _SCHEDULED}
_EVENT_TYPE: Final[dict[str, Schema]] = {
    "key": {"type": "string", "pattern": EVENT_TYPE_KEY, "description": "In SQL the table is event_ and the key"},
    "event": {"type": "string", "minLength": 1, "maxLength": MAX_EVENT_BYTES, "description": "Name of the event; it never changes"},
    "description": {"type": ["string", "null"]},
    "properties": {
        "type": "array", "maxItems": MAX_PROPERTIES,
        "description": "A property is never left out, and its type never changes; `archived` removes its column",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": NAME_PATTERN},
                "type": {"enum": list(TYPES)},
                "description": {"type": ["string", "null"]},
                "archived": {"type": ["boolean", "null"]},
            },
            "required": ["name", "type"],
            "additionalProperties": False,
        },
    },
    **_CHECKING,
    "within": {
        "type": ["string", "null"], "pattern": DURATION_PATTERN,
        "description": "Checks see the events of this period before the run; default 1d",
    },
    **label_schemas(),
}  # fmt: skip
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
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LOOKUP}
_LOOKUP: Final[dict[str, Schema]] = {
    "users": _TEXTS,
    "segments": {**_TEXTS, "type": ["array", "null"], "description": "Keys of the segments to report; null reports every segment"},
}


def _body(description: str, properties: Mapping[str, Schema], required: list[str]) -> Schema:
    body: Schema = {"description": description, "type": "object", "properties": dict(properties), "additionalProperties": False}
    return body | ({"required": required} if required else {})


_CREDENTIALS: Final[dict[str, Schema]] = {
    "TokenRequest": _body(
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
    "WriteKeyRequest": _body(
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
    "RotationRequest": _body(
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


def _delivery_bodies() -> dict[str, Schema]:
    """Return the bodies of campaigns, targets and the policy. A changed target may leave its secrets out, or send them masked."""
    campaign, required = campaign_fields(), [name for name in REQUIRED_FIELDS if name != "key"]
    parts = {f"Campaign{name.title()}": campaign[name] for name in ("trigger", "cancel", "goal", "variants")}
    campaign |= {name: {"$ref": f"{_COMPONENTS}Campaign{name.title()}"} for name in ("trigger", "cancel", "goal", "variants")}
    settings = sorted(set().union(*CHANNEL_FIELDS.values()))
    target = {
        "key": _KEY,
        "channel": {"enum": [*CHANNEL_FIELDS]},
        **{name: {} for name in sorted(COMMON_FIELDS - {"key", "channel"})},
    }
    policy = policy_schemas()["PolicyDocument"]["properties"]
    return {
        **parts,
        "CampaignDefinition": _body("A new campaign", campaign, list(REQUIRED_FIELDS)),
        "CampaignUpdate": _body("A changed campaign", campaign | read_only(), required),
        "TargetDefinition": {
            "description": "A new target: the fields depend on its channel",
            "anyOf": [*target_schemas().values()],
        },
        "TargetUpdate": _body(
            f"A changed target. A secret that is missing or `{MASK}` keeps its stored value.",
            target | {name: {} for name in settings} | read_only(),
            ["channel"],
        ),
        "PolicyUpdate": _body("The policy of the workspace", {"key": _KEY, **policy, **read_only()}, []),
        "CampaignPreviewRequest": _body("The user of a preview", _preview_fields(), ["user"]),
        "CampaignTestRequest": _body(
            "The user of a test message, and where it goes",
            {
                **_preview_fields(),
                "to": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10, "uniqueItems": True},
            },
            ["user", "to"],
        ),
    }


def _preview_fields() -> dict[str, Schema]:
    return {
        "user": {"type": "string", "minLength": 1, "maxLength": 512},
        "variant": {**_KEY, "description": "Default: the user's own variant"},
        "locale": {"type": "string", "maxLength": 35, "description": "Default: the trait `locale`"},
        "event": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "properties": {"type": "object"}},
            "additionalProperties": False,
        },
    }


def _trait_bodies() -> dict[str, Schema]:
    event, ratio = trait_schema()["anyOf"]
    found: dict[str, Schema] = {}
    for name, schema in (("EventTrait", event), ("RatioTrait", ratio), ("SqlTrait", _sql_trait())):
        own = [field for field in schema["required"] if field != "key"]
        found[f"{name}Definition"] = {**schema, "properties": schema["properties"] | label_schemas()}
        found[f"{name}Update"] = {**schema, "properties": schema["properties"] | label_schemas() | read_only(), "required": own}
    for ending, description in (("Definition", "A new computed trait"), ("Update", "A changed computed trait")):
        alternatives = [{"$ref": f"{_COMPONENTS}{name}{ending}"} for name in ("EventTrait", "RatioTrait", "SqlTrait")]
        found[f"Trait{ending}"] = {"description": description, "anyOf": alternatives}
    return found


def _view() -> dict[str, Schema]:
    own = dict(_sql_trait()["properties"])
    sql = own["sql"] | {"description": "One SELECT with a name for each column, over the tables " + ", ".join(TABLES)}
    key = {"type": "string", "pattern": EVENT_TYPE_KEY, "description": "Name of the table"}
    return own | {"key": key, "sql": sql, "description": {"type": ["string", "null"]}, **label_schemas()}


def _sql_trait() -> Schema:
    return {
        "type": "object",
        "properties": {
            "key": _KEY,
            "name": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
            "sql": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_CHARACTERS,
                "description": "One SELECT with the columns user_id and value, over the tables " + ", ".join(TABLES),
            },
            **_CHECKING,
        },
        "required": ["key", "sql", "schedule"],
        "additionalProperties": False,
    }


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
        return {**schema, "$ref": _COMPONENTS + names[reference.removeprefix(_LOCAL)]}
    found = {name: _with_components(one, names) for name, one in schema.items()}
    if isinstance(properties := found.get("properties"), dict):
        found["properties"] = {name: {"not": {}} if one is False else one for name, one in properties.items()}
    return found
