"""Adapter: points at which a test kills or suspends the process, or a processor raises. Inactive unless the settings name one."""

import os
from typing import Final, Generic

from starling_common.failpoints.ending import Ending
from starling_common.failpoints.raising import Raising
from starling_stream.model.processor import Decoded, Inbound, Processor, S, Unit

AFTER_FOLD: Final = "after_fold"
AFTER_PRODUCE: Final = "after_produce"
AFTER_COMMIT: Final = "after_commit"
AFTER_STORE: Final = "after_store"
MID_FLUSH: Final = "mid_flush"
AFTER_FLUSH: Final = "after_flush"
AFTER_TIMERS: Final = "after_timers"
"""After the fold of a batch that only fires timers."""
AFTER_SLICE: Final = "after_slice"
"""After the fold of a batch with a slice of a switch."""
AFTER_RESTORE: Final = "after_restore"
"""After a task was restored, or its standby promoted, before it runs."""
AFTER_FAILURE: Final = "after_failure"
"""After the position of a batch that failed was stored."""
BEFORE_RELEASE: Final = "before_release"
"""After a new assignment, before the tasks stop whose partitions moved to another worker."""
FAILPOINTS: Final = (
    AFTER_FOLD,
    AFTER_TIMERS,
    AFTER_SLICE,
    AFTER_PRODUCE,
    AFTER_COMMIT,
    AFTER_STORE,
    MID_FLUSH,
    AFTER_FLUSH,
    AFTER_RESTORE,
    AFTER_FAILURE,
    BEFORE_RELEASE,
)

_TOO_LARGE_BYTES: Final = 3 * 1024 * 1024


class Failpoints(Ending):
    """The failpoints of a worker."""

    def __init__(self, armed: str | None) -> None:
        """Raises: ValueError for an unknown failpoint."""
        super().__init__(armed, FAILPOINTS)


class RaisingProcessor(Generic[S]):
    """A processor that raises for the records or keys that contain a text, in the method that the failpoint names.

    At the point `output` it emits a record that is too large for the stage's dead-letter topic.
    """

    def __init__(self, processor: Processor[S], raising: Raising, stage: str) -> None:
        self._processor = processor
        self._raising = raising
        self._stage = stage
        self.encode_state = processor.encode_state
        self.decode_state = processor.decode_state
        self.adopt_plan = processor.adopt_plan
        self.has_plan = processor.has_plan
        self.before_switch = processor.before_switch
        self.switched_prefixes = processor.switched_prefixes
        self.after_switch = processor.after_switch

    def decode(self, topic: str, value: bytes) -> Decoded:
        """As `Processor.decode`."""
        self._raising.passed("decode", value)
        return self._processor.decode(topic, value)

    def process(self, record: Inbound, unit: Unit[S]) -> None:
        """As `Processor.process`. Raises after the record was folded, when the unit has its changes."""
        self._processor.process(record, unit)
        self._raising.passed("process", record.raw)
        if self._raising.matches("output", record.raw):
            unit.emit(f"{self._stage}.dlq", record.key, os.urandom(_TOO_LARGE_BYTES), record.received_at, [])

    def fire(self, key: bytes, unit: Unit[S]) -> None:
        """As `Processor.fire`."""
        self._raising.passed("fire", key)
        self._processor.fire(key, unit)

    def switch(self, key: bytes, state: S, unit: Unit[S]) -> None:
        """As `Processor.switch`."""
        self._raising.passed("switch", key)
        self._processor.switch(key, state, unit)
