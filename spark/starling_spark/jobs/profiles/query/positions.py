"""Core: the job's offsets, as committed to its consumer group.

The metadata of each offset has the offset up to which records were read. While no trait is defined, the job commits offsets
without reading the records. When it reads them later, it must write one dead letter for each unreadable record. It also has the
stream time of the partition up to which values are published, which the API reports.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from starling_common.kafka.position_notes import PositionNote, position_note
from starling_spark.kafka.groups import Ends, GroupOffsets

Position = tuple[str, int]
"""(topic, partition)."""


class GroupPositions:
    """The committed offsets, and the offsets up to which records were read."""

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._read: dict[Position, int] = {}
        self._times: dict[int, int] = {}

    def load(self, topics: Sequence[str]) -> None:
        """Load the committed metadata. Raises: KafkaException."""
        for position, metadata in self._group.load(topics).items():
            note = position_note(metadata)
            if note.read is not None:
                self._read[position] = note.read
            self._pass({position[1]: note.stream_time_ms})

    def read_up_to(self) -> Mapping[Position, int]:
        """Return the offsets up to which records were read and unreadable ones dead-lettered."""
        return dict(self._read)

    def ends(self, topics: Sequence[str]) -> Ends:
        """Return the ends of all partitions with records. Raises: KafkaException."""
        return {partition: end for partition, end in self._group.ends(topics).items() if end}

    def commit(
        self,
        offsets: Ends,
        *,
        read: bool,
        stream_times: Mapping[int, int] = MappingProxyType({}),
        history: Mapping[Position, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        """Commit offsets to the group; returns after the broker has acknowledged. `read`: not skipped. Raises: KafkaException.

        `stream_times`: by partition. They never decrease. `history`: how many records of how many are read, at offsets that stay.
        """
        self._pass(stream_times)
        if read:
            self._read.update({one: max(offset, self._read.get(one, 0)) for one, offset in offsets.items()})
        notes = {place: str(PositionNote(offset, self._times.get(place[1], 0))) for place, offset in self._read.items()}
        for place, (done, total) in history.items():
            if place in self._read:
                offsets = {**offsets, place: self._read[place]}
                notes[place] = str(PositionNote(self._read[place], 0, done, total))
        self._group.commit(offsets, notes)

    def _pass(self, stream_times: Mapping[int, int]) -> None:
        for partition, time_ms in stream_times.items():
            self._times[partition] = max(time_ms, self._times.get(partition, 0))
