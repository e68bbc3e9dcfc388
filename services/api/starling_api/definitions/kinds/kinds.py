"""Pure core: the kinds of definitions: topic, meaningful fields and validation of each."""

from typing import Final

from starling_api.definitions.event_types import same_types
from starling_api.definitions.kinds.audience import LIST_TITLE, read_list, read_segment, read_trait
from starling_api.definitions.kinds.delivery import is_signing, read_campaign, read_policy, read_target
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.lake import EVENT_TYPE_TITLE, VIEW_TITLE, read_event_type, read_view
from starling_api.definitions.kinds.webhooks import FIELDS as WEBHOOK_FIELDS
from starling_api.definitions.kinds.webhooks import TITLE as WEBHOOK_TITLE
from starling_api.definitions.kinds.webhooks import read_webhook
from starling_api.definitions.statements import same_language
from starling_api.definitions.webhook_fields import secrets_of_webhook, shown_webhook, unmasked, with_previous_secret
from starling_campaigns import secrets_of_target, shown_target, unmasked_target
from starling_campaigns.definitions.targets import CHANNEL_FIELDS
from starling_common.cassandra.read_models import CAMPAIGN, COMPUTED_TRAIT, EVENT_TYPE, LIST, POLICY, SEGMENT, TARGET, VIEW, WEBHOOK
from starling_common.kafka.topics import (
    DELIVERY_DEFINITIONS,
    LAKE_DEFINITIONS,
    LIST_DEFINITIONS,
    SEGMENT_DEFINITIONS,
    TRAIT_DEFINITIONS,
    WEBHOOK_DEFINITIONS,
)
from starling_policy.campaign import OTHER_FIELDS_OF_CAMPAIGN, POLICY_FIELDS_OF_CAMPAIGN
from starling_policy.document import POLICY_FIELDS
from starling_segments.parse.document import LABELS
from starling_segments.parse.windows import WINDOW_FIELDS

SEGMENTS: Final = Kind(SEGMENT, "segment", SEGMENT_DEFINITIONS, frozenset({"where", "timezone"}), read_segment)
TRAITS: Final = Kind(
    COMPUTED_TRAIT,
    "computed trait",
    TRAIT_DEFINITIONS,
    frozenset({"event", "where", "measure", "timezone", "sql", "checks"}) | WINDOW_FIELDS,
    read_trait,
    followed=same_language,
)
WEBHOOKS: Final = Kind(
    WEBHOOK,
    WEBHOOK_TITLE,
    WEBHOOK_DEFINITIONS,
    WEBHOOK_FIELDS - {"key"},
    read_webhook,
    hidden="secret",
    completed=unmasked,
    followed=with_previous_secret,
    shown=shown_webhook,
    secrets=secrets_of_webhook,
)
CAMPAIGNS: Final = Kind(
    CAMPAIGN,
    "campaign",
    DELIVERY_DEFINITIONS,
    (POLICY_FIELDS_OF_CAMPAIGN | OTHER_FIELDS_OF_CAMPAIGN) - {"key", "name", "description"} - LABELS,
    read_campaign,
)
TARGETS: Final = Kind(
    TARGET,
    "target",
    DELIVERY_DEFINITIONS,
    frozenset({"channel"}).union(*CHANNEL_FIELDS.values()),
    read_target,
    hidden="secret",
    has_hidden=is_signing,
    completed=unmasked_target,
    shown=shown_target,
    secrets=secrets_of_target,
)
POLICIES: Final = Kind(POLICY, "policy", DELIVERY_DEFINITIONS, POLICY_FIELDS, read_policy)
LISTS: Final = Kind(LIST, LIST_TITLE, LIST_DEFINITIONS, frozenset(), read_list)
VIEWS: Final = Kind(VIEW, VIEW_TITLE, LAKE_DEFINITIONS, frozenset({"sql", "timezone", "checks", "incremental"}), read_view)
EVENT_TYPES: Final = Kind(
    EVENT_TYPE,
    EVENT_TYPE_TITLE,
    LAKE_DEFINITIONS,
    frozenset({"event", "properties", "checks", "timezone", "within"}),
    read_event_type,
    followed=same_types,
)
