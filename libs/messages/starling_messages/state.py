"""Pure core: what the messenger keeps of one person, and its bytes."""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from starling_policy import ConsentChange, PastMessage
from starling_policy.bounds import DAY_MS, MAX_CONSENT_CHANGES, MAX_DEVICES, MAX_MESSAGES

MAX_SHOWN: Final = 64
"""The newest decided messages of a person, whose outcomes are followed."""
LATEST_MS: Final = 7 * 86_400_000
"""The greatest age at which an event still triggers, which is the longest `expires_after`."""
SHOWN_MS: Final = 30 * 86_400_000
"""How long a decided message is kept after its decision."""
_MAX_CHANGES: Final = 64
_MAX_PAST_CHANGES: Final = 8
"""The newest changes of one segment, in all and up to the clock. An event trigger with `while` looks back over them."""
_MAX_REMEMBERED: Final = 256
"""Events whose trigger may still come. A person with more loses the oldest."""

_MAX_OCCASIONS: Final = 1_024
"""Events that have triggered campaigns. A person with more forgets the first one."""

REQUESTED: Final = "requested"
HELD_OUT: Final = "held_out"
DROPPED: Final = "dropped"


class Change(msgspec.Struct, array_like=True):
    """One change of membership in a segment. `at`: epoch ms, stream time."""

    at: int
    entered: bool


class Origin(msgspec.Struct, array_like=True, frozen=True):
    """The record that triggered a message. `received_at`: µs, wall clock. `sequence`: of a membership change, else 0."""

    received_at: int
    correlation_id: str
    sequence: int = 0


class Pending(msgspec.Struct, array_like=True):
    """A message that is not decided. All instants are epoch ms in stream time.

    `at`: its next evaluation. `immediate`: it is decided on arrival, because nothing it depends on can still come. `segment`: the
    segment whose change in the other direction cancels it. `left_at`, `cancelled_at`: the earliest cancellation after the trigger,
    by such a change and by an event. `event`: the triggering event, a JSON object with `name` and `properties`.
    """

    campaign: str
    instance: str
    due_at: int
    triggered_at: int
    origin: Origin
    at: int = 0
    immediate: bool = False
    deferred: bool = False
    segment: str | None = None
    entered: bool = True
    left_at: int | None = None
    cancelled_at: int | None = None
    event: str | None = None
    before_event: bool = False
    """Whether the message is sent only to members of `segment` just before the event."""


class Reached(msgspec.Struct, array_like=True, frozen=True):
    """An outcome of a message. `at`: epoch ms, stream time. `soft_bounce`: the digest of the address that bounced for now."""

    outcome: str
    at: int
    reason: str | None = None
    value: float | None = None
    soft_bounce: str | None = None


class Decided(msgspec.Struct, array_like=True):
    """A message that was requested, held out or dropped. `delivery_ids`: one for each device or address."""

    campaign: str
    instance: str
    version: int
    variant: str | None
    due_at: int
    decided_at: int
    status: str
    delivery_ids: list[str]
    correlation_id: str
    reason: str | None = None
    outcomes: list[Reached] = msgspec.field(default_factory=list)
    failed: list[str] = msgspec.field(default_factory=list)
    """Delivery ids that gave their slot back."""
    day: int | None = None
    """The day of the decision in the zone of the workspace, in days since 1970-01-01; None in states of earlier versions."""
    is_first: bool = False
    """Whether it is the first message of the campaign to the person that was requested or held out."""

    def reached(self, outcome: str) -> bool:
        """Return whether the message has had this outcome."""
        return any(one.outcome == outcome for one in self.outcomes)


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """An event that cancels or converts messages whose trigger may still come.

    `at`: its own time, `until`: the clock at which it is forgotten, both epoch ms.
    """

    use: str
    campaign: str
    at: int
    until: int
    value: float | None = None


