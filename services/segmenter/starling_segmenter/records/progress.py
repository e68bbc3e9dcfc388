"""Edge: `segments.progress`, the stream time and the versions in force of each partition (`SegmenterProgress`)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from starling_common.headers import record_headers
from starling_common.kafka.topics import PROGRESS
from starling_common.settings import Clock
from starling_common.values import deterministic_id
from starling_common.wire import Codec
from starling_segmenter.records.membership import STAGE
from starling_segmenter.state.states import State
from starling_stream.model.processor import Unit

_PAUSE_MS: Final = {Clock.WALL: 1000, Clock.EVENT: 0}
"""Time between two reports. The wall clock always advances, so a withheld report is followed by another one. The event clock
may stop for a long time, so each unit of work that advances it reports.
"""
_CORRELATION_ID: Final = deterministic_id("segmenter", "progress")
"""Progress records have no request, so they share one correlation id."""


class ProgressReporter:
    """Emits the progress of each partition."""

    def __init__(self, codec: Codec, clock: Clock, now_micros: Callable[[], int]) -> None:
        self._codec = codec
        self._pause_ms = _PAUSE_MS[clock]
        self._now_micros = now_micros
        self._reported: dict[int, tuple[int, int]] = {}
        """Partition -> (stream time, wall clock in ms) of its last report."""

    def report(self, stream_time_ms: int, versions: Mapping[str, int], unit: Unit[State]) -> None:
        """Emit the progress of the unit's partition. `versions`: `workspace/key` -> version in force."""
        now, partition = self._now_micros(), unit.partition
        self._reported[partition] = (stream_time_ms, now // 1000)
        value = self._codec.encode(progress(partition, stream_time_ms, versions, now))
        unit.emit(PROGRESS, str(partition).encode(), value, now, record_headers(_CORRELATION_ID, STAGE))

    def report_if_due(self, stream_time_ms: int, versions: Mapping[str, int], unit: Unit[State]) -> None:
        """As `report`, if stream time has advanced and the last report is old enough."""
        reported_ms, reported_at_ms = self._reported.get(unit.partition, (-1, 0))
        if stream_time_ms != reported_ms and self._now_micros() // 1000 - reported_at_ms >= self._pause_ms:
            self.report(stream_time_ms, versions, unit)


def progress(partition: int, stream_time_ms: int, versions: Mapping[str, int], recorded_at: int) -> dict[str, Any]:
    """Return a `SegmenterProgress`. `recorded_at`: µs, wall clock."""
    return {"recorded_at": recorded_at, "partition": partition, "stream_time": stream_time_ms, "definitions": dict(versions)}
