"""The messenger's engine as the oracle's opponent: each input of a story becomes the engine's own, each effect a decision."""

from __future__ import annotations

import json
from typing import Any

from starling_common.outcome import Done
from starling_common.time.instants import format_instant, parse_instant
from starling_messages.campaigns import Campaigns, fold_definition, wants
from starling_messages.effects import STEP_DROPPED, STEP_HELD_OUT, STEP_REQUESTED, Effect, Step
from starling_messages.events import device_of, event_of
from starling_messages.person.addressee import Addressee
from starling_messages.person.inputs import Happened, MembershipChange, Outcome
from starling_messages.person.unit import delivery_id
from starling_messages.state import Origin, PersonState, decode_person, encode_person
from starling_policy import ConsentChange, Defer, Drop, History, Message, Person, Suppression, address_digest, decide
from starling_segments.engine.leaves import EventWithTraits
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
    EventReceived,
    Input,
    MembershipChanged,
    OutcomeReported,
    PolicyChanged,
    Result,
    Story,
    TraitsReplaced,
)

WORKSPACE = "w"
_ACTIONS = {"paused": "PAUSED", "active": "ACTIVATED", "archived": "ARCHIVED"}
_STATUSES = {STEP_REQUESTED: "requested", STEP_HELD_OUT: "held_out", STEP_DROPPED: "dropped"}


class MessengerEngine:
    """Plays a story. The state of the person passes through its bytes before each input."""

    def run(self, story: Story) -> Result:
        play = _Play(story.user_id)
        for one in story.inputs:
            play.read(one)
        return Result(tuple(play.decisions), tuple(play.check(asked) for asked in story.checks))


