"""The targets of messages and feeds: one module for each family of channels, and the table of all fields."""

from starling_campaigns.definitions.targets.audience import BRAZE, CUSTOMERIO, GOOGLE, HTTP, META
from starling_campaigns.definitions.targets.field import MASK, TargetField
from starling_campaigns.definitions.targets.mail import SENDGRID, SES
from starling_campaigns.definitions.targets.masking import secrets_of_target, shown_target, unmasked_target
from starling_campaigns.definitions.targets.table import CHANNEL_FIELDS, CHANNEL_VARIANTS, COMMON_FIELDS
from starling_campaigns.definitions.targets.target import Target, parse_target

__all__ = [
    "BRAZE",
    "CHANNEL_FIELDS",
    "CHANNEL_VARIANTS",
    "COMMON_FIELDS",
    "CUSTOMERIO",
    "GOOGLE",
    "HTTP",
    "MASK",
    "META",
    "SENDGRID",
    "SES",
    "Target",
    "TargetField",
    "parse_target",
    "secrets_of_target",
    "shown_target",
    "unmasked_target",
]
