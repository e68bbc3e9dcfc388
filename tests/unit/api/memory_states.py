"""States and pasts in memory, as a segmenter and a projector would have left them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from starling_api.ports import PartitionProgress, PastEvent, Slice, UserPast


@dataclass
class MemoryStates:
    """States by user, spread over slices as the real ones are: by a hash."""

    progress: PartitionProgress = field(default_factory=lambda: PartitionProgress(0, b"", whole=True))
    users_of: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Workspace -> user -> state."""
    buckets: int = 16
    never_kept: bool = False

    def all_partitions(self) -> "MemoryStates | None":
        return None if self.never_kept else self

    def partition_of(self, _workspace: str, _user_id: str) -> "MemoryStates | None":
        return self.all_partitions()

    def partition(self, _number: int) -> "MemoryStates | None":
        return self.all_partitions()

    @property
    def partitions(self) -> Mapping[int, PartitionProgress]:
        return {0: self.progress}

    def slices(self) -> list[Slice]:
        return [Slice(0, bucket) for bucket in range(self.buckets)]

    def users(self, slices: Sequence[Slice], workspace: str) -> list[list[tuple[str, bytes]]]:
        found: dict[int, list[tuple[str, bytes]]] = {}
        for user, state in self.users_of.get(workspace, {}).items():
            found.setdefault(crc32(user.encode()) % self.buckets, []).append((user, state))
        return [found.get(place.bucket, []) for place in slices]

    def some(self, workspace: str, users: Sequence[str]) -> Mapping[str, tuple[int, bytes]]:
        held = self.users_of.get(workspace, {})
        return {user: (0, held[user]) for user in users if user in held}


@dataclass
class MemoryPasts:
    """What users did, as the read model has it."""

    events: dict[str, list[PastEvent]] = field(default_factory=dict)
    most: int = 1000
    asked: int = 0

    def pasts(self, _workspace: str, users: Sequence[str], since_ms: int, *, inside: bool) -> Sequence[UserPast]:
        self.asked += len(users)
        return [self._past(self.events.get(user, []), since_ms, inside) for user in users]

    def _past(self, events: Sequence[PastEvent], since_ms: int, inside: bool) -> UserPast:
        newest = sorted((one for one in events if one.time_ms > since_ms), key=lambda one: -one.time_ms)[: self.most]
        seen = [one if inside else one._replace(properties={}, context={}) for one in newest]
        return UserPast(sorted(seen, key=lambda one: one.received_at_micros), len(newest) == self.most)
