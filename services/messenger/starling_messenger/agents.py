"""Edge: the messenger as the stream layer runs it. One handler for each input topic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starling_common.kafka.topics import BEHAVIOUR, BROADCASTS, CONSENT, DELIVERY, MEMBERSHIP_STATE, PROFILE, SEGMENT_CLOCK
from starling_common.records.message_events import reported_at
from starling_common.settings import Clock
from starling_common.values import record_key, split_key, workspace_of
from starling_common.wire import Codec, FieldReader
from starling_messages.campaigns import Campaigns, Workspace, wants
from starling_messages.details import MACHINE
from starling_messages.events import EVENT_FIELDS, INVALID_JSON, WITH_DEVICE, Device, Event, device_of, event_of
from starling_messages.person.addressee import Addressee
from starling_messages.person.inputs import Happened, MembershipChange, Outcome
from starling_messages.person.unit import UNKNOWN_MS
from starling_messages.state import Origin, PersonState, decode_person, encode_person
from starling_messenger.progress import ProgressReporter
from starling_messenger.records import STAGE, Emitter, outcome_instant
from starling_policy import ConsentChange
from starling_segments.engine.leaves import EventWithTraits
from starling_stream.model.processor import Decoded, History, Inbound, Service, Unit

_HOLD_MS: Final = 20
_CHANGE_FIELDS: Final = (
    "received_at", "workspace", "user_id", "segment_key", "status", "sequence", "effective_at", "cause", "correlation_id",
)  # fmt: skip
_PROFILE_FIELDS: Final = ("received_at", "event_time", "change", "traits", "correlation_id", "order", "previous_order")
_REPORT_FIELDS: Final = ("received_at", "event_time", "delivery_id", "outcome", "detail", "campaign", "soft_bounce")
_CONSENT_FIELDS: Final = ("received_at", "workspace", "user_id", "channel", "purpose", "granted", "changed_at", "source")
_new = tuple.__new__  # hot: a named tuple's own constructor takes twice as long
_TRAIT_CHANGES: Final = frozenset({"TRAITS", "COMPUTED", "GROUP", "LINKED"})


class Changed(NamedTuple):
    """One `SegmentMembershipChanged`."""

    change: MembershipChange
    origin: Origin


class Snapshot(NamedTuple):
    """One `ProfileChanged`; `traits` is JSON text."""

    change: str
    traits: str
    correlation_id: str


class Reported(NamedTuple):
    """One `DeliveryReported` of a campaign's message. `event_time`: epoch ms, wall clock."""

    delivery_id: str
    outcome: str
    reason: str | None
    event_time: int
    soft_bounce: str | None


class Listed(NamedTuple):
    """One `BroadcastListed`."""

    campaign: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Sources:
    """What the messenger reads beside its inputs, without waiting.

    `campaigns`: all definitions, and the next offset of their topic. `suppression_of`: (workspace, channel, digest) -> the kind of
    the suppression, or None.
    """

    campaigns: Callable[[], tuple[Campaigns, int]]
    suppression_of: Callable[[str, str, str], str | None]


