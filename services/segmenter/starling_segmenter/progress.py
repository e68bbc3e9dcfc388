"""Pure core: when a task should say how far it is, and what it says (`SegmenterProgress`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starling_common.settings import Clock

_PAUSE_MS: Final = {Clock.WALL: 1000, Clock.EVENT: 0}
"""Under the wall clock time always goes on, so a report that is held back is soon made good. Under the event clock the
last one might be the last for a long time: there every unit of work that moves time reports."""


@dataclass(slots=True)
class Reporter:
    """Remembers what each partition said last."""

    clock: Clock
    _said: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition -> (stream time, wall clock in ms) of its last report."""

    def is_due(self, partition: int, stream_time_ms: int, now_ms: int) -> bool:
        """Whether the partition moved and was silent for long enough."""
        told_ms, told_at_ms = self._said.get(partition, (-1, 0))
        return stream_time_ms != told_ms and now_ms - told_at_ms >= _PAUSE_MS[self.clock]

    def said(self, partition: int, stream_time_ms: int, now_ms: int) -> None:
        """The partition has reported."""
        self._said[partition] = (stream_time_ms, now_ms)


def progress(partition: int, stream_time_ms: int, versions: Mapping[str, int], recorded_at: int) -> dict[str, Any]:
    """`versions`: `workspace/key` -> version in force; `recorded_at`: µs, wall clock."""
    return {"recorded_at": recorded_at, "partition": partition, "stream_time": stream_time_ms, "definitions": dict(versions)}
