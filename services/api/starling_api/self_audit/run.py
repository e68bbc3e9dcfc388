"""Core: one run of the self-audit: samples users partition by partition, compares them, and repeats what differs.

The stores change while they are read. A user is compared only if the state has the same memberships before and after the other
stores were read. A difference counts if it is found in each of several rounds, in the later ones after the projector has
processed every change that precedes the round.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple, Protocol, TypeAlias

from starling_api.definitions.in_force import Definitions
from starling_api.ports import AudienceReader, Snapshot
from starling_api.self_audit.comparison import Difference, Published, Recorded, compared, evaluated, recorded
from starling_common.cassandra.read_models import ARCHIVED, MEMBER_BUCKETS, SEGMENT
from starling_common.partitioning import partition_of
from starling_common.settings import Clock
from starling_common.values import record_key
from starling_segments import Evaluator, InvalidPlan, decode_state, plan_in_force

ONE_IN: Final = 10_000
"""Of so many users at least one is sampled in each run."""
_ROUNDS: Final = 3
_SLICES_AT_ONCE: Final = 8
_CHUNK: Final = 250
_SEGMENTS: Final = 20
"""Segments of a workspace for which each run looks up the rows of members."""

User: TypeAlias = tuple[str, str]
"""Workspace and user id."""


class PartitionStates(Protocol):
    """The states of the segmenter. May raise DatabaseUnavailable, BrokerUnavailable, RegistryUnavailable and SchemaMissing."""

    def partition(self, number: int) -> Snapshot | None:
        """Return a snapshot of one partition; None if no segmenter has written a state yet."""


class MembershipRows(Protocol):
    """The rows of the read models. May raise DatabaseUnavailable."""

    def memberships(self, workspace: str, users: Sequence[str]) -> Sequence[Mapping[str, Recorded]]:
        """Return for each user the present and former memberships by segment key."""

    def members(self, workspace: str, pairs: Sequence[tuple[str, str]]) -> Sequence[int | None]:
        """Return for each (user id, segment key) the sequence of the member's row; None without a row."""


class Window(NamedTuple):
    """A range of `segments.membership-state`. `end` None: the whole partition up to the end at the time of each read."""

    partition: int
    start: int
    end: int | None

    @property
    def is_whole(self) -> bool:
        """Return whether the newest record of each user and segment is in the range."""
        return self.end is None


class FeedState(Protocol):
    """The topic `segments.membership-state`. May raise BrokerUnavailable, RegistryUnavailable and SchemaMissing."""

    def window(self, partition: int) -> Window:
        """Return the whole partition, or a random range of a long one."""

    def read(self, window: Window) -> Mapping[User, Mapping[str, Recorded]]:
        """Return the newest record of each user and segment in the range."""


class Projected(Protocol):
    """The position of the projector. May raise BrokerUnavailable."""

    def awaits(self, partition: int) -> bool:
        """Wait until the read models have every present membership change; return False if that takes too long."""


@dataclass(frozen=True)
class Stores:
    """What is compared. `audience` is a source of members for the sample."""

    definitions: Definitions
    audience: AudienceReader
    states: PartitionStates
    rows: MembershipRows
    feed: FeedState
    projected: Projected


class Finding(NamedTuple):
    """One confirmed difference. `user`: a digest, so that logs have no id of a person."""

    user: str
    workspace: str
    difference: Difference


