"""Adapter: stores the position of a task's last failure in its local store, and logs failures."""

from starling_common.failures import stack_digest
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_stream.model.failpoints import AFTER_FAILURE, Failpoints
from starling_stream.state.local_store import TaskStore


class StoredFailures:
    """The failures of a running task. Two failures at the same position start the search for the record that causes them."""

    def __init__(self, partition: int, store: TaskStore, failpoints: Failpoints) -> None:
        self._partition = partition
        self._store = store
        self._failpoints = failpoints

    def failed_at(self) -> int | None:
        """Return the number of committed units at the last failure; None if there was none."""
        return self._store.failed_at()

    def failed(self, units: int, cause: Exception) -> None:
        """Log a failure after that many committed units. Store the position of a first failure there."""
        is_second = self._store.failed_at() == units
        log(__name__).error(
            "batch_failed_again" if is_second else "batch_failed",
            partition=self._partition,
            units=units,
            stack=stack_digest(cause),
            exc_info=cause,
        )
        if not is_second:
            self._store.set_failed_at(units)
        self._failpoints.passed(AFTER_FAILURE)

    def found(self, origin: str, why: Refused) -> None:
        """Log the record or timer that the search found."""
        log(__name__).error("poison_found", origin=origin, code=why.code, reason=why.message)