class PersonState(msgspec.Struct, array_like=True):
    """Everything that the messenger keeps of one person. `traits`: a JSON object, as the newest profile record has it."""

    traits: str = "{}"
    segments: dict[str, list[Change]] = msgspec.field(default_factory=dict)
    """Segment -> its newest changes, the oldest first."""
    devices: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Channel -> addresses, the oldest first."""
    consent: list[ConsentChange] = msgspec.field(default_factory=list)
    pending: list[Pending] = msgspec.field(default_factory=list)
    decided: list[Decided] = msgspec.field(default_factory=list)
    """The newest decided messages, the oldest first."""
    ledger: list[PastMessage] = msgspec.field(default_factory=list)
    """Requested and held-out messages in the windows of caps, the oldest first."""
    last: dict[str, int] = msgspec.field(default_factory=dict)
    """Campaign -> the instant of its last message that was requested or held out."""
    sequences: dict[str, int] = msgspec.field(default_factory=dict)
    """Campaign -> the highest sequence of a membership change that triggered it."""
    occasions: dict[int, int] = msgspec.field(default_factory=dict)
    """Hash of a campaign and an event that has triggered it -> the event's time. An event triggers a campaign once."""
    remembered: list[Remembered] = msgspec.field(default_factory=list)
    evaluated_until: int = -1
    """The latest instant at which a message was evaluated. No later evaluation is before it."""

    def change(self, segment: str, change: Change) -> None:
        """Add a change of membership."""
        changes = self.segments.setdefault(segment, [])
        changes.append(change)
        del changes[:-_MAX_CHANGES]

    def was_member(self, segment: str, before_ms: int) -> bool:
        """Return whether the person was a member just before an instant.

        Before the first change that is kept, the status was the opposite of that change.
        """
        changes = self.segments.get(segment, [])
        earlier = [change for change in changes if change.at < before_ms]
        if earlier:
            return earlier[-1].entered
        return bool(changes) and not changes[0].entered

    def consents(self, change: ConsentChange) -> None:
        """Add an explicit change of consent. Of a channel and purpose, the newest one is kept."""
        kept = [one for one in self.consent if (one.channel, one.purpose) != (change.channel, change.purpose)]
        older = [one for one in self.consent if (one.channel, one.purpose) == (change.channel, change.purpose)]
        newest = max((*older, change), key=lambda one: (one.at, not one.granted))
        self.consent = [*kept, newest][-MAX_CONSENT_CHANGES:]

    def registers(self, channel: str, address: str) -> bool:
        """Add a device. A known one becomes the newest; beyond the bound the oldest goes. Return whether anything changed."""
        devices = self.devices.setdefault(channel, [])
        if devices and devices[-1] == address:
            return False
        if address in devices:
            devices.remove(address)
        devices.append(address)
        del devices[:-MAX_DEVICES]
        return True

    def unregisters(self, channel: str, address: str) -> bool:
        """Remove a device. Return whether the person had it."""
        devices = self.devices.get(channel, [])
        if address not in devices:
            return False
        devices.remove(address)
        if not devices:
            del self.devices[channel]
        return True

    def is_first(self, campaign: str, event_id: str, at: int) -> bool:
        """Return whether an event triggers a campaign for the first time, and keep that it does."""
        found = int.from_bytes(blake2b(f"{campaign}/{event_id}".encode(), digest_size=8).digest(), "big")
        if found in self.occasions:
            return False
        self.occasions[found] = at
        if len(self.occasions) > _MAX_OCCASIONS:
            del self.occasions[next(iter(self.occasions))]
        return True

    def remember(self, event: Remembered) -> None:
        """Keep an event whose trigger may still come."""
        self.remembered.append(event)
        del self.remembered[:-_MAX_REMEMBERED]

    def past(self, message: PastMessage, keep_ms: int) -> None:
        """Add a requested or held-out message. Those that no cap counts any more are dropped."""
        after = message.at - keep_ms
        self.ledger = [one for one in self.ledger if one.at > after][-(MAX_MESSAGES - 1) :]
        self.ledger.append(message)
        if message.campaign is not None:
            self.last[message.campaign] = message.at

    def forget(self, now: int) -> None:
        """Drop what no decision and no outcome needs any more at that instant."""
        if self.occasions:
            # An event is at most `LATEST_MS` old when it is received, and repeated within as much again; a day is for the clock.
            self.occasions = {found: at for found, at in self.occasions.items() if at > now - 2 * LATEST_MS - DAY_MS}
        if self.remembered:
            self.remembered = [one for one in self.remembered if one.until > now]
        for segment, changes in self.segments.items():
            if len(changes) > _MAX_PAST_CHANGES:
                past = sum(change.at <= now for change in changes)
                self.segments[segment] = changes[max(0, past - _MAX_PAST_CHANGES) :]
        if self.decided:
            self.decided = [one for one in self.decided if one.decided_at > now - SHOWN_MS][-MAX_SHOWN:]


_FORMAT: Final = b"\x01"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PersonState)


class UnknownStateFormat(ValueError):
    """A newer version of the messenger wrote the state: upgrade this process."""


def encode_person(state: PersonState) -> bytes:
    """Return the bytes of a state: the version of the format, then MessagePack."""
    return _FORMAT + _encoder.encode(state)


def decode_person(data: bytes) -> PersonState:
    """Return the state of these bytes. Raises: UnknownStateFormat."""
    if data[:1] != _FORMAT:
        raise UnknownStateFormat(f"the state has the format {data[0]}: this version reads format {_FORMAT[0]}")
    return _decoder.decode(memoryview(data)[1:])


def plain_person(state: PersonState) -> dict[str, Any]:
    """Return a state as plain JSON values, for inspection."""
    found: dict[str, Any] = msgspec.to_builtins({name: getattr(state, name) for name in state.__struct_fields__})
    return found