@dataclass
class Report:
    """The result of a run. `agreed`: users without a difference; `skipped`: users that could not be compared at one instant."""

    agreed: int = 0
    skipped: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class _Turn:
    """What is compared in one partition. `keys`: the segments whose rows of members are looked up for each user, by workspace."""

    partition: int
    window: Window
    keys: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class SelfAudit:
    """The run. `users`: minimum of the sample, if there are as many; `wait`: sleeps for seconds, and returns whether to stop."""

    stores: Stores
    partitions: int
    clock: Clock
    users: int
    wait: Callable[[float], bool]
    pause_seconds: float = 5.0
    rng: random.Random = field(default_factory=random.SystemRandom)
    _evaluators: dict[str, tuple[bytes, Evaluator | None]] = field(default_factory=dict, repr=False, compare=False)

    def run(self) -> Report:
        """Compare sampled users of each partition. Raises: the `…Unavailable` errors of the stores, SchemaMissing."""
        report, numbers = Report(), list(range(self.partitions))
        keys = self._sampled_segments()
        listed = self._listed(keys)
        self.rng.shuffle(numbers)
        for number in numbers:
            turn = _Turn(number, self.stores.feed.window(number), keys)
            self._audit(turn, self._sampled(turn, listed.get(number, [])), report)
            if self.wait(0):
                break
        return report

    def _sampled_segments(self) -> dict[str, list[str]]:
        in_force = (one for one in self.stores.definitions.reader.everywhere(SEGMENT) if one.status != ARCHIVED)
        keys: dict[str, list[str]] = {}
        for one in in_force:
            keys.setdefault(one.workspace, []).append(one.key)
        return {workspace: self.rng.sample(sorted(own), min(_SEGMENTS, len(own))) for workspace, own in sorted(keys.items())}

    def _listed(self, keys: Mapping[str, Sequence[str]]) -> dict[int, list[User]]:
        """Return by partition members from the read models, of whom no state needs to exist."""
        most = ceil(self.users / max(1, sum(map(len, keys.values()))))
        found: dict[int, list[User]] = {}
        for workspace, own in keys.items():
            for key in own:
                is_small = most >= sum(map(abs, self.stores.audience.counts(workspace, key)))
                start = 0 if is_small else self.rng.randrange(MEMBER_BUCKETS)
                for row in self.stores.audience.members(workspace, key, (start, ""), most):
                    number = partition_of(record_key(workspace, row.user_id), self.partitions)
                    found.setdefault(number, []).append((workspace, row.user_id))
        return found

    def _sampled(self, turn: _Turn, listed: Sequence[User]) -> list[User]:
        """Return the users of a partition: of its states, of the read models and of the feed's state."""
        least = ceil(self.users / self.partitions / max(1, len(turn.keys)))
        snapshot = self.stores.states.partition(turn.partition)
        found: dict[User, None] = {}
        if snapshot is not None:
            for workspace in turn.keys:
                found |= dict.fromkeys((workspace, user) for user in self._of_states(snapshot, workspace, least))
        published = [user for user in self.stores.feed.read(turn.window) if user[0] in turn.keys]
        self.rng.shuffle(published)
        return list(found | dict.fromkeys(published[:least]) | dict.fromkeys(listed[:least]))

    def _of_states(self, snapshot: Snapshot, workspace: str, least: int) -> list[str]:
        slices, found, read = snapshot.slices(), list[str](), 0
        self.rng.shuffle(slices)
        wanted = least
        while read < len(slices) and len(found) < wanted:
            some = slices[read : read + _SLICES_AT_ONCE]
            found += [user for users in snapshot.users(some, workspace) for user, _ in users]
            read += len(some)
            wanted = max(least, ceil(len(found) / read * len(slices) / ONE_IN))
        return self.rng.sample(found, min(wanted, len(found)))

    def _audit(self, turn: _Turn, users: Sequence[User], report: Report) -> None:
        suspects: dict[User, frozenset[Difference]] = {}
        for start in range(0, len(users), _CHUNK):
            suspects |= _counted(self._round(turn, users[start : start + _CHUNK]), report)
        for _ in range(1, _ROUNDS):
            if not suspects:
                return
            if self.wait(self.pause_seconds) or not self.stores.projected.awaits(turn.partition):
                report.skipped += len(suspects)
                return
            again = self._round(turn, list(suspects))
            both = {user: None if found is None else suspects[user] & found for user, found in again.items()}
            suspects = _counted(both, report)
        report.findings += [
            Finding(digest_of(user), user[0], difference)
            for user, found in suspects.items()
            for difference in sorted(found, key=lambda one: (one.source, one.segment_key))
        ]

    def _round(self, turn: _Turn, users: Sequence[User]) -> dict[User, frozenset[Difference] | None]:
        """Compare users of one partition; None for a user who cannot be compared now."""
        stores = self.stores
        before = _States.read(stores, turn.partition, users)
        published = self._published(turn, users, before)
        after = _States.read(stores, turn.partition, users)
        if not (before.is_comparable and after.is_comparable and before.name == after.name):
            return dict.fromkeys(users)
        found: dict[User, frozenset[Difference] | None] = {}
        evaluators = {workspace: self._evaluator(workspace, after.name) for workspace in dict.fromkeys(own for own, _ in users)}
        for user in users:
            evaluator, memberships = evaluators[user[0]], after.memberships(user)
            if evaluator is None or before.memberships(user) != memberships:
                found[user] = None
                continue
            state = after.encoded.get(user)
            differing = [] if state is None else evaluated(evaluator, state, after.stream_time_ms, self.clock)
            found[user] = None if differing is None else frozenset([*differing, *compared(memberships, published[user])])
        return found

    def _evaluator(self, workspace: str, name: bytes) -> Evaluator | None:
        # Kept by the fingerprint of the segments in force: reading and compiling a thousand segments takes most of a second.
        known = self._evaluators.get(workspace)
        if known is None or known[0] != name:
            known = self._evaluators[workspace] = name, _evaluator(self.stores.definitions, workspace)
        return known[1]

    def _published(self, turn: _Turn, users: Sequence[User], states: "_States") -> dict[User, Published]:
        feed, found = self.stores.feed.read(turn.window), dict[User, Published]()
        for workspace in dict.fromkeys(workspace for workspace, _ in users):
            own = [user for user in users if user[0] == workspace]
            rows = self.stores.rows.memberships(workspace, [user_id for _, user_id in own])
            pairs = [
                (user, key)
                for user, recorded_rows in zip(own, rows, strict=True)
                for key in sorted({*states.memberships(user), *recorded_rows, *turn.keys.get(workspace, ())})
            ]
            members: dict[User, dict[str, int | None]] = {user: {} for user in own}
            sequences = self.stores.rows.members(workspace, [(user[1], key) for user, key in pairs])
            for (user, key), sequence in zip(pairs, sequences, strict=True):
                members[user][key] = sequence
            for user, recorded_rows in zip(own, rows, strict=True):
                found[user] = Published(recorded_rows, members[user], feed.get(user, {}), turn.window.is_whole)
        return found


