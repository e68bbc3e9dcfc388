"""Adapter: stores the position of a task's last failure in its local store, and logs failures."""

from starling_common.failures import stack_digest
from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_stream.state.local_store import TaskStore


class StoredFailures:
    """A `TaskFailures` of a running task."""

    def __init__(self, partition: int, store: TaskStore) -> None:
        self._partition = partition
        self._store = store

    def failed_at(self) -> int | None:
        """Implement `TaskFailures.failed_at`."""
        return self._store.failed_at()

    def failed(self, units: int, cause: Exception) -> None:
        """Implement `TaskFailures.failed`."""
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

    def found(self, origin: str, why: Refused) -> None:
        """Implement `TaskFailures.found`."""
        log(__name__).error("poison_found", origin=origin, code=why.code, reason=why.message)
