"""Pure core: the campaigns and the policy of each workspace, as a fold over `delivery.definitions`, compiled for look-ups."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from starling_campaigns import Campaign, parse_stored_campaign, parse_stored_policy
from starling_campaigns.definitions.triggers import EventTrigger, MembershipTrigger
from starling_common.cassandra.read_models import ACTIVE, ARCHIVED, DEFINED, PAUSED
from starling_common.outcome import Done, Outcome, Refused, Skipped
from starling_common.records.definitions import status_after
from starling_common.wire import Record
from starling_messages.events import DEVICE_EVENTS
from starling_policy import Policy
from starling_segments import DefinitionRefused, MeasurePlan, compile_measures
from starling_segments.language.tree import EventSelector

CAMPAIGN: Final = "campaign"
POLICY: Final = "policy"
TARGET: Final = "target"


class Use(Enum):
    """The effect of an event that a campaign selects."""

    TRIGGER = "trigger"
    CANCEL = "cancel"
    GOAL = "goal"


class Selected(NamedTuple):
    """A campaign that selects an event, and what for."""

    use: Use
    campaign: str


@dataclass(frozen=True, slots=True)
class InForce:
    """One campaign that was activated. `status`: active, paused or archived. `activated_at`: µs, wall clock."""

    campaign: Campaign
    version: int
    status: str
    activated_at: int

    @property
    def paused(self) -> bool:
        """Return whether no message of it is decided at present."""
        return self.status == PAUSED

    def counts(self, received_at: int) -> bool:
        """Return whether a trigger that was received at that time (µs) counts."""
        return self.status != ARCHIVED and received_at >= self.activated_at


@dataclass(frozen=True)
class Workspace:
    """The activated campaigns of a workspace by key, its policy, and its campaigns by what triggers them."""

    campaigns: Mapping[str, InForce] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    by_change: Mapping[tuple[str, bool], tuple[str, ...]] = field(default_factory=dict)
    """(segment, entered) -> the campaigns that such a change triggers."""
    selectors: MeasurePlan = field(default_factory=lambda: compile_measures(()))
    selected: tuple[Selected, ...] = ()
    """The selector with number i -> the campaign that it belongs to."""
    targets: Mapping[str, str] = field(default_factory=dict)
    """Target -> its channel, which decides which devices of a person it reaches."""

    def concerns(self, event_name: str) -> bool:
        """Return whether events of that name can concern a campaign or name a device. Most names are looked up in a cache."""
        return event_name in DEVICE_EVENTS or (bool(self.selected) and self.selectors.touches(event_name))


NOTHING: Final = Workspace()


@dataclass(frozen=True)
class Campaigns:
    """Every workspace with definitions. A changed set is a new object, so that a reader keeps the one it has."""

    workspaces: Mapping[str, Workspace] = field(default_factory=dict)

    def of(self, workspace: str) -> Workspace:
        """Return the campaigns of a workspace."""
        return self.workspaces.get(workspace, NOTHING)


def fold_definition(campaigns: Campaigns, record: Record) -> Outcome[Campaigns]:
    """Return the campaigns after one `DefinitionChanged`. Drafts have no effect on the messenger; of a target its channel has."""
    kind = record["kind"]
    before = campaigns.of(record["workspace"])
    try:
        if kind == POLICY:
            after = replace(before, policy=_policy(record))
        elif kind == CAMPAIGN:
            found = _in_force(record, before.campaigns.get(record["key"]))
            if found is None:
                return Skipped("a draft")
            after = _compiled(before, {**before.campaigns, record["key"]: found})
        elif kind == TARGET:
            channel = json.loads(record["document"]).get("channel")
            if before.targets.get(record["key"]) == channel or not isinstance(channel, str):
                return Skipped("the channel of the target is the same")
            after = replace(before, targets={**before.targets, record["key"]: channel})
        else:
            return Skipped(f"a {kind}")
    except DefinitionRefused as refused:
        return Refused("definition_refused", f"{record['workspace']}/{record['key']} version {record['version']}: {refused}")
    return Done(Campaigns({**campaigns.workspaces, record["workspace"]: after}))


def _policy(record: Record) -> Policy:
    if record["action"] == "ARCHIVED":
        return Policy()
    document = json.loads(record["document"])
    return parse_stored_policy({name: value for name, value in document.items() if name != "key"})


def _in_force(record: Record, before: InForce | None) -> InForce | None:
    """Return the campaign after a record; None for a draft, which was never activated."""
    status = status_after(record["action"])
    if status == DEFINED and before is not None:
        status = before.status
    if before is None and status != ACTIVE:
        return None
    activated_at = record["recorded_at"] if before is None else before.activated_at
    return InForce(parse_stored_campaign(json.loads(record["document"])), record["version"], status, activated_at)


def _compiled(before: Workspace, campaigns: Mapping[str, InForce]) -> Workspace:
    by_change: dict[tuple[str, bool], list[str]] = defaultdict(list)
    marks: list[EventSelector] = []
    selected: list[Selected] = []
    for key, one in sorted(campaigns.items()):
        for use, selector in _selectors(one):
            marks.append(selector)
            selected.append(Selected(use, key))
        trigger = one.campaign.trigger
        if isinstance(trigger, MembershipTrigger) and one.status != ARCHIVED:
            by_change[trigger.segment, trigger.entered].append(key)
    return Workspace(
        campaigns,
        before.policy,
        {change: tuple(keys) for change, keys in by_change.items()},
        compile_measures((), marks),
        tuple(selected),
        before.targets,
    )


def _selectors(one: InForce) -> Iterable[tuple[Use, EventSelector]]:
    """Return the events that a campaign selects. Goals of an archived campaign still count for its earlier messages."""
    campaign = one.campaign
    if one.status != ARCHIVED:
        if isinstance(campaign.trigger, EventTrigger):
            yield Use.TRIGGER, campaign.trigger.event
        if campaign.cancel.event is not None:
            yield Use.CANCEL, campaign.cancel.event
    if campaign.goal is not None:
        yield Use.GOAL, campaign.goal.event


def wants(workspace: Workspace, event: Any) -> list[Selected]:
    """Return the campaigns that select an event. Raises: msgspec.DecodeError if the event's JSON is invalid."""
    if not workspace.selected:
        return []
    return [workspace.selected[number] for number, _ in workspace.selectors.matches(event)]