class Messenger:
    """A `Processor`: triggers, profiles, consent and outcomes in; requests, progress and reports out; the state of a person.

    Its plan is the offset up to which it has the definitions. No state depends on them, so a switch changes no key: it reports.
    """

    def __init__(
        self,
        codec: Callable[[str], Codec],
        sources: Sources,
        emitter: Emitter,
        progress: ProgressReporter,
        clock: Clock,
        now_micros: Callable[[], int],
    ) -> None:
        """`clock` determines stream time; `now_micros` returns the wall clock."""
        self.clock = clock
        self._sources = sources
        self._emitter = emitter
        self._progress = progress
        self._now_micros = now_micros
        self._campaigns, self._offset = sources.campaigns()
        self._workspaces: dict[bytes, Workspace] = {}
        """The prefix of a key -> the campaigns of its workspace."""
        self._read_event = FieldReader(codec(BEHAVIOUR), EVENT_FIELDS)
        self._decoders: Mapping[str, Callable[[bytes], Decoded]] = {
            BEHAVIOUR: _event_decoder(codec(BEHAVIOUR)),
            PROFILE: _profile_decoder(codec(PROFILE)),
            MEMBERSHIP_STATE: _change_decoder(codec(MEMBERSHIP_STATE)),
            DELIVERY: _report_decoder(codec(DELIVERY)),
            CONSENT: _consent_decoder(codec(CONSENT)),
            BROADCASTS: _listed_decoder(codec(BROADCASTS)),
            SEGMENT_CLOCK: _clock_decoder(codec(SEGMENT_CLOCK)),
        }
        self._handlers: Mapping[str, Callable[[Inbound, Unit[PersonState]], None]] = {
            BEHAVIOUR: self._event,
            PROFILE: self._profile,
            MEMBERSHIP_STATE: self._change,
            DELIVERY: self._report,
            CONSENT: self._consent,
            BROADCASTS: self._listed,
        }

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Decode a record of an input. Raises: DecodeError."""
        return self._decoders[topic](value)

    def encode_state(self, state: PersonState) -> bytes:
        """Return the stored form of a person."""
        return encode_person(state)

    def decode_state(self, data: bytes) -> PersonState:
        """Return the person of a stored form. Raises: UnknownStateFormat."""
        return decode_person(data)

    def adopt_plan(self) -> bytes:
        """Take the newest definitions; return their offset."""
        campaigns, self._offset = self._sources.campaigns()
        if campaigns is not self._campaigns:
            self._campaigns, self._workspaces = campaigns, {}
        return str(self._offset).encode()

    def has_plan(self, plan: bytes) -> bool:  # noqa: ARG002 - as in `Processor`
        """Return True: every unit uses the newest definitions."""
        return True

    def before_switch(self, history: History) -> None:
        """Do nothing: definitions need no past."""

    def switched_prefixes(self, partition: int) -> Sequence[bytes]:  # noqa: ARG002 - as in `Processor`
        """Return no prefix: no state depends on definitions."""
        return ()

    def switch(self, key: bytes, state: PersonState, unit: Unit[PersonState]) -> None:
        """Do nothing: no state depends on definitions."""

    def after_switch(self, unit: Unit[PersonState]) -> None:
        """Publish the offset of the newest definition that the partition uses."""
        self._progress.report(self._offset, unit)

    def process(self, record: Inbound, unit: Unit[PersonState]) -> None:
        """Apply one record to its person, and decide what it allows to decide."""
        self._handlers[record.topic](record, unit)

    def fire(self, key: bytes, unit: Unit[PersonState]) -> None:
        """Decide the messages that are due up to and at the unit's stream time."""
        state = unit.get(key)
        if state is not None:
            self._conclude(key, self._addressee(key, state, unit), unit)

    def _event(self, record: Inbound, unit: Unit[PersonState]) -> None:
        # Hot: once for each event, and most events concern no campaign. Only their names are decoded.
        workspace = self._workspace(record.key)
        if not workspace.concerns(record.value) and WITH_DEVICE not in record.raw:
            return
        event, key = event_of(self._read_event(record.raw)), record.key
        try:
            device = device_of(event)
            selected = self._selected(key, event, workspace, unit)
        except INVALID_JSON as error:
            unit.refuse(record._replace(value=event.seen), "bad_json", f"the event's JSON is invalid: {error}")
            return
        if not selected and device is None:
            return
        person = self._advanced(key, unit)
        if device is not None:
            _register(person.state, device)
        happened = Happened(event.event_id, event.seen.time_ms, self._arrived(event, unit), event.text(), event.number)
        origin = Origin(event.received_at, event.seen.correlation_id)
        for use, campaign in selected:
            person.does(happened, use, campaign, origin)
        self._conclude(key, person, unit)

    def _workspace(self, key: bytes) -> Workspace:
        name = workspace_of(key)
        found = self._workspaces.get(name)
        if found is None:
            found = self._workspaces[name] = self._campaigns.of(split_key(key)[0])
        return found

    def _selected(self, key: bytes, event: Event, workspace: Workspace, unit: Unit[PersonState]) -> list[Any]:
        if not workspace.selectors.reads_traits:
            return list(wants(workspace, event.seen))
        state = unit.get(key) or PersonState()
        return list(wants(workspace, EventWithTraits(event.seen, Addressee("", "", state, workspace, 0).traits())))

    def _arrived(self, event: Event, unit: Unit[PersonState]) -> int:
        return event.received_at // 1000 if self.clock is Clock.WALL else max(unit.stream_time_ms, 0)

    def _profile(self, record: Inbound, unit: Unit[PersonState]) -> None:
        snapshot: Snapshot = record.value
        if snapshot.change not in _TRAIT_CHANGES:
            unit.refuse(record, "not_yet", f"profile changes of the kind {snapshot.change} are not implemented")
            return
        person = self._advanced(record.key, unit)
        person.replace_traits(snapshot.traits)
        self._conclude(record.key, person, unit)

    def _change(self, record: Inbound, unit: Unit[PersonState]) -> None:
        changed: Changed = record.value
        person = self._advanced(record.key, unit)
        person.changes(changed.change, changed.origin)
        self._conclude(record.key, person, unit)

    def _report(self, record: Inbound, unit: Unit[PersonState]) -> None:
        reported: Reported | None = record.value
        if reported is None or unit.get(record.key) is None:
            return
        person = self._advanced(record.key, unit)
        at = outcome_instant(reported.event_time, self.clock, unit.stream_time_ms)
        person.reports(Outcome(reported.delivery_id, reported.outcome, reported.reason, at, reported.soft_bounce))
        self._conclude(record.key, person, unit)

    def _consent(self, record: Inbound, unit: Unit[PersonState]) -> None:
        person = self._advanced(record.key, unit)
        person.state.consents(record.value)
        self._conclude(record.key, person, unit)

    def _listed(self, record: Inbound, unit: Unit[PersonState]) -> None:
        listed: Listed = record.value
        person = self._advanced(record.key, unit)
        person.listed(listed.campaign, listed.origin)
        self._conclude(record.key, person, unit)

    def _advanced(self, key: bytes, unit: Unit[PersonState]) -> Addressee:
        """Return the person with everything decided that was due before the present record.

        The caller concludes: what was decided here is stored and emitted there, whether or not the record changes anything.
        """
        person = self._addressee(key, unit.get(key) or PersonState(), unit)
        person.advance()
        return person

    def _addressee(self, key: bytes, state: PersonState, unit: Unit[PersonState]) -> Addressee:
        workspace, user_id = split_key(key)
        suppression_of = self._sources.suppression_of
        return Addressee(
            workspace,
            user_id,
            state,
            self._workspace(key),
            unit.stream_time_ms,
            lambda channel, digest: suppression_of(workspace, channel, digest),
            UNKNOWN_MS if self.clock is Clock.WALL else None,
        )

    def _conclude(self, key: bytes, person: Addressee, unit: Unit[PersonState]) -> None:
        person.advance()
        unit.put(key, person.state, person.due_ms())
        if person.effects:
            self._emitter.emit(key, person, self._now_micros(), unit)


