"""Pure core: the metadata of the offsets that the job `profiles` commits, which the API reads.

`READ` or `READ STREAM_TIME`, both decimal. The releases up to 0.1.0 write only the first one.
"""

from typing import NamedTuple


class PositionNote(NamedTuple):
    """`read`: the offset up to which records were read, None if it is unknown.

    `stream_time_ms`: the stream time of the partition up to which values are published; 0: none.
    """

    read: int | None = None
    stream_time_ms: int = 0

    def __str__(self) -> str:
        """Return the metadata."""
        return " ".join(str(number or 0) for number in self[: 2 if self.stream_time_ms else 1])


def position_note(metadata: str | None) -> PositionNote:
    """Return the note of an offset; an empty one for other metadata."""
    numbers = (metadata or "").split(" ")
    return PositionNote(*map(int, numbers)) if len(numbers) <= 2 and all(map(str.isdecimal, numbers)) else PositionNote()
