"""Policies, campaigns, people and messages of the tests. Without arguments nothing prevents a message."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from starling_policy import (
    Decision,
    Defer,
    Drop,
    History,
    Message,
    PastMessage,
    Person,
    Policy,
    decide,
    parse_campaign,
    parse_policy,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NOW = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """Return the epoch ms of a local time. `fold` 1: the second one of a repeated hour."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def policy(**fields: Any) -> Policy:
    return parse_policy({"consent": {"email": "opt_out", "sms": "opt_out", "push": "opt_out"}, **fields})


def message(due: int = NOW, *, exits: tuple[int, ...] = (), events: tuple[int, ...] = (), **fields: Any) -> Message:
    """A message that was triggered an hour before it is due."""
    rules = parse_campaign({"key": "win-back", "channel": "email", **fields})
    return Message(rules, due, "1", due - HOUR_MS, exits, events)


def person(*history: PastMessage, **fields: Any) -> Person:
    traits = {"email": "ada@example.com", "phone": "+4915112345678", **fields.pop("traits", {})}
    return Person(fields.pop("user_id", "ada"), traits, history=History(history), **fields)


def past(
    instant: int, campaign: str = "other", *, channel: str = "email", purpose: str = "marketing", **fields: Any
) -> PastMessage:
    return PastMessage(instant, channel, purpose, campaign, **fields)


def outcome(one: Message, whom: Person | None = None, rules: Policy | None = None, now: int | None = None) -> str:
    """Return `send`, the reason of a drop, or `reason until instant` of a deferral. `now`: by default the due instant."""
    match decision(one, whom, rules, now).outcome:
        case Defer(until, reason):
            return f"{reason} until {until}"
        case Drop(reason):
            return reason
    return "send"


def decision(one: Message, whom: Person | None = None, rules: Policy | None = None, now: int | None = None) -> Decision:
    return decide(one, whom or person(), rules or policy(), one.due_at if now is None else now)
