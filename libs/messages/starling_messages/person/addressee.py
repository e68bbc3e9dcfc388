"""Pure core: the decisions about the messages of one person, in the order of their instants.

Each message is evaluated at its own instant, with what was true then. An instant up to the clock is settled: the segmenter has
fired its timers up to there, so no membership change and no trigger at or before it can still come. A message that depends on
nothing but its trigger is decided on arrival, behind the earlier ones of its person.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from starling_campaigns.definitions.triggers import BroadcastTrigger, EventTrigger, MembershipTrigger
from starling_common.cassandra.read_models import ARCHIVED
from starling_messages.broadcasts import due_at, instance_of, listed_at
from starling_messages.campaigns import InForce, Use
from starling_messages.effects import STEP_DROPPED, STEP_HELD_OUT, STEP_REQUESTED, SUPPRESSED, Report, Request, Step
from starling_messages.person.inputs import Happened, MembershipChange
from starling_messages.person.outcomes import MessageOutcomes
from starling_messages.person.unit import delivery_id
from starling_messages.state import DROPPED, HELD_OUT, LATEST_MS, REQUESTED, Change, Decided, Origin, Pending, Remembered
from starling_policy import (
    Decision,
    Defer,
    Drop,
    Message,
    PastMessage,
    Person,
    Send,
    decide,
    local_day,
    timezone_of,
    waiting_message,
)
from starling_policy.bounds import MAX_PENDING
from starling_policy.checks import CANCELLED, EXPIRED, HOLDOUT, LEFT_SEGMENT, TOO_MANY, addresses_of

CONTEXT_TOO_LARGE: Final = "context_too_large"
MAX_CONTEXT_CHARACTERS: Final = 262_144
"""Maximum size of the traits and the event of a message. A larger message is dropped."""
LOOK_MS: Final = 600_000
"""How often a message of a paused campaign is looked at, from its due instant on."""
AHEAD_MS: Final = 300_000
"""How far an event may be ahead of its arrival under the wall clock, and still be decided on arrival."""
LEDGER_MS: Final = 90 * 86_400_000
"""The longest window of a cap."""
_BY_DEFINITION: Final = frozenset({"DEFINITION", "MERGE"})


@dataclass
class Addressee(MessageOutcomes):
    """A person to whom messages are written, in one unit of work: what happens to the person triggers and decides them."""

    _settled_until: int = -1
    """The clock up to which everything is decided. What becomes known later has its effect there."""

    # What happens to the person

    def changes(self, change: MembershipChange, origin: Origin) -> None:
        """Apply a change of membership: it cancels waiting messages of its segment, and triggers campaigns."""
        state, (segment, entered, at, cause) = self.state, change
        state.change(segment, Change(at, entered))
        for one in state.pending:
            if one.segment == segment and one.entered != entered:
                one.left_at = _earliest(one.left_at, at, one.triggered_at)
        for key in self.campaigns.by_change.get((segment, entered), ()):
            found = self.campaigns.campaigns[key]
            trigger = found.campaign.trigger
            if not isinstance(trigger, MembershipTrigger) or not found.counts(origin.received_at):
                continue
            if cause in _BY_DEFINITION and not trigger.on_definition:
                continue
            if origin.sequence > state.sequences.get(key, 0):
                state.sequences[key] = origin.sequence
                due_at = at + found.campaign.delay_ms
                self._await(found, Pending(key, str(origin.sequence), due_at, at, origin, segment=segment, entered=entered))

    def does(self, event: Happened, use: Use, campaign: str, origin: Origin) -> None:
        """Apply an event that a campaign selects."""
        found = self.campaigns.campaigns[campaign]
        match use:
            case Use.TRIGGER:
                self._triggered_by(found, event, origin)
            case Use.CANCEL:
                lasting = isinstance(found.campaign.trigger, EventTrigger)
                self._selected(Remembered(use.value, campaign, event.at, event.at + (LATEST_MS if lasting else 0)))
            case Use.GOAL:
                path = found.campaign.goal.value if found.campaign.goal is not None else None
                value = None if path is None else event.value_of(path)
                self._selected(Remembered(use.value, campaign, event.at, event.at, value))

    def listed(self, campaign: str, origin: Origin) -> None:
        """Apply the listing of the person for a broadcast: a member at its instant, who is written to once."""
        found = self.campaigns.campaigns.get(campaign)
        if found is None or found.status == ARCHIVED or not isinstance(found.campaign.trigger, BroadcastTrigger):
            return
        trigger, sequences = found.campaign.trigger, self.state.sequences
        if campaign in sequences:
            return
        sequences[campaign] = 1
        due_ms = due_at(trigger, timezone_of(self.traits(), self.campaigns.policy.timezone))
        is_past = trigger.local is not None and due_ms * 1000 < found.activated_at
        one = Pending(campaign, instance_of(trigger), due_ms, listed_at(trigger), origin, segment=trigger.segment)
        self._await(found, one)
        one.immediate = False
        if is_past:
            self._drop(one, EXPIRED, self.clock)

    # Time

    def advance(self) -> None:
        """Decide the messages up to and at the clock, and those that wait for nothing."""
        self._time_out()
        self._end_without_evaluation()
        while self.state.pending:
            first = min(self.state.pending, key=self._order)
            if first.at > self.clock and not first.immediate:
                break
            self._evaluate(first)
        for one in list(self.state.pending):
            cancelled = self._cancelled(one)
            if cancelled is not None and cancelled[0] <= self.clock:
                self._drop(one, cancelled[1], cancelled[0])
        while len(self.state.pending) > MAX_PENDING:
            # Of equal ones the last to arrive.
            self._drop(max(reversed(self.state.pending), key=self._order), TOO_MANY, self.clock)
        self._settled_until = self.clock
        self.state.forget(self.clock)

    def due_ms(self) -> int | None:
        """Return the next instant at which time alone has an effect, epoch ms; None for never."""
        instants = [at for one in self.state.pending for at in self._instants(one)]
        instants += [at for one in self.state.decided if (at := self._unknown_at(one)) is not None]
        return min(instants, default=None)

    # Triggers

    def _triggered_by(self, found: InForce, event: Happened, origin: Origin) -> None:
        trigger, rules = found.campaign.trigger, found.campaign.rules
        if not isinstance(trigger, EventTrigger) or not found.counts(origin.received_at):
            return
        if event.arrived_at - event.at > rules.expires_after_ms:
            return
        if not self.state.is_first(found.campaign.key, event.event_id, event.at):
            return
        due_at, segment = event.at + found.campaign.delay_ms, trigger.while_segment
        one = Pending(found.campaign.key, event.event_id, due_at, event.at, origin, segment=segment, event=event.text)
        self._await(found, one)
        if self.unknown_ms is not None and event.at > event.arrived_at + AHEAD_MS:
            one.immediate = False  # an imported event of the future: its message waits for its time

    def _await(self, found: InForce, one: Pending) -> None:
        """Let a new message wait for its first evaluation, with the cancellations that are known already."""
        state, campaign = self.state, found.campaign
        first = waiting_message(Message(campaign.rules, one.due_at), self.campaigns.policy).at
        one.before_event = one.event is not None and one.segment is not None
        one.immediate = first == one.triggered_at and not one.before_event
        one.at = max(first, self.clock, state.evaluated_until)
        for change in state.segments.get(one.segment or "", ()):
            if change.entered != one.entered:
                one.left_at = _earliest(one.left_at, change.at, one.triggered_at)
        for event in state.remembered:
            if event.use == Use.CANCEL.value and event.campaign == campaign.key:
                one.cancelled_at = _earliest(one.cancelled_at, event.at, one.triggered_at)
        state.pending.append(one)

    def _selected(self, event: Remembered) -> None:
        """Apply an event to the messages that it concerns, and to those that a later record triggers at an earlier instant."""
        if event.use == Use.CANCEL.value:
            for one in self.state.pending:
                if one.campaign == event.campaign:
                    one.cancelled_at = _earliest(one.cancelled_at, event.at, one.triggered_at)
        else:
            for message in self.state.decided:
                self._converts(message, event)
        if event.until > self.clock:
            self.state.remember(event)

    # Decisions

    def _order(self, one: Pending) -> tuple[int, int, int, str]:
        """Return the sort key of the next evaluation. Equal ones keep the order of their arrival."""
        found = self.campaigns.campaigns.get(one.campaign)
        priority = 0 if found is None else found.campaign.rules.priority
        return one.at, -priority, one.due_at, one.campaign

    def _instants(self, one: Pending) -> Iterator[int]:
        """Yield the instants at which something about a waiting message is settled."""
        yield one.at
        if one.before_event:
            yield one.triggered_at
        cancelled = self._cancelled(one)
        if cancelled is not None:
            yield cancelled[0]

    def _cancelled(self, one: Pending) -> tuple[int, str] | None:
        """Return the instant at which the first cancellation has its effect, and its reason; at a tie the exit's."""
        found = self.campaigns.campaigns.get(one.campaign)
        left = one.left_at if found is not None and _ends_by_leaving(found) else None
        causes = [(at, why) for at, why in ((left, LEFT_SEGMENT), (one.cancelled_at, CANCELLED)) if at is not None]
        first = min(causes, key=lambda cause: cause[0], default=None)
        return None if first is None else (max(first[0], self._settled_until), first[1])

    def _end_without_evaluation(self) -> None:
        """Remove the messages of archived campaigns, and of people who were no members just before the event."""
        for one in list(self.state.pending):
            found = self.campaigns.campaigns.get(one.campaign)
            if found is None or found.status == ARCHIVED:
                self._drop(one, ARCHIVED, self.clock)
            elif one.before_event and one.triggered_at <= self.clock:
                one.before_event = False
                if not self.state.was_member(one.segment or "", one.triggered_at):
                    self.state.pending.remove(one)

    def _evaluate(self, one: Pending) -> None:
        found = self.campaigns.campaigns[one.campaign]
        cancelled = self._cancelled(one)
        if cancelled is not None and cancelled[0] < one.at and not one.immediate:
            self._drop(one, cancelled[1], cancelled[0])
        elif found.paused:
            self._look_later(one, found, cancelled)
        else:
            self._decide(one, found)

    def _look_later(self, one: Pending, found: InForce, cancelled: tuple[int, str] | None) -> None:
        """Drop a message of a paused campaign if it has expired or is cancelled, else look at it again later."""
        if one.at > one.due_at + found.campaign.rules.expires_after_ms:
            self._drop(one, EXPIRED, one.at)
        elif cancelled is not None and cancelled[0] == one.at:
            self._drop(one, cancelled[1], one.at)
        else:
            self._evaluated(one.at)
            one.at = one.due_at + ((one.at - one.due_at) // LOOK_MS + 1) * LOOK_MS
            one.immediate = one.deferred = False

    def _evaluated(self, at: int) -> None:
        self.state.evaluated_until = max(self.state.evaluated_until, at)

    def _decide(self, one: Pending, found: InForce) -> None:
        rules, at = found.campaign.rules, one.at
        exits = (one.left_at,) if one.left_at is not None and _ends_by_leaving(found) else ()
        events = () if one.cancelled_at is None else (one.cancelled_at,)
        message = Message(rules, one.due_at, one.instance, one.triggered_at, exits, events)
        person = self.known(rules.channel, self.campaigns.targets.get(found.campaign.target))
        decision = decide(message, person, self.campaigns.policy, at)
        match decision.outcome:
            case Defer(until):
                self._evaluated(at)
                one.at, one.deferred, one.immediate = until, True, False
            case Send():
                self._request(one, found, decision, person)
            case Drop(reason) if reason == HOLDOUT:
                self._conclude(one, found, _End(HELD_OUT, at, decision.variant, reason))
            case Drop(reason):
                self._drop(one, reason, at, decision.variant)

    def _request(self, one: Pending, found: InForce, decision: Decision, person: Person) -> None:
        if len(self.state.traits) + len(one.event or "") > MAX_CONTEXT_CHARACTERS:
            self._drop(one, CONTEXT_TOO_LARGE, one.at, decision.variant)
            return
        channel = found.campaign.rules.channel
        devices = channel in person.devices
        addresses = addresses_of(channel, person)
        addresses = ("",) if addresses is None else addresses
        message = self._conclude(one, found, _End(REQUESTED, one.at, decision.variant, devices=addresses if devices else ("",)))
        remaining = one.due_at + found.campaign.rules.expires_after_ms - one.at
        for id_, address in zip(message.delivery_ids, addresses, strict=True):
            device = address if devices else None
            self.effects.append(
                Request(id_, found, decision.variant, address, device, person.traits, one.event, one.origin, remaining)
            )

    def _conclude(self, one: Pending, found: InForce, end: "_End") -> Decided:
        """Conclude a message that is requested or held out."""
        rules, held_out = found.campaign.rules, end.status == HELD_OUT
        message = self._close(one, found, end)
        past = PastMessage(end.at, rules.channel, rules.purpose, rules.campaign, rules.dedupe_key, held_out)
        self.state.past(past, LEDGER_MS)
        self.effects.append(Step(message, STEP_HELD_OUT if held_out else STEP_REQUESTED, end.at, end.reason))
        for event in self.state.remembered:
            if event.use == Use.GOAL.value:
                self._converts(message, event)
        return message

    def _drop(self, one: Pending, reason: str, at: int, variant: str | None = None) -> None:
        found = self.campaigns.campaigns.get(one.campaign)
        message = self._close(one, found, _End(DROPPED, at, variant, reason))
        self.effects.append(Step(message, STEP_DROPPED, at, reason))
        if found is not None:
            self.effects.append(Report(message, found, SUPPRESSED, at, reason))

    def _close(self, one: Pending, found: InForce | None, end: "_End") -> Decided:
        self.state.pending.remove(one)
        self._evaluated(end.at)
        message = Decided(
            campaign=one.campaign,
            instance=one.instance,
            version=0 if found is None else found.version,
            variant=end.variant,
            due_at=one.due_at,
            decided_at=end.at,
            status=end.status,
            delivery_ids=[delivery_id(self.workspace, one.campaign, self.user_id, one.instance, device) for device in end.devices],
            correlation_id=one.origin.correlation_id,
            reason=end.reason,
            day=local_day(self.campaigns.policy.timezone, end.at),
            is_first=end.status != DROPPED and one.campaign not in self.state.last,
        )
        self.state.decided.append(message)
        return message


class _End(NamedTuple):
    """How a message ends to wait. `devices`: an id for each; one empty text for a single address."""

    status: str
    at: int
    variant: str | None
    reason: str | None = None
    devices: Sequence[str] = ("",)


def _ends_by_leaving(found: InForce) -> bool:
    """Return whether an exit cancels. A broadcast is for members alone."""
    return found.campaign.cancel.left or isinstance(found.campaign.trigger, BroadcastTrigger)


def _earliest(known: int | None, at: int, after: int) -> int | None:
    """Return the earlier instant of those after `after`."""
    if at <= after:
        return known
    return at if known is None else min(known, at)
