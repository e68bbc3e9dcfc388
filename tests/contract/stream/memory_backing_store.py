"""A `BackingStore` in memory: the fake. It can be unavailable, or become so after some writes."""

import time
from collections.abc import Iterator, Sequence

from starling_stream.model.backing_store import (
    BackingStoreUnavailable,
    Checkpoint,
    PartitionCopy,
    StageLayout,
    StateWrite,
    bucket_of,
)


class MemoryBackingStore:
    def __init__(self, buckets: int = 4) -> None:
        self.buckets = buckets
        self.unavailable = False
        self.writes_left: int | None = None
        self.write_seconds = 0.0
        self.due_seconds = 0.0
        self.reads = 0
        self.refused = 0
        self._rows: dict[tuple[PartitionCopy, bytes], tuple[int, bytes]] = {}
        self._dues: dict[tuple[PartitionCopy, int, bytes], tuple[int, bool]] = {}
        self._checkpoints: dict[PartitionCopy, tuple[int, Checkpoint]] = {}
        self._layout: dict[str, StageLayout] = {}

    def checkpoint(self, log: str, partition: int) -> Checkpoint | None:
        self._respond()
        own = [copy for copy in self._checkpoints if copy[:2] == (log, partition)]
        return self._checkpoints[max(own)][1] if own else None

    def begin(self, copy: PartitionCopy) -> None:
        self._respond()
        self._checkpoints.setdefault(copy, (-1, Checkpoint(copy.incarnation, None, b"", 0)))

    def write(self, copy: PartitionCopy, writes: Sequence[StateWrite]) -> None:
        time.sleep(self.write_seconds)  # sleep: the duration of a write
        for write in writes:
            self._respond()
            if self.writes_left is not None:
                self.writes_left -= 1
                if self.writes_left < 0:
                    raise BackingStoreUnavailable("unavailable after the last write")
            known = self._rows.get((copy, write.key), (-1, b""))
            self._rows[copy, write.key] = max(known, (write.at, write.row))
            if write.slot_before != write.slot:
                self._index(copy, write)

    def save_checkpoint(self, copy: PartitionCopy, checkpoint: Checkpoint) -> None:
        self._respond()
        at = checkpoint.flushed_offset or 0
        if at >= self._checkpoints.get(copy, (-1, checkpoint))[0]:
            self._checkpoints[copy] = (at, checkpoint)

    def rows(self, copy: PartitionCopy, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        self._respond()
        self.reads += 1
        return {key: self._rows[copy, key][1] for key in keys if (copy, key) in self._rows}

    def scan(self, copy: PartitionCopy, bucket: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        self._respond()
        yield [(key, row) for (where, key), (_, row) in self._rows.items() if where == copy and self._in(key, bucket)]

    def due(self, copy: PartitionCopy, bucket: int, slots: tuple[int, int]) -> Iterator[Sequence[bytes]]:
        self._respond()
        time.sleep(self.due_seconds)  # sleep: the duration of a query
        first, last = slots
        yield [
            key
            for (where, slot, key), (_, there) in self._dues.items()
            if there and where == copy and first <= slot <= last and self._in(key, bucket)
        ]

    def freeze(self, layout: StageLayout) -> StageLayout:
        self._respond()
        return self._layout.setdefault(layout.stage, layout)

    def close(self) -> None:
        pass

    def _in(self, key: bytes, bucket: int) -> bool:
        return bucket_of(key, self.buckets) == bucket

    def _index(self, copy: PartitionCopy, write: StateWrite) -> None:
        for slot, there in ((write.slot, True), (write.slot_before, False)):
            if slot is not None:
                known = self._dues.get((copy, slot, write.key), (-1, False))
                # At the same offset a deletion wins, as in Cassandra.
                if write.at > known[0] or (write.at == known[0] and not there):
                    self._dues[copy, slot, write.key] = (write.at, there)

    def _respond(self) -> None:
        if self.unavailable:
            self.refused += 1
            raise BackingStoreUnavailable("unavailable")
