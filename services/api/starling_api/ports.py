"""The ports of the core: stores, read models and states. Every method may raise the `…Unavailable` error of its store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from starling_api.definitions.definition import Author, Change, Definition
from starling_api.messages.bodies import RequestedConsent, RequestedSuppressions

NowMicros: TypeAlias = Callable[[], int]
Sleep: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Claim:
    """The newest change of a key. `published`: whether the broker has acknowledged it."""

    change: Change
    published: bool


class Claims(Protocol):
    """The newest change of every key. Of two concurrent claims after the same change, one returns False."""

    def newest(self, workspace: str, kind: str, key: str) -> Claim | None:
        """Return the newest claim; None for a key that was never used."""

    def claim(self, change: Change, after: Change | None) -> bool:
        """Make this the newest change if `after` (None: no change) still is the newest. Return whether it did."""

    def withdraw(self, change: Change, before: Change | None) -> None:
        """Restore `before` (None: no change) as the newest change, if `change` still is the newest and unpublished."""

    def mark_published(self, change: Change) -> None:
        """Record that the broker has acknowledged the change."""

    def unpublished(self) -> Sequence[Change]:
        """Return the claimed changes without an acknowledgement of the broker."""


Publish: TypeAlias = Callable[[Change, str | None], None]
"""Writes a change to the topic of its kind, with the caller's trace context. Returns once the broker has acknowledged it."""


class InForce(NamedTuple):
    """The key, version and status of one definition, without its document."""

    workspace: str
    key: str
    version: int
    status: str


class DefinitionReader(Protocol):
    """The read model of definitions."""

    def definition(self, workspace: str, kind: str, key: str) -> Definition | None:
        """Return the newest state in the read model; None for an unknown key."""

    def definitions(self, workspace: str, kind: str, after: str = "", most: int | None = None) -> Sequence[Definition]:
        """Return the definitions of a kind, archived ones included, sorted by key."""

    def everywhere(self, kind: str) -> Sequence[InForce]:
        """Return the definitions of a kind in all workspaces, archived ones included, without their documents."""


class Stored(NamedTuple):
    """The stored response to a write. `body` is JSON text; `status` 0: the request is still in progress."""

    status: int
    body: str
    etag: str | None


class Answers(Protocol):
    """The stored responses by idempotency key."""

    def reserve(self, workspace: str, idempotency_key: str, fingerprint: str) -> tuple[str, Stored] | None:
        """Return None if the key is new and now reserved, else fingerprint and response of the first request with that key."""

    def store(self, workspace: str, idempotency_key: str, fingerprint: str, answer: Stored) -> None:
        """Store the response for a day."""

    def release(self, workspace: str, idempotency_key: str) -> None:
        """Delete the reservation after a failure; the next request with that key is the first again."""


class MemberRow(NamedTuple):
    """One member. Members are sorted by (`bucket`, `user_id`)."""

    bucket: int
    user_id: str
    entered_at_ms: int
    sequence: int


class Membership(NamedTuple):
    """One segment of which a user is a member."""

    segment_key: str
    segment_version: int
    entered_at_ms: int
    sequence: int


class PastMembership(NamedTuple):
    """The last membership change of a user in one segment. `status`: ENTERED or EXITED."""

    segment_key: str
    segment_version: int
    status: str
    effective_at_ms: int
    sequence: int


class Day(NamedTuple):
    """Entries and exits of one day. Units: `day` counts days since 1970-01-01 (UTC)."""

    day: int
    entered: int
    exited: int


class Profile(NamedTuple):
    """The profile of one user."""

    user_id: str
    anonymous_ids: Sequence[str]
    traits: Mapping[str, Any]
    group_id: str | None
    updated_at_ms: int


class ReportedProgress(NamedTuple):
    """The progress of one segmenter partition in the read models. `definitions`: workspace/key -> version in force there."""

    stream_time_ms: int
    definitions: Mapping[str, int]


class ComputedProgress(NamedTuple):
    """How far the job of computed traits is.

    `pending_since_micros`: traits whose definitions were recorded then or later are not yet published over all history, or were not
    yet known. `records_done`, `records_total`: records of the job's inputs. `as_of_ms`: the stream time up to which values are
    published, the lowest of all partitions; None if it is unknown.
    """

    pending_since_micros: int
    records_done: int
    records_total: int
    as_of_ms: int | None = None


class Version(NamedTuple):
    """One change in the history of a definition."""

    version: int
    action: str
    actor: str
    recorded_at_micros: int
    document: Mapping[str, Any]


class EventRow(NamedTuple):
    """One event or delivery outcome of a user. `details`: properties and context."""

    event_time_ms: int
    event_id: str
    kind: str
    name: str
    message_id: str | None
    details: Mapping[str, Any]
    received_at_micros: int
    correlation_id: str


