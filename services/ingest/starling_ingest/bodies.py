"""Edge: the time limit of request bodies.

One task looks at the bodies that are being read, once in a while. A timer for each request (`asyncio.timeout`) would cost as much
as the decoding of a small body, and nearly every body arrives with its headers.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

_CHECKS_PER_TIMEOUT: Final = 10

T = TypeVar("T")


class SlowBodies:
    """Ends the reading of bodies after `timeout_seconds`, a tenth of it late at most. For one event loop only."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        # A dictionary keeps the order of insertion: the first entry is the oldest.
        self._started: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()

    async def read(self, body: Awaitable[T]) -> T:
        """Return the result of `body`. Raises: TimeoutError, after `body` has been cancelled."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a body is read outside of a task")
        self._started[task] = asyncio.get_running_loop().time()
        try:
            return await body
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            raise TimeoutError from None
        finally:
            del self._started[task]
            self._late.discard(task)

    async def watch(self) -> None:
        """Cancel the reading of each body that is late. Runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._timeout_seconds / _CHECKS_PER_TIMEOUT)
            self.end_late(loop.time() - self._timeout_seconds)

    def end_late(self, started_before: float) -> None:
        """Cancel the reading of each body that began before this instant of the loop's clock."""
        for task, started in self._started.items():
            if started >= started_before:
                break
            if task not in self._late:
                self._late.add(task)
                task.cancel()