class _Play:
    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.decisions: list[Decision] = []
        self._campaigns = Campaigns()
        self._documents: dict[str, tuple[dict[str, Any], int]] = {}
        self._activated: dict[str, int] = {}
        self._suppressed: dict[tuple[str, str], str] = {}
        self._bytes = encode_person(PersonState())
        self._clock = -1

    def read(self, one: Input) -> None:
        match one:
            case CampaignActivated(document, at, version):
                self._activated[document["key"]] = at
                self._define(document, version, "ACTIVATED")
            case CampaignEdited(document, version):
                self._define(document, version, self._action(document["key"]))
            case CampaignSwitched(campaign, to):
                document, version = self._documents[campaign]
                self._define(document, version, _ACTIONS[to])
            case PolicyChanged(document):
                self._fold({"kind": "policy", "key": "policy", "version": 1, "action": "REVISED", "document": json.dumps(document)})
            case ClockAdvanced(to):
                self._advance_to(to)
                return
        person = self._person()
        person.advance()
        self._apply(one, person)
        self._conclude(person)

    def _apply(self, one: Input, person: Addressee) -> None:
        match one:
            case MembershipChanged(segment, status, effective_at, sequence, received_at, cause):
                change = MembershipChange(segment, status == "ENTERED", effective_at, cause)
                person.changes(change, Origin(received_at * 1000, "c", sequence))
            case EventReceived():
                self._happens(one, person)
            case TraitsReplaced(traits):
                person.state.traits = json.dumps(traits)
            case ConsentChanged(channel, purpose, granted, at):
                person.state.consents(ConsentChange(channel, purpose, granted, at))
            case AddressSuppressed(channel, address, None):
                self._suppressed.pop((channel, address_digest(address)), None)
            case AddressSuppressed(channel, address, kind):
                self._suppressed[channel, address_digest(address)] = kind or ""
            case OutcomeReported(campaign, instance, outcome, at):
                instance = self._canonical(campaign, instance)
                message = next((m for m in person.state.decided if (m.campaign, m.instance) == (campaign, instance)), None)
                unknown = delivery_id(WORKSPACE, campaign, self.user_id, instance, "")
                for identifier in [unknown] if message is None else message.delivery_ids:
                    person.reports(Outcome(identifier, outcome, None, at))
            case BroadcastListed(campaign):
                person.listed(campaign, Origin(0, "c"))

    def _happens(self, one: EventReceived, person: Addressee) -> None:
        fields: tuple[Any, ...] = (
            one.received_at * 1000, one.event_time, one.name, "m", [], json.dumps(one.properties), json.dumps(one.context), "c",
            one.event_id,
        )  # fmt: skip
        event = event_of(fields)
        device = device_of(event)
        if device is not None:
            change = person.state.registers if device.present else person.state.unregisters
            change(device.channel, device.address)
        happened = Happened(one.event_id, one.event_time, one.received_at, event.text(), event.number)
        for use, campaign in wants(self._campaigns.of(WORKSPACE), EventWithTraits(event.seen, person.traits())):
            person.does(happened, use, campaign, Origin(one.received_at * 1000, "c"))

    def _advance_to(self, clock: int) -> None:
        """Move the clock as the stream layer does: a timer fires at its own instant."""
        while (due := self._person().due_ms()) is not None and due <= clock:
            self._clock = max(self._clock, due)
            person = self._person()
            self._conclude(person)
        self._clock = max(self._clock, clock)
        self._conclude(self._person())

    def check(self, asked: Check) -> Answer:
        workspace = self._campaigns.of(WORKSPACE)
        rules = workspace.campaigns[asked.campaign].campaign.rules
        state = decode_person(self._bytes)
        suppressions = tuple(Suppression(channel, digest, kind) for (channel, digest), kind in self._suppressed.items())
        devices = {channel: tuple(addresses) for channel, addresses in state.devices.items()}
        known = self._person().known(rules.channel)
        history = History(past for past in known.history.newest_first() if past.at <= asked.at)
        person = Person(self.user_id, json.loads(state.traits), devices, tuple(state.consent), suppressions, history)
        outcome = decide(Message(rules, asked.at), person, workspace.policy, asked.at).outcome
        match outcome:
            case Defer(until, reason):
                return Answer("defer", until, reason)
            case Drop(reason):
                return Answer("drop", None, reason)
        return Answer("send")

    def _person(self) -> Addressee:
        suppressed = self._suppressed
        return Addressee(
            WORKSPACE,
            self.user_id,
            decode_person(self._bytes),
            self._campaigns.of(WORKSPACE),
            self._clock,
            lambda channel, digest: suppressed.get((channel, digest)),
            None,
        )

    def _conclude(self, person: Addressee) -> None:
        person.advance()
        self._bytes = encode_person(person.state)
        self.decisions += [self._decision(effect) for effect in person.effects if _is_decision(effect)]

    def _canonical(self, campaign: str, instance: str) -> str:
        """Return the instance as the engine writes it: the instant of a broadcast in one form, whatever the document's."""
        at = self._documents[campaign][0]["trigger"].get("at") if campaign in self._documents else None
        return instance if at is None else format_instant(parse_instant(at))

    def _decision(self, effect: Effect) -> Decision:
        assert isinstance(effect, Step)
        one = effect.message
        status: Any = _STATUSES[effect.name]
        instance = self._documents[one.campaign][0]["trigger"].get("at", one.instance)
        return Decision(one.campaign, instance, one.version, one.due_at, one.decided_at, status, one.reason, one.variant)

    def _action(self, key: str) -> str:
        found = self._campaigns.of(WORKSPACE).campaigns[key]
        return "PAUSED" if found.paused else "ACTIVATED"

    def _define(self, document: dict[str, Any], version: int, action: str) -> None:
        key = document["key"]
        self._documents[key] = document, version
        record = {"kind": "campaign", "key": key, "version": version, "action": action, "document": json.dumps(document)}
        self._fold({**record, "recorded_at": self._activated[key] * 1000})

    def _fold(self, record: dict[str, Any]) -> None:
        outcome = fold_definition(self._campaigns, {"workspace": WORKSPACE, **record})
        assert isinstance(outcome, Done), outcome
        self._campaigns = outcome.value


def _is_decision(effect: Effect) -> bool:
    return isinstance(effect, Step) and effect.name in _STATUSES
