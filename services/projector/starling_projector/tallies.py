"""Pure core: counts of entries and exits that come out the same however often a record is read."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from starling_common.read_models import DAY_MS


class Counted(NamedTuple):
    """What is counted: one segment in one source partition; `day` since 1970-01-01, or None for all time."""

    workspace: str
    segment_key: str
    source_partition: int
    day: int | None


class Tally(NamedTuple):
    """Entries and exits of every record up to and with `counted_offset`."""

    entered: int = 0
    exited: int = 0
    counted_offset: int = -1


class Change(NamedTuple):
    """One membership change, as far as counting goes."""

    workspace: str
    segment_key: str
    source_partition: int
    offset: int
    entered: bool
    effective_at_ms: int


def keys_of(change: Change) -> tuple[Counted, Counted]:
    """What a change counts for: all time, and its day."""
    everything = Counted(change.workspace, change.segment_key, change.source_partition, None)
    return everything, everything._replace(day=change.effective_at_ms // DAY_MS)


def count(tallies: Mapping[Counted, Tally], changes: Iterable[Change]) -> dict[Counted, Tally]:
    """The tallies that these changes (in order of offset a partition) alter. `tallies` holds every key of `keys_of`.

    A change at or before a tally's offset is in it already.
    """
    altered: dict[Counted, Tally] = {}
    for change in changes:
        for key in keys_of(change):
            tally = altered.get(key) or tallies[key]
            if change.offset > tally.counted_offset:
                altered[key] = Tally(tally.entered + change.entered, tally.exited + (not change.entered), change.offset)
    return altered
