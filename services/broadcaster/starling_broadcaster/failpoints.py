"""Adapter: points at which a test kills or suspends the broadcaster. Inactive unless the settings name one."""

import os
import signal
from typing import Final

AFTER_START: Final = "after_start"
AFTER_READ: Final = "after_read"
BEFORE_COMMIT: Final = "before_commit"
AFTER_COMMIT: Final = "after_commit"
FAILPOINTS: Final = (AFTER_START, AFTER_READ, BEFORE_COMMIT, AFTER_COMMIT)
"""After the progress is read; after a page of members is read; in and after the transaction that writes it."""


class Ending:
    """`armed` is like `before_commit:3`: the process is killed with SIGKILL at the third passage. With `:stop` it is suspended."""

    def __init__(self, armed: str | None) -> None:
        """Raises: ValueError for an unknown failpoint."""
        name, _, rest = (armed or "").partition(":")
        count, _, way = rest.partition(":")
        if name and name not in FAILPOINTS:
            raise ValueError(f"failpoint {name!r} is none of {', '.join(FAILPOINTS)}")
        self._armed = name
        self._left = int(count or 1)
        self._signal = signal.SIGSTOP if way == "stop" else signal.SIGKILL

    def passed(self, name: str) -> None:
        """End the process if this failpoint is armed and its count is reached."""
        if name != self._armed:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._signal)
