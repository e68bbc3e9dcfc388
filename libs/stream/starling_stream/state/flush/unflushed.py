"""Pure core: the committed states of one task that are not flushed."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from starling_stream.model.backing_store import StateWrite, slot_of
from starling_stream.model.ports import Changed
from starling_stream.model.rows import NEVER, row_due

_ENTRY_BYTES: Final = 200
"""Memory of an entry besides its key and its row."""


_TAIL_BYTES: Final = 64 * 1024 * 1024
"""Limit of the rows kept during a replay; above it the backing store is filled from the local store instead."""


class TailCollector:
    """Collects the rows that the backing store lacks while the tail is replayed; stops when they exceed the limit."""

    def __init__(self, after: int | None) -> None:
        """`after`: the offset from which rows are unflushed; None when the backing store lacks more than the tail."""
        self.rows: dict[bytes, bytes] = {}
        self.whole = after is not None
        self._after = after or 0
        self._size_bytes = 0

    def add(self, key: bytes, row: bytes, offset: int) -> None:
        """Add one row of the changelog, in the order of offsets."""
        if not self.whole or offset < self._after:
            return
        self.rows[key] = row
        self._size_bytes += len(row)
        if self._size_bytes > _TAIL_BYTES:
            self.rows, self.whole = {}, False


class Taken(NamedTuple):
    """The changes of one flush: once they are written, the flushed offset may advance to `position`. `size_bytes`: of its rows."""

    rows: Mapping[bytes, tuple[int, bytes, bytes]]
    size_bytes: int
    position: int
    meta: bytes


class Unflushed:
    """The latest row of each changed key. Not for use by several threads at once.

    After `drop` it tracks only the position of the commits.
    """

    def __init__(self, position: int, meta: bytes) -> None:
        """`position`: the changelog offset before which everything is committed; `meta`: the task's own row there."""
        self.position = position
        self.meta = meta
        self.size_bytes = 0
        self.dropped = False
        """Whether changes were dropped: the backing store must be filled from the local store."""
        self._rows: dict[bytes, tuple[int, bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, changes: Mapping[bytes, Changed], position: int, meta: bytes) -> int:
        """Add one commit; return by how many bytes this grew."""
        self.position, self.meta = position, meta
        if self.dropped:
            return 0
        # Hot: once for each changed key, in the commit thread.
        rows, grown = self._rows, 0
        for key, (before, after) in changes.items():
            known = rows.get(key)
            if known is None:
                rows[key] = (position, after, NEVER if before is None else before[8:16])
                grown += len(key) + len(after) + _ENTRY_BYTES
            else:
                rows[key] = (position, after, known[2])
                grown += len(after) - len(known[1])
        self.size_bytes += grown
        return grown

    def take(self) -> Taken:
        """Return all changes and start to collect those of the next flush."""
        taken = Taken(self._rows, self.size_bytes, self.position, self.meta)
        self._rows, self.size_bytes = {}, 0
        return taken

    def put_back(self, taken: Taken) -> None:
        """Add the changes of a failed flush again, except keys that were changed meanwhile."""
        if self.dropped:
            return
        rows = self._rows
        for key, entry in taken.rows.items():
            newer = rows.get(key)
            if newer is None:
                rows[key] = entry
                self.size_bytes += len(key) + len(entry[1]) + _ENTRY_BYTES
            else:
                rows[key] = (newer[0], newer[1], entry[2])

    def drop(self) -> None:
        """Drop all changes, and those of later commits until `resume`."""
        self._rows, self.size_bytes, self.dropped = {}, 0, True

    def resume(self) -> None:
        """Keep changes again. The caller fills the backing store with all rows as of the present position."""
        self.dropped = False


def writes_of(taken: Taken) -> Iterable[StateWrite]:
    """Return one write a key."""
    for key, (at, row, due_before) in taken.rows.items():
        yield StateWrite(key, row, at, slot_of(due_before), slot_of(row_due(row)))


def filling(rows: Iterable[tuple[bytes, bytes]], at: int) -> Iterable[StateWrite]:
    """Return the writes that fill the backing store with rows of the local store; `at`: the position before they were read.

    A row may be newer than that. Its own commit is then unflushed, with a greater offset.
    """
    return (StateWrite(key, row, at, None, slot_of(row_due(row))) for key, row in rows)
