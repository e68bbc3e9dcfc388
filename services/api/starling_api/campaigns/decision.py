"""Pure core: the decision of the policy about a message of a campaign to one user that is due now."""

from typing import Any, Final, NamedTuple

from starling_api.messages.people import KnownPerson
from starling_campaigns import Campaign
from starling_common.time.instants import format_instant
from starling_messages.campaigns import Workspace
from starling_messages.person.addressee import Addressee
from starling_messages.person.unit import SuppressionOf
from starling_policy import Decision, Defer, Drop, Message, Send, decide

Document = dict[str, Any]

SEND: Final = "send"
TEMPLATE_MISSING: Final = "template_missing"


class Shown(NamedTuple):
    """A decision. `action`: send, defer or drop; None without a messenger. `until`: of a deferral, epoch ms."""

    action: str | None
    reason: str | None
    variant: str | None
    until: int | None = None

    def fields(self) -> Document:
        """Return the fields of an answer."""
        until = None if self.until is None else format_instant(self.until)
        return {"verdict": self.action, "reason": self.reason, "until": until}  # vocabulary: verdict: a field of the contract


class DecisionInputs(NamedTuple):
    """What decisions about the messages of a campaign depend on, beyond the user.

    `definitions`: the policy, and the channel of the campaign's target, of which the devices that count depend.
    """

    workspace: str
    definitions: Workspace
    suppression_of: SuppressionOf


def decided_now(campaign: Campaign, inputs: DecisionInputs, user_id: str, known: KnownPerson) -> Shown:
    """Return the decision about a message that is due at the stream time of the messenger, with what it keeps of the user.

    Membership, cancelling events and rivals are not considered. A message that was decided on arrival may be later
    than that stream time: the decision then is at its instant.
    """
    rules, policy = campaign.rules, inputs.definitions.policy
    addressee = Addressee(
        inputs.workspace, user_id, known.state, inputs.definitions, known.as_of_ms, inputs.suppression_of
    )  # fmt: skip
    person = addressee.known(rules.channel, inputs.definitions.targets.get(campaign.target))
    newest = next(person.history.newest_first(), None)
    now = max(known.as_of_ms, 0 if newest is None else newest.at)
    return _shown(decide(Message(rules, now), person, policy, now))


def _shown(decision: Decision) -> Shown:
    match decision.outcome:
        case Send():
            return Shown(SEND, None, decision.variant)
        case Defer(until, reason):
            return Shown("defer", reason, decision.variant, until)
        case Drop(reason):
            return Shown("drop", reason, decision.variant)
