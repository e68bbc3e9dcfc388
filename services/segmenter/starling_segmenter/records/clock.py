"""Edge: `segments.clock`, how far the memberships of each partition are complete (`ClockAdvanced`)."""

from collections.abc import Callable
from typing import Final

from starling_common.headers import record_headers
from starling_common.kafka.topics import SEGMENT_CLOCK
from starling_common.values import deterministic_id
from starling_common.wire import Codec
from starling_segmenter.records.membership import STAGE
from starling_segmenter.state.states import State
from starling_stream.model.processor import Unit

_CORRELATION_ID: Final = deterministic_id("segmenter", "clock")
"""Clock records have no request, so they share one correlation id."""


class ClockPublisher:
    """Emits the instants up to which the memberships of a partition are complete."""

    def __init__(self, codec: Codec, now_micros: Callable[[], int]) -> None:
        self._codec = codec
        self._now_micros = now_micros

    def publish(self, instant_ms: int, after_micros: int, unit: Unit[State]) -> None:
        """Emit one record to the unit's partition. `after_micros`: the greatest `received_at` of the records before it.

        A reader that merges by `received_at` then reads the clock record after the membership changes before it, also if the clock
        of another machine was ahead.
        """
        received_at = max(after_micros, self._now_micros())
        value = self._codec.encode({"received_at": received_at, "instant": instant_ms, "correlation_id": _CORRELATION_ID})
        unit.emit(SEGMENT_CLOCK, b"", value, received_at, record_headers(_CORRELATION_ID, STAGE))