@dataclass(frozen=True)
class _States:
    """The states of some users of a partition at one instant. `name`: fingerprint of the segments in force in the read model."""

    name: bytes
    is_comparable: bool
    stream_time_ms: int
    encoded: Mapping[User, bytes]
    _memberships: dict[User, Mapping[str, Recorded]] = field(default_factory=dict)

    @classmethod
    def read(cls, stores: Stores, partition: int, users: Sequence[User]) -> "_States":
        """Read the states. They are comparable if none is missing, and if the partition has the definitions of the read model."""
        name, snapshot = stores.definitions.name(), stores.states.partition(partition)
        if snapshot is None:
            return cls(name, is_comparable=False, stream_time_ms=0, encoded={})
        progress = snapshot.partitions[partition]
        encoded: dict[User, bytes] = {}
        for workspace in dict.fromkeys(workspace for workspace, _ in users):
            found = snapshot.some(workspace, [user_id for own, user_id in users if own == workspace])
            encoded |= {(workspace, user_id): state for user_id, (_, state) in found.items()}
        return cls(name, progress.whole and progress.plan == name, progress.stream_time_ms, encoded)

    def memberships(self, user: User) -> Mapping[str, Recorded]:
        """Return the memberships of a user; empty without a state."""
        found = self._memberships.get(user)
        if found is None:
            state = self.encoded.get(user)
            found = self._memberships[user] = {} if state is None else recorded(decode_state(state))
        return found


def digest_of(user: User) -> str:
    """Return 16 hexadecimal digits that identify a user in logs: of the SHA-256 of `workspace/user`."""
    return hashlib.sha256("/".join(user).encode()).hexdigest()[:16]


def _evaluator(definitions: Definitions, workspace: str) -> Evaluator | None:
    running = definitions.running(workspace)
    try:
        return Evaluator(plan_in_force(list(running.segments.values()), running.paused))
    except InvalidPlan:
        return None


def _counted(found: Mapping[User, frozenset[Difference] | None], report: Report) -> dict[User, frozenset[Difference]]:
    """Count the users without a difference and those that could not be compared; return the others."""
    report.skipped += sum(one is None for one in found.values())
    report.agreed += sum(one is not None and not one for one in found.values())
    return {user: one for user, one in found.items() if one}
