"""The oracle of the messenger: a slow, obvious reading of the design of campaign messages.

It shares no code with the messenger, the policy or the campaigns. It keeps the whole history of one user, the messages that
triggers made, and the decisions about them. Membership, consent, traits, documents, cancelling and slots are read from the whole
history at every question.

Readings: what the design leaves open, and what the oracle does. C is the stream time, the last `ClockAdvanced`.

Queue

1. The pending messages of a user are ordered by (instant, -priority, due, campaign, arrival). The first one is decided once its
   instant is not after C, or if it is plain. A plain trigger behind an earlier message is decided right after that one.
2. Plain is a trigger `enter`, `exit` or `event` without delay, `while` and `priority_hold`, until its first evaluation.
3. The first instant is max(due + hold, C, the instant of the user's latest evaluation), the hold ending at the expiry. The instants
   of a user never go back. Without that, a late plain trigger would not see the request of one that was decided ahead of the clock,
   and a cap would be exceeded.
4. The messages of one input are rivals. Those of different inputs at one instant are rivals if the first one is still pending.
5. A step of the clock visits each instant in order. At each, the messages of that instant come first, then pending messages that
   are cancelled at it.
6. `priority_hold` is read when the trigger arrives. It covers the first evaluation only, and no transactional message.
7. `too_many` comes last, with `decided_at` C. A message whose `while` is not known yet is pending.

Cancelling

8. An exit at the very instant of the trigger does not cancel: `(trigger, decision]` is half-open.
9. A pending message is dropped once C has reached the cancelling instant and its record has been read; `decided_at` is C then.
10. An event that was read before the trigger cancels too, if it is later than the trigger.
11. Exits, and for `exit` entries, of every cause cancel. The reason is `left_segment` for both.
12. A message that is both expired and cancelled at its evaluation is `expired`.
13. The newest `cancel` counts. Generated stories do not edit it.
14. Without `while`, `cancel.left` means nothing for an event trigger.

Triggers

15. `while` reads the changes that are effective before the event's instant, once C has reached it. A message of a user who was not
    a member leaves no trace.
16. An event that is older than `expires_after` when it is received never triggers: the comparison is strict, and it does not apply
    to changes of membership.
17. A trigger that is received at the activation counts; one that is read before the activation does not. Triggers count in a pause.
18. A repeated instance, or a sequence not above those read before, makes nothing.

Pause, archive, versions

19. In a pause the next evaluation is at the first due + k · 10 min after now, also for a message whose deferral ends. A resume
    wakes nothing. The message is `expired` at the first of these instants that is after the expiry.
20. In a pause nothing but cancelling and the archive ends a message before its expiry.
21. The archive drops all pending messages at C.
22. The newest version counts for everything but the due instant and the instants already set.
23. A dropped message has no variant; its version is that of its end.

Consent and profile

24. The newest explicit change by `at` counts, a refusal at a tie, whatever the instant of the evaluation: `at` is by the wall
    clock.
25. `consent` in the traits is nested.
26. Neither consent nor traits wake a message.

Caps and deferral

27. A slot is taken at `decided_at`, with the channel and purpose of that version.
28. The first `FAILED`, `SUPPRESSED` or `BOUNCED` after the request returns the slot and wakes all deferred messages of the user:
    they are evaluated at max(C, the latest evaluation). Messages in a pause are not deferred.
29. If it is quiet, `quiet` decides between drop and wait; else, if a cap is full, `caps` does. The wait is for both.
30. `reentry` and `dedupe_key` go by the `decided_at` of requests and hold-outs.

Broadcasts

31. The due instant of a local one is by the zone when the record is read. The instance is the text in the document.
32. Any exit in (at, decision] ends it as `left_segment`, whatever `cancel.left`; for a local one `at` is that of UTC+14.
33. A local one that is due before the activation is `expired` at C. One that is read late is evaluated at C.

Check

34. The message is due and decided at `at`, even before the latest evaluation; cancelling, holds and pauses are ignored. A hold-out
    is a drop with the reason `holdout`.
35. The newest record of an address and channel decides on its suppression.

Devices

36. A `BOUNCED` of a requested message forgets the devices that it was sent to, while the channel of the campaign is still push. A
    later event registers them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.property.messenger.story import (
    AddressSuppressed,
    Answer,
    BroadcastListed,
    CampaignActivated,
    CampaignEdited,
    CampaignSwitched,
    Check,
    ClockAdvanced,
    ConsentChanged,
    Decision,
    Document,
    EventReceived,
    Input,
    MembershipChanged,
    OutcomeReported,
    PolicyChanged,
    Status,
    Story,
    TraitsReplaced,
)
from tests.property.messenger.values import (
    DAY,
    MINUTE,
    duration,
    earliest_instant_of_local,
    hundredths,
    instant,
    instant_of_local,
    is_quiet,
    is_zone,
    rank,
)

T = TypeVar("T")

LOOK_MS = 10 * MINUTE
MOST_PENDING = 100
MOST_DEVICES = 10
DEDUPE_MS = DAY
RETURNS_SLOT = ("FAILED", "SUPPRESSED", "BOUNCED")
TRANSACTIONAL = "transactional"
ADDRESSES = {"email": ("email", r"[^@\s]+@[^@\s]+\.[^@\s]+"), "sms": ("phone", r"\+[1-9][0-9]{6,14}")}
"""Channel -> its trait, and what is well-formed."""


@dataclass
class Message:
    """One (campaign, instance). `instant`: of the next evaluation; `left_after`: exits count after it."""

    campaign: str
    instance: str
    trigger_at: int
    left_after: int
    due_at: int
    arrival: int
    instant: int = 0
    is_plain: bool = False
    is_deferred: bool = False
    requires: str | None = None
    """The segment of a `while` that the clock has not reached yet."""


@dataclass(frozen=True)
class Request:
    """A message that was requested or held out. `outcomes`: the number of outcomes that were read before it."""

    campaign: str
    instance: str
    at: int
    outcomes: int
    is_held_out: bool
    channel: str
    purpose: str
    dedupe_key: str | None
    devices: tuple[str, ...]


@dataclass
class Oracle:
    """One user's history, pending messages and decisions."""

    user_id: str
    now: int = 0
    latest: int = 0
    """The instant of the latest evaluation."""
    arrivals: int = 0
    history: dict[type[Any], list[Any]] = field(default_factory=dict)
    """Every input, by kind, in the order of arrival."""
    devices: list[str] = field(default_factory=list)
    """The registered devices, the newest first."""
    pending: list[Message] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def read(self, story: Story) -> list[Decision]:
        for one in story.inputs:
            self.take(one)
        return self.decisions

    def take(self, one: Input) -> None:
        """Read one input, and decide what it allows to decide."""
        made = list(self._made_by(one))
        wakes = isinstance(one, OutcomeReported) and self._returns_a_slot(one)
        self.history.setdefault(type(one), []).append(one)
        self.arrivals += 1
        if isinstance(one, ClockAdvanced):
            return self._pass_to(one.to)
        self._register_and_forget(one)
        if isinstance(one, CampaignSwitched) and one.to == "archived":
            for message in self._in_order(one.campaign):
                self._end(message, self.now, "dropped", "archived")
        for message in self.pending:
            if wakes and message.is_deferred:
                message.instant = max(self.now, self.latest)
        for message in made:
            self._add(message)
        self._settle()
        for message in self._in_order()[MOST_PENDING:]:
            self._end(message, self.now, "dropped", "too_many")
        return None

    def check(self, asked: Check) -> Answer:
        message = Message(asked.campaign, "", asked.at, asked.at, asked.at, 0)
        return self._checked(message, asked.at, reason_of_cancel=None)

    # The queue

    def _pass_to(self, to: int) -> None:
        while instants := [at for message in self.pending for at in self._instants_of(message) if self.now < at <= to]:
            self.now = min(instants)
            self._settle()
        self.now = max(self.now, to)

    def _instants_of(self, message: Message) -> Iterator[int]:
        yield message.instant
        if message.requires:
            yield message.trigger_at
        yield from (at for at, _ in self._cancels(message))

    def _settle(self) -> None:
        """Decide what the stream time allows: unmet `while`s, messages in order, cancelled ones."""
        for message in list(self.pending):
            if message.requires and message.trigger_at <= self.now:
                if not self._was_member(message.requires, message.trigger_at):
                    self.pending.remove(message)
                message.requires = None
        while (queue := self._in_order()) and (queue[0].instant <= self.now or queue[0].is_plain):
            self._evaluate(queue[0], queue[0].instant)
        for message in self._in_order():
            if reason := self._cancelled(message, self.now):
                self._end(message, self.now, "dropped", reason)

    def _in_order(self, campaign: str | None = None) -> list[Message]:
        def place(message: Message) -> tuple[int, int, int, str, int]:
            priority = self._document(message.campaign).get("priority", 50)
            return message.instant, -priority, message.due_at, message.campaign, message.arrival

        return sorted((message for message in self.pending if campaign in (None, message.campaign)), key=place)

    def _evaluate(self, message: Message, at: int) -> None:
        self.latest = at
        message.is_plain = message.is_deferred = False
        if self._is_paused(message.campaign) and at <= self._last_instant(message):
            message.instant = message.due_at + ((at - message.due_at) // LOOK_MS + 1) * LOOK_MS
            return
        answer = self._checked(message, at, self._cancelled(message, at))
        if answer.until is not None:
            message.instant, message.is_deferred = answer.until, True
        elif answer.answer == "send":
            self._end(message, at, "requested", None)
        else:
            self._end(message, at, "held_out" if answer.reason == "holdout" else "dropped", answer.reason)

    def _end(self, message: Message, at: int, status: Status, reason: str | None) -> None:
        self.pending.remove(message)
        self._record(message, at, status, reason)

    def _record(self, message: Message, at: int, status: Status, reason: str | None) -> None:
        document, key = self._document(message.campaign), message.campaign
        variant = None if status == "dropped" else self._variant(document)
        self.decisions.append(Decision(key, message.instance, self._version(key), message.due_at, at, status, reason, variant))
        if status != "dropped":
            channel, purpose = document["channel"], document.get("purpose", "marketing")
            held_out, dedupe_key = status == "held_out", document.get("dedupe_key")
            devices = tuple(self.devices) if channel == "push" and not held_out else ()
            self.requests.append(
                Request(key, message.instance, at, len(self._all(OutcomeReported)), held_out, channel, purpose, dedupe_key, devices)
            )

    # Triggers

    def _made_by(self, one: Input) -> Iterator[Message]:
        """Yield the messages whose trigger this input is; it is not in the history yet."""
        for key in self._running():
            if isinstance(one, MembershipChanged):
                yield from self._made_by_change(key, one)
            elif isinstance(one, EventReceived):
                yield from self._made_by_event(key, one)
            elif isinstance(one, BroadcastListed) and one.campaign == key:
                yield from self._made_by_listing(key)

    def _made_by_change(self, key: str, change: MembershipChanged) -> Iterator[Message]:
        trigger = self._document(key)["trigger"]
        segment = trigger.get("enter" if change.status == "ENTERED" else "exit")
        is_new = all(change.sequence > earlier.sequence for earlier in self._changes(change.segment))
        is_meant = change.cause not in ("DEFINITION", "MERGE") or trigger.get("on_definition", False)
        if segment == change.segment and is_new and is_meant and change.received_at >= self._activated_at(key):
            yield self._message(key, str(change.sequence), change.effective_at)

    def _made_by_event(self, key: str, event: EventReceived) -> Iterator[Message]:
        document = self._document(key)
        selector = document["trigger"].get("event")
        is_fresh = event.received_at - event.event_time <= duration(document.get("expires_after", "24h"))
        if selector and _matches(selector, event) and is_fresh and event.received_at >= self._activated_at(key):
            yield self._message(key, event.event_id, event.event_time, requires=document["trigger"].get("while"))

    def _made_by_listing(self, key: str) -> Iterator[Message]:
        trigger = self._document(key)["trigger"]
        if "at" in trigger:
            yield self._message(key, trigger["at"], instant(trigger["at"]))
        else:
            due = instant_of_local(self._zone(), trigger["local"])
            yield self._message(key, trigger["local"], due, left_after=earliest_instant_of_local(trigger["local"]))

    def _message(
        self, key: str, instance: str, trigger_at: int, left_after: int | None = None, requires: str | None = None
    ) -> Message:
        due = trigger_at + duration(self._document(key).get("delay", "0s"))
        after = trigger_at if left_after is None else left_after
        return Message(key, instance, trigger_at, after, due, self.arrivals, requires=requires)

    def _add(self, message: Message) -> None:
        ended = {(one.campaign, one.instance) for one in self.decisions}
        if (message.campaign, message.instance) in ended | {(one.campaign, one.instance) for one in self.pending}:
            return
        document = self._document(message.campaign)
        if "local" in document["trigger"] and message.due_at < self._activated_at(message.campaign):
            self._record(message, self.now, "dropped", "expired")
            return
        is_held = document.get("purpose") != "transactional"
        hold = duration(self._policy().get("priority_hold", "0s")) if is_held else 0
        held = min(message.due_at + hold, self._last_instant(message))
        message.instant = max(held, self.now, self.latest)
        is_delayed = duration(document.get("delay", "0s")) > 0
        message.is_plain = not (is_delayed or hold or message.requires or "broadcast" in document["trigger"])
        self.pending.append(message)

    # The checks

    def _checked(self, message: Message, at: int, reason_of_cancel: str | None) -> Answer:
        reason = self._first_of_all_purposes(message, at, reason_of_cancel)
        document = self._document(message.campaign)
        if reason or document.get("purpose", "marketing") == TRANSACTIONAL:
            return Answer("drop", reason=reason) if reason else Answer("send")
        if not self._consents(document["channel"], document.get("purpose", "marketing")):
            return Answer("drop", reason="no_consent")
        for reason, mode, fails in (
            ("quiet_hours", document.get("quiet", "defer"), self._is_quiet(at)),
            ("capped", document.get("caps", "defer"), self._is_capped(document, at)),
        ):
            if fails:
                until = self._earliest(document, at, self._last_instant(message)) if mode == "defer" else None
                return Answer("drop", reason=reason) if until is None else Answer("defer", until, reason)
        return Answer("drop", reason="holdout") if self._is_held_out(document) else Answer("send")

    def _first_of_all_purposes(self, message: Message, at: int, reason_of_cancel: str | None) -> str | None:
        """Return the reason of the first failed check from 1 to 4."""
        document = self._document(message.campaign)
        if at > self._last_instant(message):
            return "expired"
        if reason_of_cancel:
            return reason_of_cancel
        if self._is_too_soon(document, at):
            return "reentry"
        if document.get("dedupe_key") in {one.dedupe_key for one in self.requests if at - DEDUPE_MS < one.at <= at} - {None}:
            return "duplicate"
        channel = document["channel"]
        if not self._has_address(channel):
            return "no_address"
        return "suppressed" if self._is_suppressed(channel, document.get("purpose", "marketing")) else None

    def _is_too_soon(self, document: Document, at: int) -> bool:
        reentry = document.get("reentry", "always")
        times = [one.at for one in self.requests if one.campaign == document["key"]]
        if reentry == "always" or not times:
            return False
        return reentry == "once" or at - max(times) < duration(reentry["after"])

    def _last_instant(self, message: Message) -> int:
        return message.due_at + duration(self._document(message.campaign).get("expires_after", "24h"))

    def _has_address(self, channel: str) -> bool:
        if channel == "push":
            return bool(self.devices)
        if channel not in ADDRESSES:
            return True
        trait, form = ADDRESSES[channel]
        address = self._traits().get(trait)
        return isinstance(address, str) and re.fullmatch(form, address) is not None

    def _is_suppressed(self, channel: str, purpose: str) -> bool:
        if channel not in ADDRESSES:
            return False
        address = str(self._traits()[ADDRESSES[channel][0]]).strip().lower()
        kinds = [
            one.kind for one in self._all(AddressSuppressed) if one.channel == channel and one.address.strip().lower() == address
        ]
        return bool(kinds) and kinds[-1] is not None and not (kinds[-1] == "complaint" and purpose == TRANSACTIONAL)

    def _consents(self, channel: str, purpose: str) -> bool:
        explicit = [
            (one.at, not one.granted, one.granted)
            for one in self._all(ConsentChanged)
            if one.channel == channel and one.purpose in (None, purpose)
        ]
        if explicit:
            return max(explicit)[2]
        traits = self._traits().get("consent")
        trait = traits.get(channel) if isinstance(traits, dict) else None
        value = trait.get(purpose) if isinstance(trait, dict) else trait
        return value if isinstance(value, bool) else self._policy().get("consent", {}).get(channel) == "opt_out"

    def _is_quiet(self, at: int) -> bool:
        quiet_hours = self._policy().get("quiet_hours")
        return quiet_hours is not None and is_quiet(self._zone(), at, quiet_hours)

    def _is_capped(self, document: Document, at: int) -> bool:
        return any(
            sum(at - duration(cap["per"]) < taken <= at for taken in self._slots(cap)) >= cap["limit"]
            for cap in self._caps(document)
        )

    def _caps(self, document: Document) -> list[Document]:
        channel, purpose = document["channel"], document.get("purpose", "marketing")
        return [cap for cap in self._policy().get("caps", []) if _covers(cap, channel, purpose)]

    def _slots(self, cap: Document) -> list[int]:
        """Return the instants of the requests that count for a cap."""
        return [
            one.at
            for one in self.requests
            if not one.is_held_out and _covers(cap, one.channel, one.purpose) and not self._is_returned(one)
        ]

    def _is_returned(self, request: Request) -> bool:
        return any(
            one.outcome in RETURNS_SLOT and (one.campaign, one.instance) == (request.campaign, request.instance)
            for one in self._all(OutcomeReported)[request.outcomes :]
        )

    def _returns_a_slot(self, outcome: OutcomeReported) -> bool:
        return outcome.outcome in RETURNS_SLOT and any(
            (one.campaign, one.instance) == (outcome.campaign, outcome.instance)
            and not one.is_held_out
            and not self._is_returned(one)
            for one in self.requests
        )

    def _earliest(self, document: Document, at: int, last: int) -> int | None:
        """Return the first instant from `at` to `last` at which it is not quiet and no cap is full: minute by minute."""
        freed = [taken + duration(cap["per"]) for cap in self._caps(document) for taken in self._slots(cap)]
        while at <= last:
            if self._is_capped(document, at):
                at = min((one for one in freed if one > at), default=last + 1)
            elif self._is_quiet(at):
                at = at // MINUTE * MINUTE + MINUTE
            else:
                return at
        return None

    def _is_held_out(self, document: Document) -> bool:
        holdout = hundredths(document.get("holdout", {}).get("percent", 0))
        control = hundredths(self._policy().get("control_group", {}).get("percent", 0))
        return rank(f"{document['key']}:holdout", self.user_id) < holdout or rank("control", self.user_id) < control

    def _variant(self, document: Document) -> str | None:
        place, end = rank(f"{document['key']}:variant", self.user_id), 0
        for variant in document["variants"]:
            end += hundredths(variant["weight"])
            if place < end:
                return str(variant["key"])
        return None

    # Cancelling

    def _cancelled(self, message: Message, at: int) -> str | None:
        return min(((when, reason) for when, reason in self._cancels(message) if when <= at), default=(0, None), key=_exit_first)[1]

    def _cancels(self, message: Message) -> Iterator[tuple[int, str]]:
        """Yield (instant, reason) of everything known that cancels the message at its instant or later."""
        document = self._document(message.campaign)
        trigger, cancel = document["trigger"], document.get("cancel", {})
        segment = trigger.get("enter") or trigger.get("exit") or trigger.get("while") or trigger.get("broadcast")
        status = "ENTERED" if "exit" in trigger else "EXITED"
        if cancel.get("left", True) or "broadcast" in trigger:
            for change in self._changes(segment):
                if change.status == status and change.effective_at > message.left_after:
                    yield change.effective_at, "left_segment"
        for one in self._all(EventReceived) if "event" in cancel else ():
            if _matches(cancel["event"], one) and one.event_time > message.trigger_at:
                yield one.event_time, "cancelled"

    # The history

    def _all(self, kind: type[T]) -> list[T]:
        return self.history.get(kind, [])

    def _running(self) -> list[str]:
        """Return the keys of the campaigns that are active or paused."""
        archived = {one.campaign for one in self._all(CampaignSwitched) if one.to == "archived"}
        keys = [one.document["key"] for one in self._all(CampaignActivated)]
        return [key for key in keys if key not in archived]

    def _versions(self, key: str) -> list[CampaignActivated | CampaignEdited]:
        every: list[CampaignActivated | CampaignEdited] = [*self._all(CampaignActivated), *self._all(CampaignEdited)]
        return [one for one in every if one.document["key"] == key]

    def _document(self, key: str) -> Document:
        return self._versions(key)[-1].document

    def _version(self, key: str) -> int:
        return self._versions(key)[-1].version

    def _activated_at(self, key: str) -> int:
        return next(one.at for one in self._versions(key) if isinstance(one, CampaignActivated))

    def _is_paused(self, key: str) -> bool:
        switches = [one.to for one in self._all(CampaignSwitched) if one.campaign == key]
        return bool(switches) and switches[-1] == "paused"

    def _policy(self) -> Document:
        policies = self._all(PolicyChanged)
        return policies[-1].document if policies else {}

    def _traits(self) -> Document:
        snapshots = self._all(TraitsReplaced)
        return snapshots[-1].traits if snapshots else {}

    def _zone(self) -> str:
        named: list[Any] = [self._traits().get("timezone"), self._policy().get("timezone")]
        return next((name for name in named if is_zone(name)), "UTC")

    def _register_and_forget(self, one: Input) -> None:
        token = one.context.get("device", {}).get("token") if isinstance(one, EventReceived) else None
        if token:
            self.devices = [token, *(other for other in self.devices if other != token)][:MOST_DEVICES]
        if isinstance(one, OutcomeReported) and one.outcome == "BOUNCED" and self._is_push(one.campaign):
            sent = [request for request in self.requests if (request.campaign, request.instance) == (one.campaign, one.instance)]
            gone = {device for request in sent for device in request.devices}
            self.devices = [device for device in self.devices if device not in gone]

    def _is_push(self, campaign: str) -> bool:
        return bool(self._versions(campaign)) and self._document(campaign)["channel"] == "push"

    def _changes(self, segment: str | None) -> list[MembershipChanged]:
        changes: list[MembershipChanged] = []
        for one in self._all(MembershipChanged):
            if one.segment == segment and all(one.sequence > earlier.sequence for earlier in changes):
                changes.append(one)
        return changes

    def _was_member(self, segment: str, before: int) -> bool:
        changes = [one for one in self._changes(segment) if one.effective_at < before]
        return bool(changes) and changes[-1].status == "ENTERED"


def _exit_first(cancel: tuple[int, str | None]) -> tuple[int, bool]:
    return cancel[0], cancel[1] != "left_segment"


def _matches(selector: Document, event: EventReceived) -> bool:
    """Return whether an event has the name, and at most one property the value: the selectors of these stories."""
    where = selector.get("where")
    if event.name != selector["event"]:
        return False
    if where is None:
        return True
    found = event.properties.get(where["property"])
    return type(found) is type(where["value"]) and bool(found == where["value"])


def _covers(cap: Document, channel: str, purpose: str) -> bool:
    return channel in cap.get("channels", [channel]) and purpose in cap.get("purposes", [purpose])
