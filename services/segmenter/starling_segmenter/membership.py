"""Pure core: changes of truth -> the records that announce them, `SegmentMembershipChanged`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from starling_common.values import deterministic_id, split_key
from starling_segmenter.definitions import Definition
from starling_segmenter.rules import Rules
from starling_segments import Change, UserState
from starling_stream.processor import Inbound

_json = msgspec.json.Encoder()


class Cause(NamedTuple):
    """The record at hand when the changes came out; all None when there is none (a timer, a switch)."""

    record: Inbound | None = None
    message_id: str | None = None
    event_name: str | None = None
    correlation_id: str | None = None


NO_CAUSE: Final = Cause()


class Subject(NamedTuple):
    """Whose membership changed. `definitions`: of the workspace, the archived ones too."""

    key: bytes
    workspace: str
    user_id: str
    state: UserState
    definitions: Mapping[str, Definition]

    @classmethod
    def of(cls, key: bytes, state: UserState, rules: Rules) -> "Subject":
        """The user with that record key."""
        return cls(key, *split_key(key), state, rules.definitions)


class Moment(NamedTuple):
    """`received_at`: µs, as in the record that caused the changes; `decided_at`: ms. Both wall clock."""

    received_at: int
    decided_at: int


def announcements(changes: Sequence[Change], subject: Subject, cause: Cause, moment: Moment) -> Iterator[dict[str, Any]]:
    """One record a change, in order. `subject.state` is the state after all of them."""
    _, workspace, user_id, state, definitions = subject
    traits = _json.encode(state.traits).decode()
    for change, members in zip(changes, _memberships(changes, state), strict=True):
        key, kind = change.segment_key, change.cause
        ours = kind == "EVENT"
        yield {
            "event_id": deterministic_id(workspace, user_id, key, change.sequence),
            "workspace": workspace,
            "user_id": user_id,
            "anonymous_ids": state.anonymous_ids,
            "segment_key": key,
            "segment_name": definitions[key].segment.name,
            "segment_version": change.segment_version,
            "status": change.status,
            "sequence": change.sequence,
            "effective_at": change.effective_at,
            "decided_at": moment.decided_at,
            "cause": {
                "kind": kind,
                "message_id": cause.message_id if ours else None,
                "event_name": cause.event_name if ours else None,
            },
            "correlation_id": _correlation_id(change, subject, cause),
            "traits": traits,
            "memberships": members,
            "received_at": moment.received_at,
        }


def state_key(key: bytes, segment_key: str) -> bytes:
    """The key of `segments.membership-state`: the user's and the segment's."""
    return b"%b/%b" % (key, segment_key.encode())


def _correlation_id(change: Change, subject: Subject, cause: Cause) -> str:
    if change.cause == "DEFINITION":
        return subject.definitions[change.segment_key].correlation_id
    if change.cause == "EVENT" and cause.correlation_id is not None:
        return cause.correlation_id
    # Nobody asked for what time alone does: the changes of one instant share an id of their own.
    return deterministic_id("timer", subject.workspace, subject.user_id, change.effective_at)


def _memberships(changes: Sequence[Change], state: UserState) -> list[list[str]]:
    """After each change, the keys of all segments that the user is in; found backwards from the end."""
    members = {key for key, membership in state.memberships.items() if membership.member}
    after: list[list[str]] = []
    for change in reversed(changes):
        after.append(sorted(members))
        if change.status == "ENTERED":
            members.discard(change.segment_key)
        else:
            members.add(change.segment_key)
    after.reverse()
    return after
