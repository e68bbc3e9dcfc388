"""Core: a limit of the expensive requests of each workspace at the same time, with a bounded queue."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starling_api.http.errors import TooManyRequests


class Gate:
    """Admits requests of a workspace. A waiting request blocks its thread, so the queue is short."""

    def __init__(self, most_running: int, most_waiting: int, wait_seconds: float) -> None:
        self._most_running = most_running
        self._most_waiting = most_waiting
        self._wait_seconds = wait_seconds
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._left = threading.Condition()

    @contextmanager
    def admitted(self, workspace: str) -> Iterator[None]:
        """Wait for a place, and hold it. Raises: TooManyRequests if the queue is full, or no place becomes free in time."""
        self._enter(workspace)
        try:
            yield
        finally:
            with self._left:
                _decrease(self._running, workspace)
                self._left.notify_all()

    def waiting(self, workspace: str) -> int:
        """Return the number of requests of the workspace that wait for a place."""
        with self._left:
            return self._waiting[workspace]

    def _enter(self, workspace: str) -> None:
        with self._left:
            if self._running[workspace] >= self._most_running:
                if self._waiting[workspace] >= self._most_waiting:
                    raise self._refusal("and no more requests can wait")
                self._waiting[workspace] += 1
                try:
                    is_free = self._left.wait_for(lambda: self._running[workspace] < self._most_running, self._wait_seconds)
                finally:
                    _decrease(self._waiting, workspace)
                if not is_free:
                    raise self._refusal("and none ended in time")
            self._running[workspace] += 1

    def _refusal(self, reason: str) -> TooManyRequests:
        return TooManyRequests(
            f"{self._most_running} previews, diffs and exports of this workspace are running, {reason}: retry later"
        )


def _decrease(counts: Counter[str], workspace: str) -> None:
    counts[workspace] -= 1
    if not counts[workspace]:
        del counts[workspace]