def describe(messenger: Messenger) -> Service[PersonState]:
    """Return the service with its inputs and outputs. Its stream time is the segmenter's clock."""
    return Service(
        stage=STAGE,
        inputs=(BEHAVIOUR, PROFILE, MEMBERSHIP_STATE, DELIVERY, CONSENT, BROADCASTS),
        processor=messenger,
        hold_ms=_HOLD_MS,
        clock=messenger.clock,
        time_topic=SEGMENT_CLOCK,
        bulk_topics=(BROADCASTS,),
        ordered=(BEHAVIOUR, PROFILE),
    )


def _register(state: PersonState, device: Device) -> None:
    change = state.registers if device.present else state.unregisters
    change(device.channel, device.address)


def _event_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    """Decode the name of an event alone; `process` reads the others of the few that concern a campaign."""
    read = FieldReader(codec, ("received_at", "name", "event_time", "order", "previous_order"))

    def decode(value: bytes) -> Decoded:
        received_at, name, event_time, order, previous = read(value)
        return _new(Decoded, (name, order or received_at, event_time, None, previous if order else None))

    return decode


def _profile_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    read = FieldReader(codec, _PROFILE_FIELDS)

    def decode(value: bytes) -> Decoded:
        received_at, event_time, *snapshot, order, previous = read(value)
        return Decoded(Snapshot(*snapshot), order or received_at, event_time, None, previous if order else None)

    return decode


def _change_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    read = FieldReader(codec, _CHANGE_FIELDS)

    def decode(value: bytes) -> Decoded:
        received_at, workspace, user_id, segment, status, sequence, effective_at, cause, correlation_id = read(value)
        change = MembershipChange(segment, status == "ENTERED", effective_at, cause["kind"])
        changed = Changed(change, Origin(received_at, correlation_id, sequence))
        return Decoded(changed, received_at, None, record_key(workspace, user_id))

    return decode


def _report_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    read = FieldReader(codec, _REPORT_FIELDS)

    def decode(value: bytes) -> Decoded:
        received_at, event_time, delivery_id, outcome, detail, campaign, soft_bounce = read(value)
        # The step of a program would be the first of its kind, and hide that of the person.
        is_counted = campaign is not None and detail != MACHINE
        reported = Reported(delivery_id, outcome, detail, event_time, soft_bounce) if is_counted else None
        return Decoded(reported, reported_at(received_at, event_time), None)

    return decode


def _consent_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    read = FieldReader(codec, _CONSENT_FIELDS)

    def decode(value: bytes) -> Decoded:
        received_at, workspace, user_id, *change = read(value)
        return Decoded(ConsentChange(*change), received_at, None, record_key(workspace, user_id))

    return decode


def _listed_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    read = FieldReader(codec, ("received_at", "workspace", "user_id", "campaign", "correlation_id"))

    def decode(value: bytes) -> Decoded:
        received_at, workspace, user_id, campaign, correlation_id = read(value)
        return Decoded(Listed(campaign, Origin(received_at, correlation_id)), received_at, None, record_key(workspace, user_id))

    return decode


def _clock_decoder(codec: Codec) -> Callable[[bytes], Decoded]:
    read = FieldReader(codec, ("received_at", "instant"))

    def decode(value: bytes) -> Decoded:
        received_at, instant = read(value)
        return Decoded(None, received_at, instant)

    return decode