class AudienceReader(Protocol):
    """The read models of members, users and segmenter progress."""

    def progress(self) -> Mapping[int, ReportedProgress]:
        """Return the progress by partition number."""

    def versions(self, workspace: str, kind: str, key: str, after: tuple[int, int], most: int) -> Sequence[Version]:
        """Return the changes after (version, recording time), the oldest first."""

    def members(self, workspace: str, segment_key: str, after: tuple[int, str], most: int) -> Sequence[MemberRow]:
        """Return the members after (bucket, user id), in that order."""

    def counts(self, workspace: str, segment_key: str) -> tuple[int, int]:
        """Return the total entries and the total exits."""

    def sizes(self, workspace: str, keys: Sequence[str]) -> Sequence[int]:
        """Return the number of members of each segment, in the order of `keys`."""

    def days(self, workspace: str, segment_key: str) -> Sequence[Day]:
        """Return the days with at least one entry or exit, in order."""

    def memberships(self, workspace: str, users: Sequence[str]) -> Sequence[Sequence[Membership]]:
        """Return for each user the current memberships, sorted by segment key."""

    def past_memberships(self, workspace: str, user_id: str) -> Sequence[PastMembership]:
        """Return the current and the former memberships of a user, sorted by segment key."""

    def profile(self, workspace: str, user_id: str) -> Profile | None:
        """Return the profile; None for an unknown user."""

    def events(self, workspace: str, user_id: str, before: tuple[int, str], most: int) -> Sequence[EventRow]:
        """Return the events before (time, event id), the newest first."""


class Slice(NamedTuple):
    """One partition and bucket of the states. A hash of the user's key selects it, so its users are a random sample."""

    partition: int
    bucket: int


class PartitionProgress(NamedTuple):
    """The progress of the states of one partition. `plan`: fingerprint of the segments in force there (`plan_name`).

    `whole`: the snapshot has every committed change; else changes committed after `stream_time_ms` may be missing.
    """

    stream_time_ms: int
    plan: bytes
    whole: bool


class Snapshot(Protocol):
    """The states of users at one moment, in the segmenter's encoding."""

    @property
    def partitions(self) -> Mapping[int, PartitionProgress]:
        """Return the progress of the partitions in this snapshot."""

    def slices(self) -> list[Slice]:
        """Return every slice of the snapshot's partitions."""

    def users(self, slices: Sequence[Slice], workspace: str) -> list[list[tuple[str, bytes]]]:
        """Return for each slice the (user id, state) pairs of the workspace."""

    def some(self, workspace: str, users: Sequence[str]) -> Mapping[str, tuple[int, bytes]]:
        """Return user id -> (partition, state) for the users that have a state."""


class StateReader(Protocol):
    """The states of the segmenter."""

    def all_partitions(self) -> Snapshot | None:
        """Return a snapshot of every partition; None if no segmenter has written a state yet."""

    def partition_of(self, workspace: str, user_id: str) -> Snapshot | None:
        """Return a snapshot of the partition of one user; None if no segmenter has written a state yet."""


class PastEvent(NamedTuple):
    """One event as input of a segment. `properties` and `context` are empty if they were not requested.

    `is_outcome`: the event is a delivery outcome, reported at `received_at_micros`.
    """

    name: str
    time_ms: int
    properties: Mapping[str, Any]
    context: Mapping[str, Any]
    received_at_micros: int
    is_outcome: bool = False


class UserPast(NamedTuple):
    """The events of a user in order of arrival. `cut`: older events exist that were not read."""

    events: Sequence[PastEvent]
    cut: bool


class PastReader(Protocol):
    """The read model of user events."""

    def pasts(self, workspace: str, users: Sequence[str], since_ms: int, *, inside: bool) -> Sequence[UserPast]:
        """Return for each user the events after `since_ms`. `inside`: with properties and context."""


class Messenger(Protocol):
    """The messenger, as far as an activation depends on it."""

    def is_present(self) -> bool:
        """Return whether a messenger has ever run. Raises: BrokerUnavailable."""

    def await_definitions(self) -> None:
        """Return once every partition has the definitions that are written now. Raises: MessengerBehind, BrokerUnavailable."""


class MessageRecords(Protocol):
    """The topics of explicit consent and of suppressed addresses."""

    def consent(self, author: Author, user_id: str, change: RequestedConsent) -> int:
        """Publish a change of consent; return its instant, epoch ms. Raises: BrokerUnavailable."""

    def suppressions(self, author: Author, channel: str, wanted: RequestedSuppressions) -> None:
        """Publish the suppression of addresses, or its end. Raises: BrokerUnavailable."""

    def test_messages(self, author: Author, channel: str, requests: Sequence[Mapping[str, Any]]) -> None:
        """Publish the requests of test messages for a channel. Raises: BrokerUnavailable."""


TopicCheck: TypeAlias = Callable[[Mapping[str, Any]], int]
"""The document of a target of the channel `kafka` -> the number of partitions of its topic. Raises: TopicUnusable."""


def no_topic(_target: Mapping[str, Any]) -> int:
    """Return 0: nothing is checked in a process without a broker."""
    return 0
