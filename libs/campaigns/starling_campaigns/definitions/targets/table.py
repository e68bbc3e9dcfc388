"""Pure core: the fields of every channel: the source of the checks, of the JSON Schema and of the fields that are masked."""

from collections.abc import Mapping
from typing import Final

from starling_campaigns.channels import AUDIENCE
from starling_campaigns.definitions.targets import audience, mail
from starling_campaigns.definitions.targets.feeds import DIGEST_FIELDS, KAFKA_FIELDS
from starling_campaigns.definitions.targets.field import TargetField, choice, pattern
from starling_campaigns.definitions.targets.values import ADDRESS, LINE, NAME, PRIVATE_KEY, URL, WEBHOOK_SECRET
from starling_segments.parse.document import LABELS

_SENDER: Final = pattern(
    r"^(\+[1-9][0-9]{6,14}|[A-Za-z0-9 ]{1,11})$", 16, "a number such as +4915112345678, or 1 to 11 letters and digits"
)
_SUBJECT: Final = pattern(r"^(mailto:[^\s@]{1,64}@[^\s@]{1,200}|https://[^\s]{1,1000})$", 1_100, "a mailto: or an https: address")
_EC_KEY: Final = pattern("^[A-Za-z0-9_-]+={0,2}$", 200, "a key in base64url")

CHANNEL_FIELDS: Final[Mapping[str, Mapping[str, TargetField]]] = {
    "email": mail.FIELDS,
    "webpush": {"subject": TargetField(_SUBJECT), "private_key": TargetField(_EC_KEY, secret=True)},
    "fcm": {
        "project_id": TargetField(NAME),
        "client_email": TargetField(ADDRESS),
        "private_key": TargetField(PRIVATE_KEY, secret=True),
    },
    "apns": {
        "team_id": TargetField(NAME),
        "key_id": TargetField(NAME),
        "topic": TargetField(NAME),
        "environment": TargetField(choice("production", "sandbox")),
        "private_key": TargetField(PRIVATE_KEY, secret=True),
    },
    "sms": {
        "base_url": TargetField(URL),
        "account_sid": TargetField(NAME),
        "auth_token": TargetField(LINE, secret=True),
        "from": TargetField(_SENDER),
    },
    "webhook": {
        "url": TargetField(URL),
        "format": TargetField(choice("standard", "segment-track", "segment-identify"), required=False),
        "secret": TargetField(WEBHOOK_SECRET, required=False, secret=True),
    },
    "slack": DIGEST_FIELDS,
    "teams": DIGEST_FIELDS,
    "kafka": KAFKA_FIELDS,
    AUDIENCE: audience.FIELDS,
}
"""Channel -> its fields."""
CHANNEL_VARIANTS: Final[Mapping[str, Mapping[str, Mapping[str, bool]]]] = {AUDIENCE: audience.VARIANTS}
"""Channel whose first field selects the others -> value of that field -> the fields that go with it, each with whether it is
required."""
COMMON_FIELDS: Final = frozenset({"key", "channel", "name", "description"}) | LABELS


def of_channel(channel: str) -> TargetField:
    """Return the fields of a channel as those of an object."""
    return TargetField(None, fields=CHANNEL_FIELDS[channel], variants=CHANNEL_VARIANTS.get(channel))
