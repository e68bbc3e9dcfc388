"""The story of one user, as plain data: what the messenger reads, in the order in which it reads it.

Instants are epoch ms. Documents are those of the API. `received_at` is when the edge took the item behind an input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Document = dict[str, Any]
"""A campaign, a policy, traits, properties: JSON. No code changes one after its story is made."""
Status = Literal["requested", "held_out", "dropped"]


@dataclass(frozen=True)
class CampaignActivated:
    """A campaign is active from here on; `at`: triggers that were received before it do not count."""

    document: Document
    at: int
    version: int = 1


@dataclass(frozen=True)
class CampaignEdited:
    """A new version of an active or paused campaign."""

    document: Document
    version: int


@dataclass(frozen=True)
class CampaignSwitched:
    """A campaign is paused, resumed or archived."""

    campaign: str
    to: Literal["paused", "active", "archived"]


@dataclass(frozen=True)
class PolicyChanged:
    """The policy of the workspace; without one there are no quiet hours, no caps and no control group."""

    document: Document


@dataclass(frozen=True)
class MembershipChanged:
    """A record of the membership feed; `status`: ENTERED or EXITED, `cause`: the kind of the cause."""

    segment: str
    status: str
    effective_at: int
    sequence: int
    received_at: int
    cause: str = "EVENT"


@dataclass(frozen=True)
class EventReceived:
    """A behaviour event. `context.device.token` registers a device for the channel `push`."""

    event_id: str
    name: str
    event_time: int
    received_at: int
    properties: Document = field(default_factory=dict)
    context: Document = field(default_factory=dict)


@dataclass(frozen=True)
class TraitsReplaced:
    """The whole snapshot of the profile's traits after a change."""

    traits: Document


@dataclass(frozen=True)
class ConsentChanged:
    """An explicit change of consent; without a purpose it covers every purpose of the channel. `at`: wall clock."""

    channel: str
    purpose: str | None
    granted: bool
    at: int


@dataclass(frozen=True)
class AddressSuppressed:
    """The suppression of an address: `kind` is hard_bounce, complaint or uploaded; None ends it."""

    channel: str
    address: str
    kind: str | None


@dataclass(frozen=True)
class OutcomeReported:
    """What became of a message, perhaps of one that was never requested; `outcome` as in `events.delivery`."""

    campaign: str
    instance: str
    outcome: str
    at: int


@dataclass(frozen=True)
class BroadcastListed:
    """The broadcaster's record: the user was a member at the instant of the broadcast, and still at that of the listing."""

    campaign: str


@dataclass(frozen=True)
class ClockAdvanced:
    """`segments.clock`: the segmenter has passed this instant; later changes of membership are effective later, or at it."""

    to: int


Input = (
    CampaignActivated
    | CampaignEdited
    | CampaignSwitched
    | PolicyChanged
    | MembershipChanged
    | EventReceived
    | TraitsReplaced
    | ConsentChanged
    | AddressSuppressed
    | OutcomeReported
    | BroadcastListed
    | ClockAdvanced
)


@dataclass(frozen=True)
class Check:
    """A call of `policy/check` after the last input, about a message of this campaign that is due at `at`."""

    campaign: str
    at: int


@dataclass(frozen=True)
class Story:
    user_id: str
    inputs: tuple[Input, ...]
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Decision:
    """How a message ended in the messenger. `variant` of a dropped message is None; `decided_at`: stream time."""

    campaign: str
    instance: str
    version: int
    due_at: int
    decided_at: int
    status: Status
    reason: str | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to a check: send, defer until an instant, or drop. The reason of a hold-out is `holdout`."""

    answer: Literal["send", "defer", "drop"]
    until: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Result:
    """What the messenger makes of a story: every decision, in any order, and the answers to its checks."""

    decisions: tuple[Decision, ...]
    answers: tuple[Answer, ...]
