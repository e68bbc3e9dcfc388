"""One person's story with the messenger's engine: what happens, and what was decided. The state passes through its bytes."""

import json
from dataclasses import dataclass, field
from typing import Any

from starling_common.outcome import Done
from starling_messages.campaigns import Campaigns, Use, fold_definition, wants
from starling_messages.effects import Effect, Report, Request, Step
from starling_messages.events import event_of
from starling_messages.person.addressee import Addressee
from starling_messages.person.inputs import Happened, MembershipChange, Outcome
from starling_messages.state import Origin, PersonState, decode_person, encode_person
from starling_policy import ConsentChange

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000
NOW = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
WORKSPACE, USER = "default", "ada"


def campaign(**fields: Any) -> dict[str, Any]:
    """Return a campaign's document: an email to each user who enters `vip`, at once."""
    return {
        "key": "hello",
        "name": "Hello",
        "trigger": {"enter": "vip"},
        "channel": "email",
        "target": "smtp",
        "purpose": "transactional",
        "variants": [{"key": "a", "weight": 100, "content": {"subject": "Hello", "text": "Hello"}}],
        **fields,
    }


@dataclass
class Story:
    """A person with an address, and the definitions in force. `received_at` of every record is its own instant."""

    traits: dict[str, Any] = field(default_factory=lambda: {"email": "ada@example.com"})
    clock: int = NOW
    effects: list[Effect] = field(default_factory=list)
    suppressed: dict[str, str] = field(default_factory=dict)
    unknown_ms: int | None = 600_000

    def __post_init__(self) -> None:
        self._campaigns = Campaigns()
        self._bytes = encode_person(PersonState(traits=json.dumps(self.traits)))
        self._sequences: dict[str, int] = {}
        self._versions: dict[str, int] = {}

    @property
    def state(self) -> PersonState:
        """Return the state after its bytes."""
        return decode_person(self._bytes)

    def define(self, document: dict[str, Any], action: str = "ACTIVATED", at: int = 0, kind: str = "campaign") -> "Story":
        """Apply one definition, activated at that instant."""
        key = document.get("key", "policy")
        self._versions[key] = self._versions.get(key, 0) + 1
        record = {
            "workspace": WORKSPACE,
            "kind": kind,
            "key": key,
            "version": self._versions[key],
            "action": action,
            "document": json.dumps(document),
            "recorded_at": at * 1000,
        }
        outcome = fold_definition(self._campaigns, record)
        assert isinstance(outcome, Done), outcome
        self._campaigns = outcome.value
        return self

    def policy(self, **fields: Any) -> "Story":
        """Replace the policy."""
        return self.define({"key": "policy", **fields}, "REVISED", kind="policy")

    def enters(self, segment: str, at: int, **given: Any) -> "Story":
        """Enter a segment."""
        return self._change(segment, at, entered=True, **given)

    def leaves(self, segment: str, at: int, **given: Any) -> "Story":
        """Leave a segment."""
        return self._change(segment, at, entered=False, **given)

    def does(self, name: str, at: int, event_id: str = "e1", received_at: int | None = None, **properties: Any) -> "Story":
        """Do something."""
        received = at if received_at is None else received_at
        fields: tuple[Any, ...] = (received * 1000, at, name, "m", [], json.dumps(properties), "{}", "c", event_id)
        event = event_of(fields)
        person = self._person()
        for use, key in wants(self._campaigns.of(WORKSPACE), event.seen):
            assert isinstance(use, Use)
            person.does(Happened(event_id, at, received, event.text(), event.number), use, key, Origin(received * 1000, "c"))
        return self._conclude(person)

    def consents(self, granted: bool, at: int, channel: str = "email", purpose: str | None = None) -> "Story":
        """Change the consent explicitly."""
        person = self._person()
        person.state.consents(ConsentChange(channel, purpose, granted, at))
        return self._conclude(person)

    def registers(self, channel: str, *addresses: str) -> "Story":
        """Add devices."""
        person = self._person()
        for address in addresses:
            person.state.registers(channel, address)
        return self._conclude(person)

    def forgets(self, channel: str, address: str) -> "Story":
        """Remove a device."""
        person = self._person()
        person.state.unregisters(channel, address)
        return self._conclude(person)

    def identifies(self, **traits: Any) -> "Story":
        """Replace the traits."""
        person = self._person()
        person.state.traits = json.dumps(traits)
        return self._conclude(person)

    def receives(
        self, outcome: str, at: int, message: int = 0, reason: str | None = None, soft_bounce: str | None = None
    ) -> "Story":
        """Read an outcome of the request with that number."""
        person = self._person()
        person.reports(Outcome(self.requests[message].delivery_id, outcome, reason, at, soft_bounce))
        return self._conclude(person)

    def until(self, clock: int) -> "Story":
        """Move the clock, firing the timer at each of its instants as the stream layer does."""
        while (due := self._addressee().due_ms()) is not None and due <= clock:
            self.clock = max(self.clock, due)
            self._conclude(self._person())
        self.clock = clock
        return self._conclude(self._person())

    @property
    def requests(self) -> list[Request]:
        """Return the requested messages."""
        return [effect for effect in self.effects if isinstance(effect, Request)]

    @property
    def reports(self) -> list[tuple[str, str | None]]:
        """Return the reports of the messenger itself: outcome and reason."""
        return [(effect.outcome, effect.reason) for effect in self.effects if isinstance(effect, Report)]

    @property
    def steps(self) -> list[tuple[str, str, str | None, int]]:
        """Return (campaign, step, reason, instant in ms after `NOW`) in their order."""
        return [
            (effect.message.campaign, effect.name, effect.reason, effect.at - NOW)
            for effect in self.effects
            if isinstance(effect, Step)
        ]

    def _change(
        self,
        segment: str,
        at: int,
        *,
        entered: bool,
        cause: str = "EVENT",
        received_at: int | None = None,
        sequence: int | None = None,
    ) -> "Story":
        following = self._sequences.get(segment, 0) + 1
        self._sequences[segment] = sequence or (following if following % 2 == entered else following + 1)
        person = self._person()
        received = at if received_at is None else received_at
        origin = Origin(received * 1000, "c", self._sequences[segment])
        person.changes(MembershipChange(segment, entered, at, cause), origin)
        return self._conclude(person)

    def _person(self) -> Addressee:
        person = self._addressee()
        person.advance()
        return person

    def _addressee(self) -> Addressee:
        return Addressee(
            WORKSPACE,
            USER,
            self.state,
            self._campaigns.of(WORKSPACE),
            self.clock,
            lambda channel, digest: self.suppressed.get(f"{channel}:{digest}"),
            self.unknown_ms,
            self.effects,
        )

    def _conclude(self, person: Addressee) -> "Story":
        person.advance()
        self._bytes = encode_person(person.state)
        return self
