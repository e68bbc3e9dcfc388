"""Pure core: the committed states of one task that the tier behind it does not have yet."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from starling_stream.model.backing_store import StateWrite, slot_of
from starling_stream.model.ports import Changed
from starling_stream.model.rows import NEVER, row_due

_ENTRY_BYTES: Final = 200
"""What an entry takes in memory besides its key and its row."""


_TAIL_BYTES: Final = 64 * 1024 * 1024
"""Rows kept for the tier while a tail is replayed; when there are more, the tier is filled from the store instead."""


class Lacking:
    """Collects the rows that the tier lacks while the tail is replayed; gives up when they are too many to be kept."""

    def __init__(self, after: int | None) -> None:
        """`after`: what lies there and later is lacking; None when more than the tail is."""
        self.rows: dict[bytes, bytes] = {}
        self.whole = after is not None
        self._after = after or 0
        self._size_bytes = 0

    def add(self, key: bytes, row: bytes, offset: int) -> None:
        """One row of the changelog, in the order of offsets."""
        if not self.whole or offset < self._after:
            return
        self.rows[key] = row
        self._size_bytes += len(row)
        if self._size_bytes > _TAIL_BYTES:
            self.rows, self.whole = {}, False


class Taken(NamedTuple):
    """What one flush writes: when all of it is there, the floor may move to `position`. `size_bytes`: of its rows."""

    rows: Mapping[bytes, tuple[int, bytes, bytes]]
    size_bytes: int
    position: int
    meta: bytes


class Unflushed:
    """Latest row of each changed key. Not for use by several threads at once.

    It keeps up with the commits or, once `lose` was called, with their positions alone.
    """

    def __init__(self, position: int, meta: bytes) -> None:
        """`position`: the changelog offset before which everything is committed; `meta`: the task's own row there."""
        self.position = position
        self.meta = meta
        self.size_bytes = 0
        self.lost = False
        """Changes were let go: the tier has to be filled from the store."""
        self._rows: dict[bytes, tuple[int, bytes, bytes]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, changes: Mapping[bytes, Changed], position: int, meta: bytes) -> int:
        """Take over one commit; returns by how many bytes this grew."""
        self.position, self.meta = position, meta
        if self.lost:
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
        """All there is; from now on the next flush is collected."""
        taken = Taken(self._rows, self.size_bytes, self.position, self.meta)
        self._rows, self.size_bytes = {}, 0
        return taken

    def give_back(self, taken: Taken) -> None:
        """The flush failed, wholly or in part: what was not overtaken meanwhile is to be written again."""
        if self.lost:
            return
        rows = self._rows
        for key, entry in taken.rows.items():
            newer = rows.get(key)
            if newer is None:
                rows[key] = entry
                self.size_bytes += len(key) + len(entry[1]) + _ENTRY_BYTES
            else:
                rows[key] = (newer[0], newer[1], entry[2])

    def lose(self) -> None:
        """Let go of all changes, and of those to come until `follow`."""
        self._rows, self.size_bytes, self.lost = {}, 0, True

    def follow(self) -> None:
        """Keep changes again; whoever calls this fills the tier with everything as of the present position."""
        self.lost = False


def writes_of(taken: Taken) -> Iterable[StateWrite]:
    """One write a key."""
    for key, (at, row, due_before) in taken.rows.items():
        yield StateWrite(key, row, at, slot_of(due_before), slot_of(row_due(row)))


def filling(rows: Iterable[tuple[bytes, bytes]], at: int) -> Iterable[StateWrite]:
    """Rows of the store as they are written into a tier that lacks them; `at`: the position before the first of them was read.

    A row may be newer than that. Then its own commit is still to be flushed, with a greater offset.
    """
    return (StateWrite(key, row, at, None, slot_of(row_due(row))) for key, row in rows)
