"""Pure core: retries that wait for their time, and which offsets of theirs may be committed.

Records come in the order of their offsets but get done in the order of their due times. What is committed is the
offset below which all are done, plus, as the commit's metadata, the ranges above it that are done too: after a restart
those are not sent again.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

METADATA_LIMIT = 3500
"""Bytes; the broker takes 4,096 (offset.metadata.max.bytes)."""


@dataclass
class Progress:
    """Which offsets of one partition are done. `position` is the lowest that is not known to be done."""

    position: int
    done: set[int] = field(default_factory=set)

    def finish(self, offset: int) -> None:
        """Mark one offset done."""
        self.done.add(offset)
        while self.position in self.done:
            self.done.discard(self.position)
            self.position += 1

    def is_done(self, offset: int) -> bool:
        """Whether that offset needs nothing any more."""
        return offset < self.position or offset in self.done

    def metadata(self) -> str:
        """The ranges done above the position, as far as they fit: what does not fit may be sent again after a restart."""
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
        """The inverse of `position` and `metadata`; metadata that is not ours counts as none."""
        done: set[int] = set()
        try:
            for first, last in json.loads(metadata or "[]"):
                done.update(range(position + first, position + last + 1))
        except (TypeError, ValueError):
            return cls(position)
        return cls(position, done)


@dataclass(order=True)
class _Waiting:
    due_ms: int
    partition: int
    offset: int
    request: Any = field(compare=False)


class WaitingRoom:
    """All retries that this process holds, and the progress of each of its partitions."""

    def __init__(self) -> None:
        self._heap: list[_Waiting] = []
        self._progress: dict[int, Progress] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def open(self, partition: int, progress: Progress) -> None:
        """A partition was assigned."""
        self._progress[partition] = progress

    def close(self, partition: int) -> None:
        """A partition went to another process: forget what waited for it here."""
        self._progress.pop(partition, None)
        self._heap = [waiting for waiting in self._heap if waiting.partition != partition]
        heapq.heapify(self._heap)

    def add(self, partition: int, offset: int, request: Any, due_ms: int) -> None:
        """A record was read. One that is done already, or of a partition that is not ours any more, is let go."""
        progress = self._progress.get(partition)
        if progress is not None and not progress.is_done(offset):
            heapq.heappush(self._heap, _Waiting(due_ms, partition, offset, request))

    def due(self, now_ms: int, limit: int) -> list[tuple[int, int, Any]]:
        """Take out at most `limit` whose time has come: (partition, offset, request), the longest due first."""
        found: list[tuple[int, int, Any]] = []
        while self._heap and self._heap[0].due_ms <= now_ms and len(found) < limit:
            waiting = heapq.heappop(self._heap)
            found.append((waiting.partition, waiting.offset, waiting.request))
        return found

    def finish(self, partition: int, offset: int) -> None:
        """A record needs nothing any more."""
        if partition in self._progress:
            self._progress[partition].finish(offset)

    def progress(self) -> Iterator[tuple[int, Progress]]:
        """Every open partition."""
        yield from self._progress.items()
