"""Pure core: what a task is restored from: its own disk, the tier behind it, or the changelog alone."""

from enum import StrEnum
from typing import NamedTuple

from starling_stream.model.backing_store import Standing


class Base(StrEnum):
    """What is there before the changelog's tail is replayed."""

    DISK = "disk"
    TIER = "tier"
    LOG = "log"


class OnDisk(NamedTuple):
    """What the local store says of itself. `cold`: some of its users are still in the tier alone.

    `incarnation` is that of the tier whose users it holds, None when the tier was never reached.
    """

    position: int
    incarnation: int | None
    cold: bool


class Span(NamedTuple):
    """First offset of a changelog's partition and the end of it."""

    start: int
    end: int

    def holds(self, position: int) -> bool:
        """Whether the log can bring a state as of that position up to date: it lies neither before its start nor beyond its end."""
        return self.start <= position <= self.end


class Choice(NamedTuple):
    """`replay_from`: the changelog is read from here. `track_from`: what lies after it is not in the tier yet (None: the tier
    lacks more than the changelog's tail, and has to be filled from the store). `begin`: the incarnation is new."""

    base: Base
    replay_from: int
    track_from: int | None
    incarnation: int | None
    begin: bool = False


def choose_base(disk: OnDisk | None, standing: Standing | None, span: Span, bound: int) -> Choice:
    """The quickest base that can be trusted.

    `standing`: None when the tier does not answer, or there is none. `bound`: that many records are replayed rather than
    users left cold.
    """
    if disk is not None and not span.holds(disk.position):
        disk = None
    if standing is None:
        if disk is not None and not disk.cold:
            return Choice(Base.DISK, disk.position, None, disk.incarnation)
        return Choice(Base.LOG, span.start, span.start, None)
    disk, floor, incarnation = _trusted(disk, standing, span)
    base = _quickest(disk, floor, span, bound)
    begin = incarnation != standing.incarnation
    if base is Base.TIER and floor is not None:
        return Choice(base, floor, floor, incarnation, begin)
    if base is Base.LOG or disk is None:
        return Choice(base, span.start, span.start if floor is None else floor, incarnation, begin)
    # What the tier lacks has to be read again even if the disk has it; unless that is so much that it is better filled from there.
    if floor is None or disk.position - floor > bound:
        return Choice(base, disk.position, None, incarnation, begin)
    return Choice(base, min(disk.position, floor), floor, incarnation, begin)


def _quickest(disk: OnDisk | None, floor: int | None, span: Span, bound: int) -> Base:
    if disk is not None and (floor is None or floor - disk.position <= bound):
        return Base.DISK
    if floor is None or span.end - span.start <= bound:
        return Base.LOG
    return Base.TIER


def _trusted(disk: OnDisk | None, standing: Standing, span: Span) -> tuple[OnDisk | None, int | None, int]:
    """Disk and floor as far as they can be trusted, and the incarnation to go on with."""
    floor, incarnation = standing.floor, standing.incarnation
    if floor is not None and not span.holds(floor):
        # The log lost its end (the disk may hold what never happened), or its start (the tier misses what was in between).
        disk = None if floor > span.end else disk
        floor, incarnation = None, incarnation + 1
    elif disk is not None and disk.incarnation is not None and disk.incarnation > incarnation:
        # The tier forgot more than the disk: it lost its tables. It begins anew, beyond everything it may still hold.
        floor, incarnation = None, disk.incarnation + 1
    elif disk is not None and disk.incarnation is not None and disk.incarnation < incarnation:
        disk = None
    if disk is not None and disk.cold and floor is None:
        disk = None
    return disk, floor, incarnation
