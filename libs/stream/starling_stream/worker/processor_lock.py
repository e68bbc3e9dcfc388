"""Edge: the processor has one caller at a time, the loop of batches or a thread that reads history."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic, sleep
from types import TracebackType
from typing import Final

_LEAST_SECONDS: Final = 0.001
_MOST_SECONDS: Final = 0.02
_PAUSE_SECONDS: Final = 0.0002


class ProcessorLock:
    """Held by the event loop for a batch or a fetch, and by a thread for its history.

    The thread releases the lock between two records, after as long as the loop last held it: 1 to 20 ms. A loop that is busy leaves
    the thread half of the time; an idle one waits for 1 ms. `async with` on the loop must not contain an await, so that the loop
    never waits for itself.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting = 0
        """Coroutines that wait: a fetch and a batch may at the same time."""
        self._held_since = 0.0
        self._slice_seconds = _LEAST_SECONDS
        self._release_at = 0.0
        self.acquired_at = 0.0
        """When a thread last acquired the lock, in monotonic seconds: it does so for each batch of records."""

    async def __aenter__(self) -> None:
        """Acquire the lock; other coroutines run meanwhile."""
        self._waiting += 1
        try:
            while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - the other side is a thread, and holds it for 1 ms
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._waiting -= 1
        self._held_since = monotonic()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the lock."""
        held = monotonic() - self._held_since
        self._slice_seconds = min(max(held, _LEAST_SECONDS), _MOST_SECONDS)
        self._lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock in another thread."""
        self._acquire()
        try:
            yield
        finally:
            self._lock.release()

    def give_way(self) -> None:
        """Release the lock for a moment if it was held for the thread's share. Only in a thread that holds it."""
        if monotonic() >= self._release_at:
            with self.released():
                sleep(_PAUSE_SECONDS)  # sleep: without it, this thread would have the interpreter again at once

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the lock, and acquire it again at the end. Only in a thread that holds it."""
        self._lock.release()
        try:
            yield
        finally:
            self._acquire()

    def _acquire(self) -> None:
        while self._waiting:
            sleep(_PAUSE_SECONDS)  # sleep: a lock is not fair, and the loop comes first
        self._lock.acquire()
        self.acquired_at = monotonic()
        self._release_at = self.acquired_at + self._slice_seconds
