"""Pure core: the queue of retries by due time, and the offsets that may be committed.

Records are read in the order of their offsets and completed in the order of their due times. The committed offset is the lowest
uncompleted one. The metadata of the commit contains the completed ranges above it, which are not sent again after a restart.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

METADATA_LIMIT = 3500
"""Maximum bytes of commit metadata. The broker accepts 4,096 (offset.metadata.max.bytes)."""


@dataclass
class Progress:
    """The completed offsets of one partition. `position`: the lowest uncompleted offset."""

    position: int
    done: set[int] = field(default_factory=set)

    def finish(self, offset: int) -> None:
        """Mark one offset as completed."""
        self.done.add(offset)
        while self.position in self.done:
            self.done.discard(self.position)
            self.position += 1

    def is_done(self, offset: int) -> bool:
        """Return whether the offset is completed."""
        return offset < self.position or offset in self.done

    def metadata(self) -> str:
        """Return the completed ranges above the position, cut to the size limit. The rest may be sent again after a restart."""
        ranges: list[list[int]] = []
        for offset in sorted(self.done):
            if ranges and ranges[-1][1] == offset - self.position - 1:
                ranges[-1][1] = offset - self.position
            else:
                ranges.append([offset - self.position, offset - self.position])
        while ranges and len(json.dumps(ranges)) > METADATA_LIMIT:
            ranges = ranges[: len(ranges) // 2]
        return json.dumps(ranges, separators=(",", ":")) if ranges else ""

    @classmethod
    def restored(cls, position: int, metadata: str) -> "Progress":
        """Return the progress of a committed position and its metadata. Invalid metadata is ignored."""
        done: set[int] = set()
        try:
            for first, last in json.loads(metadata or "[]"):
                done.update(range(position + first, position + last + 1))
        except (TypeError, ValueError):
            return cls(position)
        return cls(position, done)


@dataclass(order=True)
class _QueuedRetry:
    due_ms: int
    partition: int
    offset: int
    request: Any = field(compare=False)


class RetryQueue:
    """The retries in memory, and the progress of each assigned partition."""

    def __init__(self) -> None:
        self._heap: list[_QueuedRetry] = []
        self._progress: dict[int, Progress] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def open(self, partition: int, progress: Progress) -> None:
        """Add an assigned partition."""
        self._progress[partition] = progress

    def close(self, partition: int) -> None:
        """Remove a revoked partition and its retries."""
        self._progress.pop(partition, None)
        self._heap = [queued for queued in self._heap if queued.partition != partition]
        heapq.heapify(self._heap)

    def add(self, partition: int, offset: int, request: Any, due_ms: int) -> None:
        """Queue a record. A completed record, or one of a revoked partition, is ignored."""
        progress = self._progress.get(partition)
        if progress is not None and not progress.is_done(offset):
            heapq.heappush(self._heap, _QueuedRetry(due_ms, partition, offset, request))

    def due(self, now_ms: int, limit: int) -> list[tuple[int, int, Any]]:
        """Remove and return at most `limit` due retries as (partition, offset, request), the earliest due first."""
        found: list[tuple[int, int, Any]] = []
        while self._heap and self._heap[0].due_ms <= now_ms and len(found) < limit:
            queued = heapq.heappop(self._heap)
            found.append((queued.partition, queued.offset, queued.request))
        return found

    def finish(self, partition: int, offset: int) -> None:
        """Mark a record as completed."""
        if partition in self._progress:
            self._progress[partition].finish(offset)

    def progress(self) -> Iterator[tuple[int, Progress]]:
        """Yield (partition, progress) of every assigned partition."""
        yield from self._progress.items()
