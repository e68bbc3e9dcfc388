"""Pure core: idempotent counts of entries and exits."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from starling_common.cassandra.read_models import DAY_MS


class TallyKey(NamedTuple):
    """One counter: a segment in one source partition. Units: `day` counts days since 1970-01-01; None: all time."""

    workspace: str
    segment_key: str
    source_partition: int
    day: int | None


class Tally(NamedTuple):
    """Entries and exits of all records up to and including `counted_offset`."""

    entered: int = 0
    exited: int = 0
    counted_offset: int = -1


class Change(NamedTuple):
    """The fields of a membership change that counting needs. `offset` is an ordinal over the incarnations of the topic."""

    workspace: str
    segment_key: str
    source_partition: int
    offset: int
    entered: bool
    effective_at_ms: int


Count: TypeAlias = Callable[[Mapping[TallyKey, Tally], Iterable[Change]], Mapping[TallyKey, Tally]]
"""Tallies and changes -> the altered tallies, as `count`."""


def keys_of(change: Change) -> tuple[TallyKey, TallyKey]:
    """Return the counters of a change: all time, and its day."""
    workspace, segment, partition = change.workspace, change.segment_key, change.source_partition
    day = change.effective_at_ms // DAY_MS
    return TallyKey(workspace, segment, partition, None), TallyKey(workspace, segment, partition, day)


def count(tallies: Mapping[TallyKey, Tally], changes: Iterable[Change]) -> dict[TallyKey, Tally]:
    """Return the altered tallies. `tallies` has every key of `keys_of`; `changes` are in order of offset within a partition.

    A change at or before the offset of a tally is already counted.
    """
    altered: dict[TallyKey, Tally] = {}
    for change in changes:
        for key in keys_of(change):
            tally = altered.get(key) or tallies[key]
            if change.offset > tally.counted_offset:
                altered[key] = Tally(tally.entered + change.entered, tally.exited + (not change.entered), change.offset)
    return altered
