"""Pure core: when a task should say how far it is, and what it says (`SegmenterProgress`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_PAUSE_MS: Final = 1000
"""A busy partition tells its stream time about this often; more would only be more records for the projector."""


@dataclass(slots=True)
class Reporter:
    """Remembers what each partition said last. `clock_ms`: the latest instant that a clock record asked for."""

    clock_ms: int = -1
    _said: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition -> (stream time, wall clock) of its last report."""

    def is_due(self, partition: int, stream_time_ms: int, now_ms: int) -> bool:
        """Whether the partition should report: it moved, and it either was silent for a while or reached the clock."""
        told_ms, told_at_ms = self._said.get(partition, (-1, 0))
        if stream_time_ms == told_ms:
            return False
        return now_ms - told_at_ms >= _PAUSE_MS or told_ms < self.clock_ms <= stream_time_ms

    def said(self, partition: int, stream_time_ms: int, now_ms: int) -> None:
        """The partition has reported."""
        self._said[partition] = (stream_time_ms, now_ms)


def progress(partition: int, stream_time_ms: int, versions: Mapping[str, int], recorded_at: int) -> dict[str, Any]:
    """`versions`: `workspace/key` -> version in force; `recorded_at`: µs, wall clock."""
    return {"recorded_at": recorded_at, "partition": partition, "stream_time": stream_time_ms, "definitions": dict(versions)}
