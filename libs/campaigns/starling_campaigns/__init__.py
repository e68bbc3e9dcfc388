"""Campaigns: documents, templates, assignment, policies and targets as definitions. No I/O, no clock."""

from starling_campaigns.assignment import Assignment, assignment_of
from starling_campaigns.channels import CHANNELS
from starling_campaigns.definitions.campaign import Campaign, parse_campaign, parse_stored_campaign
from starling_campaigns.definitions.lifecycle import frozen_errors, state_after
from starling_campaigns.definitions.policy import parse_stored_policy
from starling_campaigns.definitions.references import References
from starling_campaigns.definitions.targets import Target, parse_target, secrets_of_target, shown_target, unmasked_target
from starling_campaigns.rendering import PartFailed, Rendered, render_message
from starling_campaigns.schema import campaign_schema, target_schema
from starling_campaigns.sms import SmsSize, sms_size
from starling_campaigns.templates.sandbox import check_template
from starling_campaigns.templates.values import RenderingFailed

__all__ = [
    "CHANNELS",
    "Assignment",
    "Campaign",
    "PartFailed",
    "References",
    "Rendered",
    "RenderingFailed",
    "SmsSize",
    "Target",
    "assignment_of",
    "campaign_schema",
    "check_template",
    "frozen_errors",
    "parse_campaign",
    "parse_stored_campaign",
    "parse_stored_policy",
    "parse_target",
    "render_message",
    "secrets_of_target",
    "shown_target",
    "sms_size",
    "state_after",
    "target_schema",
    "unmasked_target",
]
