"""Edge: `messenger.progress`, the definitions that each partition has. The API waits for it before it answers an activation."""

from collections.abc import Callable
from typing import Final

from starling_common.headers import record_headers
from starling_common.kafka.topics import DELIVERY_DEFINITIONS, MESSENGER_PROGRESS
from starling_common.values import deterministic_id
from starling_common.wire import Codec
from starling_messages.state import PersonState
from starling_messenger.records import STAGE
from starling_stream.model.processor import Unit

_CORRELATION_ID: Final = deterministic_id(STAGE, "progress")
"""Progress records have no request, so they share one correlation id."""


class ProgressReporter:
    """Reports the definitions of a partition whenever they change."""

    def __init__(self, codec: Codec, now_micros: Callable[[], int]) -> None:
        self._codec = codec
        self._now_micros = now_micros

    def report(self, offset: int, unit: Unit[PersonState]) -> None:
        """Emit that the unit's partition has the definitions before that offset of `delivery.definitions`."""
        now, partition = self._now_micros(), unit.partition
        definitions = {DELIVERY_DEFINITIONS: offset}
        value = {"recorded_at": now, "partition": partition, "stream_time": unit.stream_time_ms, "definitions": definitions}
        headers = record_headers(_CORRELATION_ID, STAGE)
        unit.emit(MESSENGER_PROGRESS, str(partition).encode(), self._codec.encode(value), now, headers)
