"""Core: the job's offsets, as committed to its consumer group.

The metadata of each offset is the offset up to which records were read. While no trait is defined, the job commits offsets
without reading the records. When it reads them later, it must write one dead letter for each unreadable record.
"""

from collections.abc import Mapping, Sequence

from starling_spark.kafka.groups import Ends, GroupOffsets

Position = tuple[str, int]
"""(topic, partition)."""


class GroupPositions:
    """The committed offsets, and the offsets up to which records were read."""

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._read: dict[Position, int] = {}

    def load(self, topics: Sequence[str]) -> None:
        """Load the committed metadata. Raises: KafkaException."""
        self._read.update({partition: int(note) for partition, note in self._group.load(topics).items() if note.isdecimal()})

    def read_up_to(self) -> Mapping[Position, int]:
        """Return the offsets up to which records were read and unreadable ones dead-lettered."""
        return dict(self._read)

    def ends(self, topics: Sequence[str]) -> Ends:
        """Return the ends of all partitions with records. Raises: KafkaException."""
        return {partition: end for partition, end in self._group.ends(topics).items() if end}

    def commit(self, offsets: Ends, *, read: bool) -> None:
        """Commit offsets to the group; returns after the broker has acknowledged. `read`: not skipped. Raises: KafkaException."""
        if read:
            self._read.update({one: max(offset, self._read.get(one, 0)) for one, offset in offsets.items()})
        notes = {partition: str(offset) for partition, offset in self._read.items()}
        self._group.commit(offsets, notes)
