"""What the core needs from the world, in its own words. Every method may raise the `…Unavailable` of its store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from starling_api.definitions.definition import Change, Definition

NowMicros: TypeAlias = Callable[[], int]
Pause: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Claim:
    """The newest change of a key, and whether it is known to be published."""

    change: Change
    published: bool


class Claims(Protocol):
    """The command side's memory. Of two who claim after the same change, one is told False."""

    def newest(self, workspace: str, kind: str, key: str) -> Claim | None:
        """None while nobody ever used the key."""

    def claim(self, change: Change, after: Change | None) -> bool:
        """Make this the newest change, if `after` (None: nothing) still is."""

    def withdraw(self, change: Change, before: Change | None) -> None:
        """Take a claim back, if it still is the newest and unpublished: `before` (None: nothing) is the newest again."""

    def mark_published(self, change: Change) -> None:
        """The broker has it."""

    def unpublished(self) -> Sequence[Change]:
        """What was claimed and is not known to be published."""


Publish: TypeAlias = Callable[[Change, str | None], None]
"""Writes a change to its kind's topic, with the caller's trace context; returns once the broker has it."""


class InForce(NamedTuple):
    """One definition of one workspace, in short."""

    workspace: str
    key: str
    version: int
    status: str


class DefinitionReader(Protocol):
    """The read model of definitions."""

    def definition(self, workspace: str, kind: str, key: str) -> Definition | None:
        """The newest state that the read model shows."""

    def definitions(self, workspace: str, kind: str, after: str = "", most: int | None = None) -> Sequence[Definition]:
        """Archived ones too, by key."""

    def everywhere(self, kind: str) -> Sequence[InForce]:
        """What every workspace has of a kind, without the documents; archived ones too."""


class Stored(NamedTuple):
    """An answer to a write. `body` is JSON text; `status` 0: the request is still at work."""

    status: int
    body: str
    etag: str | None


class Answers(Protocol):
    """Answers kept by idempotency key."""

    def reserve(self, workspace: str, idempotency_key: str, fingerprint: str) -> tuple[str, Stored] | None:
        """None: it is ours to answer. Else the fingerprint and the answer of the first request with that key."""

    def keep(self, workspace: str, idempotency_key: str, fingerprint: str, answer: Stored) -> None:
        """The answer, for a day."""

    def release(self, workspace: str, idempotency_key: str) -> None:
        """It came to nothing: the next request with that key is the first."""


class MemberRow(NamedTuple):
    """One member. `bucket` and `user_id` are the place in the order of members."""

    bucket: int
    user_id: str
    entered_at_ms: int
    sequence: int


class Membership(NamedTuple):
    """One segment that a user is in."""

    segment_key: str
    segment_version: int
    entered_at_ms: int
    sequence: int


class PastMembership(NamedTuple):
    """One segment that a user is or was in, by the last change. `status`: ENTERED or EXITED."""

    segment_key: str
    segment_version: int
    status: str
    effective_at_ms: int
    sequence: int


class Day(NamedTuple):
    """Entries and exits on one day, in days since 1970-01-01 (UTC)."""

    day: int
    entered: int
    exited: int


class Profile(NamedTuple):
    """What is known about one user."""

    user_id: str
    anonymous_ids: Sequence[str]
    traits: Mapping[str, Any]
    group_id: str | None
    updated_at_ms: int


class Reported(NamedTuple):
    """How far one partition of the segmenter is, as far as the read models show it."""

    stream_time_ms: int
    definitions: Mapping[str, int]


class Version(NamedTuple):
    """One change in the history of a definition."""

    version: int
    action: str
    actor: str
    recorded_at_micros: int
    document: Mapping[str, Any]


class EventRow(NamedTuple):
    """One thing that a user did, or that became of a message to them. `details`: properties and context."""

    event_time_ms: int
    event_id: str
    kind: str
    name: str
    message_id: str | None
    details: Mapping[str, Any]
    received_at_micros: int
    correlation_id: str


class AudienceReader(Protocol):
    """The read models of members, users and progress."""

    def progress(self) -> Mapping[int, Reported]:
        """By partition."""

    def versions(self, workspace: str, kind: str, key: str, after: tuple[int, int], most: int) -> Sequence[Version]:
        """The oldest first; `after`: version and time of recording."""

    def members(self, workspace: str, segment_key: str, after: tuple[int, str], most: int) -> Sequence[MemberRow]:
        """By bucket and user id."""

    def counts(self, workspace: str, segment_key: str) -> tuple[int, int]:
        """Entries and exits, of all time."""

    def sizes(self, workspace: str, keys: Sequence[str]) -> Sequence[int]:
        """The number of members of each segment."""

    def days(self, workspace: str, segment_key: str) -> Sequence[Day]:
        """Days on which somebody entered or left, in order."""

    def memberships(self, workspace: str, users: Sequence[str]) -> Sequence[Sequence[Membership]]:
        """For each user the segments they are in, by key."""

    def past_memberships(self, workspace: str, user_id: str) -> Sequence[PastMembership]:
        """The segments that a user is or was in, by key."""

    def profile(self, workspace: str, user_id: str) -> Profile | None:
        """None for somebody never heard of."""

    def events(self, workspace: str, user_id: str, before: tuple[int, str], most: int) -> Sequence[EventRow]:
        """The newest first; `before`: time and event id."""


class Slice(NamedTuple):
    """A share of all users that depends on nothing but a hash of their keys: as good as drawn by lot."""

    partition: int
    bucket: int


class Standing(NamedTuple):
    """How far the states of one partition are. `plan`: name of the segments in force there (`plan_name`).

    `whole`: everything committed is seen; else what was committed after `stream_time_ms` may be missing.
    """

    stream_time_ms: int
    plan: bytes
    whole: bool


class Snapshot(Protocol):
    """The states of users at one moment, as the segmenter encoded them."""

    @property
    def partitions(self) -> Mapping[int, Standing]:
        """Of those looked at."""

    def slices(self) -> list[Slice]:
        """All that there are."""

    def users(self, slices: Sequence[Slice], workspace: str) -> list[list[tuple[str, bytes]]]:
        """For each slice (user id, state) of the workspace's users in it."""

    def some(self, workspace: str, users: Sequence[str]) -> Mapping[str, tuple[int, bytes]]:
        """Partition and state of those who are known."""


class StateReader(Protocol):
    """The states that the segmenter keeps."""

    def everybody(self) -> Snapshot | None:
        """None: no segmenter has ever kept a state."""

    def partition_of(self, workspace: str, user_id: str) -> Snapshot | None:
        """Of the partition that a user is in, and of no other."""


class PastEvent(NamedTuple):
    """An event as a segment sees it; without `properties` and `context` when nobody asked for them.

    `is_outcome`: it is what became of a message, reported at `received_at_micros`.
    """

    name: str
    time_ms: int
    properties: Mapping[str, Any]
    context: Mapping[str, Any]
    received_at_micros: int
    is_outcome: bool = False


class UserPast(NamedTuple):
    """What a user did, in the order in which it came. `cut`: there is more, and older, than was read."""

    events: Sequence[PastEvent]
    cut: bool


class PastReader(Protocol):
    """The read model of what users did."""

    def pasts(self, workspace: str, users: Sequence[str], since_ms: int, *, inside: bool) -> Sequence[UserPast]:
        """For each user what happened after `since_ms`; `inside`: with properties and context."""
