"""Pure core: which definitions each partition of the messenger has, as a fold over `messenger.progress`."""

from collections.abc import Mapping

from starling_common.kafka.topics import DELIVERY_DEFINITIONS
from starling_common.outcome import Done, Outcome, Skipped
from starling_common.wire import Record

Positions = Mapping[int, int]
"""Partition of the messenger -> the offset of `delivery.definitions` before which it has every definition."""


def fold_positions(positions: Positions, _key: bytes, record: Record | None) -> Outcome[Positions]:
    """Return the positions after one `SegmenterProgress` of the messenger."""
    if record is None:
        return Skipped("a tombstone")
    return Done({**positions, record["partition"]: record["definitions"].get(DELIVERY_DEFINITIONS, 0)})


def behind_of(positions: Positions, partitions: int, end: int) -> list[int]:
    """Return the partitions that do not have every definition before `end`."""
    return [partition for partition in range(partitions) if positions.get(partition, 0) < end]
