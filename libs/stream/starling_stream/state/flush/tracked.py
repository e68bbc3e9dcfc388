"""Pure core: one partition in the flusher's thread, from its restore to its release."""

import threading
import time

from starling_stream.model.backing_store import Checkpoint, PartitionCopy
from starling_stream.model.meta import encode_meta
from starling_stream.model.ports import Changed, EarliestDue, FilledStore, Tail
from starling_stream.state.flush.unflushed import Unflushed


class RebuildRequested(Exception):
    """An operator created a new incarnation: the worker restarts and rebuilds the partition from the changelog."""


class TrackedPartition:
    """One partition that this worker commits for. `copy` is None until the backing store was reached."""

    def __init__(
        self, partition: int, copy: PartitionCopy | None, store: FilledStore, tail: Tail, earliest_due_ms: EarliestDue
    ) -> None:
        self.partition = partition
        self.copy = copy
        self.earliest_due_ms = earliest_due_ms
        self.flushed_offset = -1
        self.checked_at = time.monotonic()
        self.filled_to: bytes | None = None
        """The last key of the fill in progress; None outside a fill."""
        self.filled_at = 0
        self.lock = threading.Lock()
        """Held while the store is used; None replaces a released store."""
        self.store: FilledStore | None = store
        meta = encode_meta(tail.meta)
        self.unflushed = Unflushed(tail.position, meta)
        # They get the offset after all of them: greater than that of any earlier commit, less than that of any later one.
        self.unflushed.add({key: Changed(None, row) for key, row in tail.rows.items()}, tail.position, meta)
        if not tail.whole:
            self.unflushed.drop()


def incarnation_after_outage(checkpoint: Checkpoint, known: int | None, position: int) -> int:
    """Return the incarnation of a partition that was restored while the backing store was unavailable.

    Raises: RebuildRequested when its store belongs to an older one.
    """
    if known is not None and checkpoint.incarnation > known:
        raise RebuildRequested(f"the local store belongs to incarnation {known}, the backing store has {checkpoint.incarnation}")
    if known is not None and checkpoint.incarnation < known:
        return known + 1
    if checkpoint.flushed_offset is not None and checkpoint.flushed_offset > position:
        return checkpoint.incarnation + 1
    return checkpoint.incarnation
