"""Pure core: the offsets that may be committed, while records are completed in another order than they are read.

The committed offset is the lowest uncompleted one. The metadata of the commit contains the completed ones above it, which are not
processed again after a restart: as ranges, or as a bitmap if the ranges are too long.
"""

import base64
import json
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

METADATA_LIMIT = 3500
"""Maximum bytes of commit metadata. The broker accepts 4,096 (offset.metadata.max.bytes)."""

MOST_SPAN: Final = 100_000
"""Maximum offsets of a partition between the lowest uncompleted one and the last one read: about 6 MB of memory."""

EXACT_SPAN: Final = 18_000
"""The `most_span` for which the metadata never loses a completed offset: its bitmap fits even if it cannot be compressed."""

_BITMAP: Final = "z"
_BITMAP_OFFSETS: Final = 20_000
"""More than `EXACT_SPAN` by the records that are read and not offered yet: 2,500 bytes, and 3,350 characters."""

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


@dataclass
class Progress:
    """The completed offsets of one partition. `position`: the lowest uncompleted offset."""

    position: int
    done: set[int] = field(default_factory=set)
    read_to: int = 0
    """The offset after the last record read. Offsets between records belong to no record, such as the markers of transactions."""

    def __post_init__(self) -> None:
        self.read_to = max(self.read_to, self.position)

    def read(self, offset: int) -> bool:
        """Count a record as read. Return whether it is uncompleted."""
        if offset > self.read_to and self.position == self.read_to:
            self.position = offset
            self.done = {one for one in self.done if one >= offset}
        else:
            self.done.update(range(self.read_to, offset))
        self.read_to = max(self.read_to, offset + 1)
        self._advance()
        return not self.is_done(offset)

    def finish(self, offset: int) -> None:
        """Mark one offset as completed."""
        if offset >= self.position:
            self.done.add(offset)
            self._advance()

    def is_done(self, offset: int) -> bool:
        """Return whether the offset is completed."""
        return offset < self.position or offset in self.done

    def with_finished(self, offsets: Iterable[int]) -> "Progress":
        """Return the progress after these offsets are completed too."""
        after = Progress(self.position, self.done | set(offsets), self.read_to)
        after._advance()
        return after

    def metadata(self) -> str:
        """Return the completed offsets above the position, cut to the size limit. The rest may be sent again after a restart."""
        ranges: list[list[int]] = []
        for offset in sorted(self.done):
            if ranges and ranges[-1][1] == offset - self.position - 1:
                ranges[-1][1] = offset - self.position
            else:
                ranges.append([offset - self.position, offset - self.position])
        text = json.dumps(ranges, separators=(",", ":")) if ranges else ""
        return text if len(text) <= METADATA_LIMIT else self._bitmap()

    def _bitmap(self) -> str:
        bits = bytearray(_BITMAP_OFFSETS // 8)
        for offset in self.done:
            byte, bit = divmod(offset - self.position, 8)
            if byte < len(bits):
                bits[byte] |= 1 << bit
        return _BITMAP + base64.b64encode(zlib.compress(bytes(bits), 9)).decode()

    @classmethod
    def restored(cls, position: int, metadata: str) -> "Progress":
        """Return the progress of a committed position and its metadata. Invalid metadata is ignored."""
        done: set[int] = set()
        try:
            if metadata.startswith(_BITMAP):
                bits = zlib.decompress(base64.b64decode(metadata.removeprefix(_BITMAP)))
                done.update(position + at for at in range(8 * len(bits)) if bits[at // 8] >> (at % 8) & 1)
            else:
                for first, last in json.loads(metadata or "[]"):
                    done.update(range(position + first, position + last + 1))
        except (TypeError, ValueError, zlib.error):
            return cls(position)
        return cls(position, done)

    def _advance(self) -> None:
        while self.position in self.done:
            self.done.discard(self.position)
            self.position += 1


@dataclass
class _Partition:
    progress: Progress
    changed: bool = False


class Positions:
    """The progress of each assigned partition. Records complete in one thread, while another one commits or loses partitions.

    `most_span`: maximum offsets of a partition between the lowest uncompleted one and the last one offered.
    """

    def __init__(self, most_span: int = MOST_SPAN) -> None:
        self._most_span = most_span
        self._lock = threading.Lock()
        self._partitions: dict[Place, _Partition] = {}
        self.assignments = 0
        """Changes with every partition that is assigned or revoked."""

    def open(self, place: Place, progress: Progress) -> None:
        """Add an assigned partition."""
        with self._lock:
            self._partitions[place] = _Partition(progress)
            self.assignments += 1

    def close(self, place: Place) -> None:
        """Remove a revoked partition."""
        with self._lock:
            self._partitions.pop(place, None)
            self.assignments += 1

    def read(self, place: Place, offset: int) -> bool:
        """Count a record as read. Return whether it is to be processed: not completed, and of an assigned partition."""
        with self._lock:
            partition = self._partitions.get(place)
            return partition is not None and partition.progress.read(offset)

    def finish(self, place: Place, offset: int) -> None:
        """Mark a record as completed; one of a revoked partition is ignored."""
        with self._lock:
            partition = self._partitions.get(place)
            if partition is not None:
                partition.progress.finish(offset)
                partition.changed = True

    def is_full(self, place: Place) -> bool:
        """Return whether no more records may be read before the lowest uncompleted one is completed."""
        with self._lock:
            partition = self._partitions.get(place)
            return partition is not None and partition.progress.read_to - partition.progress.position >= self._most_span

    def take_changes(self) -> Iterator[tuple[Place, int, str]]:
        """Yield (place, position, metadata) of each partition that changed since the last call."""
        with self._lock:
            changed = [(place, partition) for place, partition in self._partitions.items() if partition.changed]
            found = [(place, partition.progress.position, partition.progress.metadata()) for place, partition in changed]
            for _, partition in changed:
                partition.changed = False
        yield from found

    def claim(self, offsets: Mapping[Place, Collection[int]]) -> "Claim":
        """Return what to commit if these records are completed in one transaction, with the changes since the last call.

        A record whose partition is not assigned, or which is completed, is not among them: another process has it, or had it.
        Nothing is marked as completed. After the commit, `finish` marks each record; after a failure, call `mark_changed`.
        """
        granted, commits = set[tuple[Place, int]](), list[tuple[Place, int, str]]()
        with self._lock:
            for place, partition in self._partitions.items():
                found = {offset for offset in offsets.get(place, ()) if not partition.progress.is_done(offset)}
                if found or partition.changed:
                    granted.update((place, offset) for offset in found)
                    after = partition.progress.with_finished(found)
                    commits.append((place, after.position, after.metadata()))
                    partition.changed = False
        return Claim(granted, commits)

    def mark_changed(self) -> None:
        """Let the next call of `take_changes` return every partition, after a commit that failed."""
        with self._lock:
            for partition in self._partitions.values():
                partition.changed = True


class Claim(NamedTuple):
    """The records that a transaction may complete, and the (place, position, metadata) to commit in it."""

    granted: Collection[tuple[Place, int]]
    commits: Collection[tuple[Place, int, str]]


class Origin(NamedTuple):
    """Where the record of a request was read, and the progress that it belongs to."""

    positions: Positions
    place: Place
    offset: int
