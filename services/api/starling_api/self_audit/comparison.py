"""Pure core: compares the memberships in a user's state with their evaluation, with the read models and with the feed's state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from starling_common.settings import Clock
from starling_segments import Evaluator, UserState, decode_state

LATE_TIMER_MS: Final = 86_400_000
"""A timer that is due for longer is lost. Another one may wait behind others, and its user is not compared meanwhile."""


class Source(StrEnum):
    """What differs from the state of the user."""

    EVALUATION = "evaluation"
    """The conditions of the segment, evaluated over the state."""
    USER_MEMBERSHIPS = "user_memberships"
    SEGMENT_MEMBERS = "segment_members"
    """Two tables of the read models."""
    MEMBERSHIP_STATE = "membership_state"
    """The topic with the last change of each user and segment."""


class Recorded(NamedTuple):
    """The membership of a user in one segment. `sequence`: number of changes so far."""

    is_member: bool
    sequence: int


class Difference(NamedTuple):
    """One difference. `expected`: by the evaluation for `EVALUATION`, else by the state; None: no record of the segment."""

    source: Source
    segment_key: str
    expected: Recorded | None
    found: Recorded | None


@dataclass(frozen=True)
class Published:
    """The records of one user, by segment key.

    `members`: for each segment that was looked up the sequence of the user's row, None without a row. `feed_is_whole`: `feed`
    has the newest record of each pair; else it may have an older one or none.
    """

    memberships: Mapping[str, Recorded] = field(default_factory=dict)
    members: Mapping[str, int | None] = field(default_factory=dict)
    feed: Mapping[str, Recorded] = field(default_factory=dict)
    feed_is_whole: bool = False


def recorded(state: UserState) -> dict[str, Recorded]:
    """Return the memberships of a state, without those of segments that the user never entered."""
    return {key: Recorded(one.member, one.sequence) for key, one in state.memberships.items() if one.sequence}


def evaluated(evaluator: Evaluator, encoded: bytes, stream_time_ms: int, clock: Clock) -> list[Difference] | None:
    """Evaluate every segment again over a state and compare. None while timers of the user are due, which change memberships."""
    state = decode_state(encoded)
    now, due = max(stream_time_ms, state.clock), evaluator.next_due(state)
    if due is not None and due <= now and (clock is Clock.EVENT or due > now - LATE_TIMER_MS):
        return None
    before = recorded(state)
    evaluator.on_definition(state, now, evaluator)
    after = recorded(state)
    differing = (key for key in sorted(before.keys() | after.keys()) if _is_member(before.get(key)) != _is_member(after.get(key)))
    return [Difference(Source.EVALUATION, key, after.get(key), before.get(key)) for key in differing]


def compared(state: Mapping[str, Recorded], published: Published) -> list[Difference]:
    """Return the differences between a state and the records of its user, all as of one instant."""
    found = []
    for key in sorted(state.keys() | published.memberships.keys()):
        expected, row = state.get(key), published.memberships.get(key)
        if not _same(expected, row):
            found.append(Difference(Source.USER_MEMBERSHIPS, key, expected, row))
    for key, sequence in sorted(published.members.items()):
        expected = state.get(key)
        if sequence != (expected.sequence if expected is not None and expected.is_member else None):
            row = None if sequence is None else Recorded(is_member=True, sequence=sequence)
            found.append(Difference(Source.SEGMENT_MEMBERS, key, expected, row))
    for key in sorted(state.keys() | published.feed.keys() if published.feed_is_whole else published.feed.keys()):
        expected, record = state.get(key), published.feed.get(key)
        if not _same(expected, record) and not (_may_be_older(expected, record) and not published.feed_is_whole):
            found.append(Difference(Source.MEMBERSHIP_STATE, key, expected, record))
    return found


def _same(expected: Recorded | None, found: Recorded | None) -> bool:
    # The state has no record of an archived segment, whose members have left.
    return found == expected if expected is not None else not _is_member(found)


def _may_be_older(expected: Recorded | None, found: Recorded | None) -> bool:
    return found is not None and (expected is None or found.sequence < expected.sequence)


def _is_member(one: Recorded | None) -> bool:
    return one is not None and one.is_member
