"""Pure core: changes of truth -> the records that announce them, `SegmentMembershipChanged`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from starling_common.values import deterministic_id, split_key
from starling_common.wire import Codec, record_parts
from starling_rules.definitions import Definition
from starling_rules.rules import Rules
from starling_segmenter.membership_encoder import Rolls
from starling_segments import Cause as Kind
from starling_segments import Change, Plan, UserState
from starling_stream.model.processor import Inbound

STAGE: Final = "segmenter"
"""In the `produced_by` header of each record, and in the names of the consumer group, the changelog and the dead-letter topic."""


class Parts(NamedTuple):
    """The record's bytes, run by run: one user's changes share most of them."""

    header: bytes
    identity: Callable[..., bytes]
    user: Callable[..., bytes]
    segment: Callable[..., bytes]
    change: Callable[..., bytes]
    decided: Callable[..., bytes]
    why: Callable[..., bytes]
    traits: Callable[..., bytes]
    rolls: Rolls
    received: Callable[..., bytes]


def membership_parts(codec: Codec) -> Parts:
    """Raises: ValueError if the schema is not the one that `announcements` was written for."""
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
    return Parts(codec.header, identity, user, lru_cache(4096)(segment), change, decided, why, traits, Rolls(), received)


class Cause(NamedTuple):
    """Why the changes came out, and the record at hand; all None when there is none (a timer, a switch)."""

    kind: Kind = "TIMER"
    record: Inbound | None = None
    message_id: str | None = None
    event_name: str | None = None
    correlation_id: str | None = None


TIME: Final = Cause()

ASKED: Final = frozenset({"EVENT", "LIST"})
"""The causes behind which there is somebody's request."""


class Subject(NamedTuple):
    """Whose membership changed. `definitions`: of the workspace, the archived ones too; `plan`: of those in force."""

    key: bytes
    workspace: str
    user_id: str
    state: UserState
    definitions: Mapping[str, Definition]
    plan: Plan

    @classmethod
    def of(cls, key: bytes, state: UserState, rules: Rules) -> "Subject":
        """The user with that record key."""
        return cls(key, *split_key(key), state, rules.definitions, rules.plan)


class Moment(NamedTuple):
    """`received_at`: µs, as in the record that caused the changes; `decided_at`: ms. Both wall clock."""

    received_at: int
    decided_at: int


Announcement: TypeAlias = tuple[Change, str, bytes]
"""One change, its correlation id, and the record that says so."""


def announcements(
    changes: Sequence[Change], subject: Subject, cause: Cause, moment: Moment, parts: Parts
) -> Iterator[Announcement]:
    """One record a change, in order. `subject.state` is the state after all of them."""
    # Hot: a third of all events change something. What the changes of one call share is encoded once.
    _, workspace, user_id, state, definitions, _ = subject
    user = parts.user(workspace, user_id, state.anonymous_ids)
    traits = parts.traits(state.traits_json)
    decided, received = parts.decided(moment.decided_at), parts.received(moment.received_at)
    reason: _Reason | None = None
    after_each = parts.rolls.of(workspace, definitions).after_each(changes, state.memberships)
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
    """The key of `segments.membership-state`: the user's and the segment's."""
    return b"%b/%b" % (key, segment_key.encode())


class _Reason(NamedTuple):
    """Why a change came about, and under which id; `change` is the one that it was made for."""

    change: Change
    why: dict[str, str | None]
    correlation_id: str

    def covers(self, change: Change) -> bool:
        """Whether it is that change's reason too. Definitions have a correlation id each."""
        mine = self.change
        return change.cause == mine.cause != "DEFINITION" and change.effective_at == mine.effective_at


def _reason(change: Change, subject: Subject, cause: Cause) -> _Reason:
    kind = change.cause
    if kind in ASKED and cause.correlation_id is not None:
        why = {"kind": kind, "message_id": cause.message_id, "event_name": cause.event_name}
        return _Reason(change, why, cause.correlation_id)
    why = {"kind": kind, "message_id": None, "event_name": None}
    if kind == "DEFINITION":
        return _Reason(change, why, subject.definitions[change.segment_key].correlation_id)
    # Nobody asked for what time alone does: the changes of one instant share an id of their own.
    return _Reason(change, why, deterministic_id("timer", subject.workspace, subject.user_id, change.effective_at))
