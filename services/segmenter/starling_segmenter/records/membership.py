"""Pure core: membership changes -> records, `SegmentMembershipChanged`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from starling_common.values import deterministic_id, split_key
from starling_common.wire import Codec, record_parts
from starling_rules.definitions import Definition
from starling_rules.rules import Rules
from starling_segmenter.records.membership_encoder import MembershipEncoders
from starling_segments import Cause as Kind
from starling_segments import Change, Plan, UserState
from starling_stream.model.processor import Inbound

STAGE: Final = "segmenter"
"""In the `produced_by` header of each record, and in the names of the consumer group, the changelog and the dead-letter topic."""


class RecordParts(NamedTuple):
    """Encoders of the record's parts; the changes of one user share most parts."""

    header: bytes
    identity: Callable[..., bytes]
    user: Callable[..., bytes]
    segment: Callable[..., bytes]
    change: Callable[..., bytes]
    decided: Callable[..., bytes]
    why: Callable[..., bytes]
    traits: Callable[..., bytes]
    members: MembershipEncoders
    received: Callable[..., bytes]


def membership_parts(codec: Codec) -> RecordParts:
    """Return the encoders. Raises: ValueError if the schema differs from the fields of `membership_records`."""
    identity, user, segment, *others = record_parts(
        codec,
        ("event_id",),
        ("workspace", "user_id", "anonymous_ids"),
        ("segment_key", "segment_name", "segment_version"),
        ("status", "sequence", "effective_at"),
        ("decided_at",),
        ("cause", "correlation_id"),
        ("traits",),
        ("memberships",),
        ("received_at",),
    )
    change, decided, why, traits, _memberships, received = others
    return RecordParts(
        codec.header, identity, user, lru_cache(4096)(segment), change, decided, why, traits, MembershipEncoders(), received
    )


class Cause(NamedTuple):
    """The cause of the changes and its record; all None for a timer or a switch."""

    kind: Kind = "TIMER"
    record: Inbound | None = None
    message_id: str | None = None
    event_name: str | None = None
    correlation_id: str | None = None


TIME: Final = Cause()

REQUESTED: Final = frozenset({"EVENT", "LIST"})
"""The causes that originate in a request of a client."""


class Subject(NamedTuple):
    """The user whose membership changed. `definitions`: of the workspace, with the archived ones; `plan`: of those in force."""

    key: bytes
    workspace: str
    user_id: str
    state: UserState
    definitions: Mapping[str, Definition]
    plan: Plan

    @classmethod
    def of(cls, key: bytes, state: UserState, rules: Rules) -> "Subject":
        """Return the user of that record key."""
        return cls(key, *split_key(key), state, rules.definitions, rules.plan)


class Moment(NamedTuple):
    """`received_at`: µs, of the record that caused the changes; `decided_at`: ms. Both are wall clock."""

    received_at: int
    decided_at: int


EncodedChange: TypeAlias = tuple[Change, str, bytes]
"""One change, its correlation id and its record."""


def membership_records(
    changes: Sequence[Change], subject: Subject, cause: Cause, moment: Moment, parts: RecordParts
) -> Iterator[EncodedChange]:
    """Yield one record for each change, in order. `subject.state` is the state after all of them."""
    # Hot: a third of all events change a membership. The parts that the changes of one call share are encoded once.
    _, workspace, user_id, state, definitions, _ = subject
    user = parts.user(workspace, user_id, state.anonymous_ids)
    traits = parts.traits(state.traits_json)
    decided, received = parts.decided(moment.decided_at), parts.received(moment.received_at)
    reason: _Reason | None = None
    after_each = parts.members.of(workspace, definitions).after_each(changes, state.memberships)
    for change, members in zip(changes, after_each, strict=True):
        key = change.segment_key
        if reason is None or not reason.covers(change):
            reason = _reason(change, subject, cause)
            why = parts.why(reason.why, reason.correlation_id)
        value = (
            parts.header,
            parts.identity(deterministic_id(workspace, user_id, key, change.sequence)),
            user,
            parts.segment(key, definitions[key].segment.name, change.segment_version),
            parts.change(change.status, change.sequence, change.effective_at),
            decided,
            why,
            traits,
            members,
            received,
        )
        yield change, reason.correlation_id, b"".join(value)


def state_key(key: bytes, segment_key: str) -> bytes:
    """Return the key in `segments.membership-state`: of the user and the segment."""
    return b"%b/%b" % (key, segment_key.encode())


class _Reason(NamedTuple):
    """The `cause` field of a change and its correlation id; `change` is the first change with them."""

    change: Change
    why: dict[str, str | None]
    correlation_id: str

    def covers(self, change: Change) -> bool:
        """Return whether the reason applies to that change too. Each definition has its own correlation id."""
        first = self.change
        return change.cause == first.cause != "DEFINITION" and change.effective_at == first.effective_at


def _reason(change: Change, subject: Subject, cause: Cause) -> _Reason:
    kind = change.cause
    if kind in REQUESTED and cause.correlation_id is not None:
        why = {"kind": kind, "message_id": cause.message_id, "event_name": cause.event_name}
        return _Reason(change, why, cause.correlation_id)
    why = {"kind": kind, "message_id": None, "event_name": None}
    if kind == "DEFINITION":
        return _Reason(change, why, subject.definitions[change.segment_key].correlation_id)
    # A timer has no request: the changes of one instant share a correlation id of their own.
    return _Reason(change, why, deterministic_id("timer", subject.workspace, subject.user_id, change.effective_at))
