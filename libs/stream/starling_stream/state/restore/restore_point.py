"""Pure core: the base of a restore: the local store, the backing store, or the changelog alone."""

from enum import StrEnum
from typing import NamedTuple

from starling_stream.model.backing_store import Checkpoint


class Base(StrEnum):
    """The state before the changelog's tail is replayed."""

    DISK = "disk"
    BACKING_STORE = "backing_store"
    LOG = "log"


class OnDisk(NamedTuple):
    """The state of the local store. `is_partial`: some of its users are only in the backing store.

    `incarnation` is that of the backing store that its users belong to, None if the backing store was never reached.
    """

    position: int
    incarnation: int | None
    is_partial: bool


class Span(NamedTuple):
    """First offset and end of a changelog partition."""

    start: int
    end: int

    def holds(self, position: int) -> bool:
        """Return whether a replay can continue at that position: it lies neither before the start nor after the end."""
        return self.start <= position <= self.end


class Choice(NamedTuple):
    """The base of a restore, and where the replay starts. `begin`: the incarnation is new.

    `replay_from`: the changelog is read from here. `track_from`: records from here on are unflushed; None: more than the tail is
    unflushed, and the backing store must be filled from the local store.
    """

    base: Base
    replay_from: int
    track_from: int | None
    incarnation: int | None
    begin: bool = False


def choose_base(disk: OnDisk | None, checkpoint: Checkpoint | None, span: Span, bound: int) -> Choice:
    """Return the quickest base that can be trusted.

    `checkpoint`: None when the backing store does not respond, or there is none. `bound`: up to this many records are replayed
    instead of loading users lazily.
    """
    if disk is not None and not span.holds(disk.position):
        disk = None
    if checkpoint is None:
        if disk is not None and not disk.is_partial:
            return Choice(Base.DISK, disk.position, None, disk.incarnation)
        return Choice(Base.LOG, span.start, span.start, None)
    disk, flushed_offset, incarnation = _trusted(disk, checkpoint, span)
    base = _quickest(disk, flushed_offset, span, bound)
    begin = incarnation != checkpoint.incarnation
    if base is Base.BACKING_STORE and flushed_offset is not None:
        return Choice(base, flushed_offset, flushed_offset, incarnation, begin)
    if base is Base.LOG or disk is None:
        return Choice(base, span.start, span.start if flushed_offset is None else flushed_offset, incarnation, begin)
    # Unflushed records must be read again even if the local store has them; if there are too many, the backing store is filled from
    # the local store.
    if flushed_offset is None or disk.position - flushed_offset > bound:
        return Choice(base, disk.position, None, incarnation, begin)
    return Choice(base, min(disk.position, flushed_offset), flushed_offset, incarnation, begin)


def _quickest(disk: OnDisk | None, flushed_offset: int | None, span: Span, bound: int) -> Base:
    if disk is not None and (flushed_offset is None or flushed_offset - disk.position <= bound):
        return Base.DISK
    if flushed_offset is None or span.end - span.start <= bound:
        return Base.LOG
    return Base.BACKING_STORE


def _trusted(disk: OnDisk | None, checkpoint: Checkpoint, span: Span) -> tuple[OnDisk | None, int | None, int]:
    """Return local store and flushed offset as far as they can be trusted, and the incarnation to continue with."""
    flushed_offset, incarnation = checkpoint.flushed_offset, checkpoint.incarnation
    if flushed_offset is not None and not span.holds(flushed_offset):
        # The log lost its end (the disk may contain aborted changes), or its start (the backing store misses changes).
        disk = None if flushed_offset > span.end else disk
        flushed_offset, incarnation = None, incarnation + 1
    elif disk is not None and disk.incarnation is not None and disk.incarnation > incarnation:
        # The backing store has an older incarnation than the disk: it lost its tables. It starts again with a greater number than
        # any it may contain.
        flushed_offset, incarnation = None, disk.incarnation + 1
    elif disk is not None and disk.incarnation is not None and disk.incarnation < incarnation:
        disk = None
    if disk is not None and disk.is_partial and flushed_offset is None:
        disk = None
    return disk, flushed_offset, incarnation
