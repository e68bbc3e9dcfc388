"""The policy of messages to people: whether, when and why a message is sent, deferred or dropped. No I/O, no clock."""

from starling_policy.campaign import MARKETING, TRANSACTIONAL, MessageRules, parse_campaign, read_campaign
from starling_policy.checks import CHECKS, REASONS, Check
from starling_policy.decision import Decision, Defer, Drop, Outcome, Send, decide
from starling_policy.document import Cap, Policy, parse_policy, read_policy
from starling_policy.local_time import QuietHours, first_instant_of, local_day, timezone_of
from starling_policy.person import (
    SUPPRESSION_KINDS,
    ConsentChange,
    History,
    Message,
    PastMessage,
    Person,
    Suppression,
    address_digest,
)
from starling_policy.shares import Variant, variant_of
from starling_policy.waiting import Decided, Progress, Waiting, admit, decide_until, decision_order, waiting_message, wake

__all__ = [
    "CHECKS",
    "MARKETING",
    "REASONS",
    "SUPPRESSION_KINDS",
    "TRANSACTIONAL",
    "Cap",
    "Check",
    "ConsentChange",
    "Decided",
    "Decision",
    "Defer",
    "Drop",
    "History",
    "Message",
    "MessageRules",
    "Outcome",
    "PastMessage",
    "Person",
    "Policy",
    "Progress",
    "QuietHours",
    "Send",
    "Suppression",
    "Variant",
    "Waiting",
    "address_digest",
    "admit",
    "decide",
    "decide_until",
    "decision_order",
    "first_instant_of",
    "local_day",
    "parse_campaign",
    "parse_policy",
    "read_campaign",
    "read_policy",
    "timezone_of",
    "variant_of",
    "waiting_message",
    "wake",
]
