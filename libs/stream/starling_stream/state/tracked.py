"""Pure core: one partition as the tier's thread follows it, from its restore to its release."""

import threading
import time

from starling_stream.model.backing_store import Place, Standing
from starling_stream.model.meta import encode_meta
from starling_stream.model.ports import Changed, FilledStore, Lowest, Tail
from starling_stream.state.unflushed import Unflushed


class RebuildAsked(Exception):
    """An operator began a new incarnation: the worker starts anew, and rebuilds from the changelog."""


class Tracked:
    """One partition that this worker commits for. `place` is None until the tier was reached."""

    def __init__(self, partition: int, place: Place | None, store: FilledStore, tail: Tail, lowest: Lowest) -> None:
        self.partition = partition
        self.place = place
        self.lowest = lowest
        self.floor = -1
        self.looked_at = time.monotonic()
        self.filled_to: bytes | None = None
        """The last key that was filled in; None while nothing has to be."""
        self.filled_at = 0
        self.lock = threading.Lock()
        """Held while the store is used; a store that was let go is None."""
        self.store: FilledStore | None = store
        meta = encode_meta(tail.meta)
        self.unflushed = Unflushed(tail.position, meta)
        # With the offset after all of them: greater than that of any commit up to here, less than any that is to come.
        self.unflushed.add({key: Changed(None, row) for key, row in tail.rows.items()}, tail.position, meta)
        if not tail.whole:
            self.unflushed.lose()


def incarnation_found_late(standing: Standing, known: int | None, position: int) -> int:
    """The incarnation of a partition that was restored while the tier was away.

    Raises: RebuildAsked when its store belongs to an older one.
    """
    if known is not None and standing.incarnation > known:
        raise RebuildAsked(f"the store was built under incarnation {known}, the tier has {standing.incarnation}")
    if known is not None and standing.incarnation < known:
        return known + 1
    if standing.floor is not None and standing.floor > position:
        return standing.incarnation + 1
    return standing.incarnation
