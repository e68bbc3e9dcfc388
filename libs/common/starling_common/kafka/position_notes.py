"""Pure core: the metadata of the offsets that the job `profiles` commits, which the API reads.

`READ`, `READ STREAM_TIME` or `READ STREAM_TIME DONE TOTAL`, all decimal. The releases up to 0.1.0 write only the first one.
"""

from typing import NamedTuple


class PositionNote(NamedTuple):
    """`read`: the offset up to which records were read, None if it is unknown.

    `stream_time_ms`: the stream time of the partition up to which values are published; 0: none. `done` of `total`: records of the
    history of traits that wait, at the offset of the definitions alone; a `total` of 0: unknown.
    """

    read: int | None = None
    stream_time_ms: int = 0
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return the metadata."""
        return " ".join(str(number or 0) for number in self[: 4 if self.total else 2 if self.stream_time_ms else 1])


def position_note(metadata: str | None) -> PositionNote:
    """Return the note of an offset; an empty one for other metadata."""
    numbers = (metadata or "").split(" ")
    return PositionNote(*map(int, numbers)) if len(numbers) in (1, 2, 4) and all(map(str.isdecimal, numbers)) else PositionNote()
