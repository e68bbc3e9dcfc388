"""Pure core: the outcomes of messages: their reports, the goals that are reached, and the messages without a report."""

from typing import Final

from starling_messages.effects import ARRIVED, BOUNCED, CONVERTED, FAILED, SENDING, SUPPRESSED, Report, Step, Suppress
from starling_messages.person.inputs import Outcome
from starling_messages.person.unit import PersonUnit, delivery_id
from starling_messages.state import DROPPED, REQUESTED, Decided, Reached, Remembered
from starling_policy.person import SOFT_BOUNCES

UNKNOWN: Final = "unknown"
MOST_SOFT_BOUNCES: Final = 5
"""An address is suppressed after so many soft bounces in a row."""
_GIVES_BACK: Final = frozenset({FAILED, SUPPRESSED, BOUNCED})
"""Outcomes that give the slot of a cap back."""


class MessageOutcomes(PersonUnit):
    """A person whose decided messages have outcomes."""

    def reports(self, outcome: Outcome) -> None:
        """Apply an outcome of one of the person's messages. Only the first of each kind has an effect."""
        message = next((one for one in self.state.decided if outcome.delivery_id in one.delivery_ids), None)
        if message is None or message.status != REQUESTED:
            return
        if not message.reached(outcome.outcome):
            message.outcomes.append(Reached(outcome.outcome, outcome.at, outcome.reason, soft_bounce=outcome.soft_bounce))
            if outcome.outcome != SENDING:
                self.effects.append(Step(message, outcome.outcome, outcome.at, outcome.reason))
            if outcome.soft_bounce is not None:
                self._softly_bounces(message, outcome.soft_bounce)
        if outcome.outcome in _GIVES_BACK:
            self._gives_back(message, outcome.delivery_id)
        if outcome.outcome == BOUNCED:
            self._forget_device(message, outcome.delivery_id)

    def _converts(self, message: Decided, event: Remembered) -> None:
        """Note the first goal event within the time after a message was requested or held out."""
        found = self.campaigns.campaigns.get(message.campaign)
        if found is None or event.campaign != message.campaign or found.campaign.goal is None or message.status == DROPPED:
            return
        if not message.decided_at < event.at <= message.decided_at + found.campaign.goal.within_ms or message.reached(CONVERTED):
            return
        message.outcomes.append(Reached(CONVERTED, event.at, None, event.value))
        self.effects.append(Step(message, CONVERTED, event.at, None, event.value))
        if message.status == REQUESTED:
            self.effects.append(Report(message, found, CONVERTED, event.at))

    def _softly_bounces(self, last: Decided, digest: str) -> None:
        """Suppress an address whose newest messages have all bounced. One that arrived in between ends the row."""
        channel, count = self._channel(last), 0
        for message in reversed(self.state.decided):
            if any(one.soft_bounce == digest for one in message.outcomes):
                count += 1
            elif self._channel(message) == channel and any(message.reached(outcome) for outcome in ARRIVED):
                break
        if count >= MOST_SOFT_BOUNCES and channel is not None:
            self.effects.append(Suppress(last, channel, digest, SOFT_BOUNCES))

    def _channel(self, message: Decided) -> str | None:
        found = self.campaigns.campaigns.get(message.campaign)
        return None if found is None else found.campaign.rules.channel

    def _gives_back(self, message: Decided, failed: str) -> None:
        """Give the slot of a message back once all its devices have failed, which wakes those that wait for one."""
        if failed in message.failed:
            return
        message.failed.append(failed)
        if len(message.failed) < len(message.delivery_ids):
            return
        ledger = self.state.ledger
        for i, past in enumerate(ledger):
            # Several messages of the campaign may have that instant: each gives back the slot of one.
            if (past.at, past.campaign) == (message.decided_at, message.campaign) and not (past.held_out or past.slot_returned):
                ledger[i] = past._replace(slot_returned=True)
                break
        now = max(self.clock, self.state.evaluated_until)
        for one in self.state.pending:
            if one.deferred:
                one.at = min(one.at, now)

    def _forget_device(self, message: Decided, failed: str) -> None:
        """Remove the device that a message was for: its app or its subscription does not exist any more."""
        found = self.campaigns.campaigns.get(message.campaign)
        channel = "" if found is None else found.campaign.rules.channel
        for device in self.state.devices.get(channel, ()):
            if delivery_id(self.workspace, message.campaign, self.user_id, message.instance, device) == failed:
                self.state.unregisters(channel, device)
                return

    def _unknown_at(self, message: Decided) -> int | None:
        if self.unknown_ms is None or len(message.outcomes) != 1 or message.outcomes[0].outcome != SENDING:
            return None
        return message.outcomes[0].at + self.unknown_ms

    def _time_out(self) -> None:
        """Report the messages whose outcome never came as failed."""
        for message in self.state.decided:
            at, found = self._unknown_at(message), self.campaigns.campaigns.get(message.campaign)
            if at is None or at > self.clock:
                continue
            message.outcomes.append(Reached(FAILED, at, UNKNOWN))
            self.effects.append(Step(message, FAILED, at, UNKNOWN))
            if found is not None:
                self.effects.append(Report(message, found, FAILED, at, UNKNOWN))
            for one in message.delivery_ids:
                self._gives_back(message, one)
