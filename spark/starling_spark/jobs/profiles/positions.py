"""Core: how far the job is, as its consumer group is told.

With each offset goes, as its note, the offset below which records were really read: while no trait is defined the
job passes records by unread, and must still dead-letter the broken ones when it reads them later, but each only once.
"""

from collections.abc import Mapping, Sequence

from starling_spark.kafka.groups import Ends, GroupOffsets

Position = tuple[str, int]
"""(topic, partition)."""


class GroupPositions:
    """What was passed, and what of it was read."""

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._read: dict[Position, int] = {}

    def load(self, topics: Sequence[str]) -> None:
        """Ask the broker what it was told. Raises: KafkaException."""
        self._read.update({place: int(note) for place, note in self._group.load(topics).items() if note.isdecimal()})

    def read_up_to(self) -> Mapping[Position, int]:
        """Below these offsets records were read, and bad ones dead-lettered."""
        return dict(self._read)

    def ends(self, topics: Sequence[str]) -> Ends:
        """The ends of all partitions that hold anything. Raises: KafkaException."""
        return {place: end for place, end in self._group.ends(topics).items() if end}

    def commit(self, offsets: Ends, *, read: bool) -> None:
        """Tell the group; returns when the broker has it. `read`: not passed by. Raises: KafkaException."""
        if read:
            self._read.update({place: max(offset, self._read.get(place, 0)) for place, offset in offsets.items()})
        self._group.commit(offsets, {place: str(offset) for place, offset in self._read.items()})
