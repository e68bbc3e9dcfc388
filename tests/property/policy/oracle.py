"""The design of the policy, read by brute force: every instant is evaluated on its own, over everything that ever happened.

Nothing is shared with the library: the oracle reads the JSON documents, the tz database through `datetime`, and a list of
plain records. A deferral ends at the first instant of a list of instants at which quiet hours and caps both allow the message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

Doc = dict[str, Any]
UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRANSACTIONAL = "transactional"


def duration(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]]


def murmur3(data: bytes) -> int:
    """The 32 bit variant for x86 with seed 0, as its author describes it."""
    state = 0
    padded = data + bytes(-len(data) % 4)
    for number, (block,) in enumerate(struct.iter_unpack("<I", padded)):
        mixed = (block * 0xCC9E2D51) % 2**32
        mixed = (mixed * 2**15 + mixed // 2**17) % 2**32
        state ^= (mixed * 0x1B873593) % 2**32
        if number < len(data) // 4:
            state = (state * 2**13 + state // 2**19) % 2**32
            state = (state * 5 + 0xE6546B64) % 2**32
    state ^= len(data)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) % 2**32
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) % 2**32
    return state ^ (state >> 16)


def percent(salt: str, user: str) -> float:
    return murmur3(f"{salt}:{user}".encode()) % 10_000 / 100


@dataclass
class Sent:
    """A message that was requested or held out."""

    at: int
    campaign: Doc
    held_out: bool = False
    slot_returned: bool = False


@dataclass
class Planned:
    """A message of a campaign. `cancels`: (instant, reason) of exits and of cancelling events."""

    campaign: Doc
    due: int
    triggered: int
    instance: str
    cancels: list[tuple[int, str]] = field(default_factory=list)

    @property
    def expires(self) -> int:
        return self.due + duration(self.campaign.get("expires_after", "24h"))


@dataclass
class Known:
    """What is known of the person. `reachable`: channel -> good addresses. `suppressed`: channel -> kinds of the address."""

    user: str
    zone: str | None
    reachable: dict[str, int]
    suppressed: dict[str, list[str]]
    consent_trait: Any
    consent_changes: list[tuple[str, str | None, bool, int]]
    sent: list[Sent] = field(default_factory=list)


@dataclass
class Oracle:
    """`outcome` is (action, until, reason).

    `instants`: ascending; nothing of the story happens between two of them.
    """

    policy: Doc
    known: Known
    instants: list[int]

    def outcome(self, message: Planned, now: int) -> tuple[str, int | None, str | None]:
        reasons = list(self.reasons(message, now))
        if not reasons:
            return "send", None, None
        first = reasons[0]
        mode = {"quiet_hours": "quiet", "capped": "caps"}.get(first)
        if mode is not None and message.campaign.get(mode, "defer") == "defer":
            for later in self.instants:
                if now < later <= message.expires and not self.quiet(later) and not self.capped(message.campaign, later):
                    return "defer", later, first
        return "drop", None, first

    def reasons(self, message: Planned, now: int) -> Iterator[str]:
        campaign, purpose = message.campaign, message.campaign.get("purpose", "marketing")
        if now > message.expires:
            yield "expired"
        cancels = sorted((at, reason != "left_segment", reason) for at, reason in message.cancels if message.triggered < at <= now)
        if cancels:
            yield cancels[0][2]
        yield from self.repeated(campaign, now)
        if self.known.reachable.get(campaign["channel"], 1) == 0:
            yield "no_address"
        elif set(self.known.suppressed.get(campaign["channel"], ())) - ({"complaint"} if purpose == TRANSACTIONAL else set()):
            yield "suppressed"
        if purpose == TRANSACTIONAL:
            return
        if not self.consents(campaign["channel"], purpose):
            yield "no_consent"
        if self.quiet(now):
            yield "quiet_hours"
        if self.capped(campaign, now):
            yield "capped"
        control = self.policy.get("control_group", {}).get("percent", 0)
        held = campaign.get("holdout", {}).get("percent", 0)
        if percent("control", self.known.user) < control or percent(campaign["key"] + ":holdout", self.known.user) < held:
            yield "holdout"

    def repeated(self, campaign: Doc, now: int) -> Iterator[str]:
        reentry = campaign.get("reentry", "always")
        before = [one.at for one in self.known.sent if one.campaign["key"] == campaign["key"]]
        if reentry != "always" and any(reentry == "once" or now < at + duration(reentry["after"]) for at in before):
            yield "reentry"
        key = campaign.get("dedupe_key")
        seen = [one.at for one in self.known.sent if key is not None and one.campaign.get("dedupe_key") == key]
        if any(now - duration("24h") < at <= now for at in seen):
            yield "duplicate"

    def consents(self, channel: str, purpose: str) -> bool:
        explicit = [(at, not granted) for place, what, granted, at in self.known.consent_changes
                    if place == channel and what in (None, purpose)]  # fmt: skip
        if explicit:
            return not max(explicit)[1]
        stated = self.known.consent_trait
        stated = stated.get(channel) if isinstance(stated, dict) else None
        stated = stated.get(purpose) if isinstance(stated, dict) else stated
        if stated is True or stated is False:
            return stated
        return bool(self.policy.get("consent", {}).get(channel) == "opt_out")

    def quiet(self, now: int) -> bool:
        hours = self.policy.get("quiet_hours")
        if hours is None:
            return False
        zone = ZoneInfo(self.known.zone or self.policy.get("timezone", "UTC"))
        shown = (EPOCH + timedelta(milliseconds=now)).astimezone(zone).strftime("%H:%M")
        if hours["from"] < hours["to"]:
            return bool(hours["from"] <= shown < hours["to"])
        return bool(shown >= hours["from"] or shown < hours["to"])

    def capped(self, campaign: Doc, now: int) -> bool:
        for cap in self.policy.get("caps", []):
            if counts(cap, campaign):
                after = now - duration(cap["per"])
                taken = [one for one in self.known.sent if counts(cap, one.campaign) and after < one.at <= now]
                if sum(not one.held_out and not one.slot_returned for one in taken) >= cap["limit"]:
                    return True
        return False

    def variant(self, campaign: Doc) -> str | None:
        at, start = round(percent(campaign["key"] + ":variant", self.known.user) * 100), 0
        for variant in campaign.get("variants", []):
            weight = round(variant["weight"] * 100)
            if at in range(start, start + weight):
                return str(variant["key"])
            start += weight
        return None


def counts(cap: Doc, campaign: Doc) -> bool:
    purpose = campaign.get("purpose", "marketing")
    return campaign["channel"] in cap.get("channels", [campaign["channel"]]) and purpose in cap.get("purposes", [purpose])


@dataclass
class Queue:
    """Messages that wait, looked at in each instant of the oracle. `log`: (instant, key, instance, action, until, reason)."""

    oracle: Oracle
    hold: int
    waiting: list[tuple[int, bool, Planned]] = field(default_factory=list)
    log: list[tuple[int, str, str, str, int | None, str | None]] = field(default_factory=list)

    def add(self, message: Planned) -> None:
        held = 0 if message.campaign.get("purpose") == TRANSACTIONAL else self.hold
        self.waiting.append((min(message.due + held, message.expires), False, message))

    def wake(self, now: int) -> None:
        self.waiting = [(min(at, now) if deferred else at, deferred, one) for at, deferred, one in self.waiting]

    def look(self, now: int) -> None:
        """Evaluate each message whose instant is `now`, one after the other."""
        here = [one for at, _, one in self.waiting if at == now]
        self.waiting = [one for one in self.waiting if one[0] != now]
        here.sort(key=lambda one: one.instance)
        here.sort(key=lambda one: one.campaign["key"])
        here.sort(key=lambda one: one.due)
        here.sort(key=lambda one: one.campaign.get("priority", 50), reverse=True)
        for message in here:
            action, until, reason = self.oracle.outcome(message, now)
            self.log.append((now, message.campaign["key"], message.instance, action, until, reason))
            if until is not None:
                self.waiting.append((until, True, message))
            elif action == "send" or reason == "holdout":
                self.oracle.known.sent.append(Sent(now, message.campaign, held_out=reason == "holdout"))
