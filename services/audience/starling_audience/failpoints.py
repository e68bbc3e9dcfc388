"""Adapter: points at which a test kills the process. Inactive unless the settings name one."""

import os
import signal
from typing import Final

BEFORE_SEND: Final = "before_send"
AFTER_SEND: Final = "after_send"
BEFORE_COMMIT: Final = "before_commit"
AFTER_COMMIT: Final = "after_commit"
FAILPOINTS: Final = (BEFORE_SEND, AFTER_SEND, BEFORE_COMMIT, AFTER_COMMIT)
"""Before and after each request of a batch; before and after the commit of its offsets."""


class Ending:
    """`armed` is like `after_send:3`: the process is killed with SIGKILL at the third passage."""

    def __init__(self, armed: str | None) -> None:
        """Raises: ValueError for an unknown failpoint."""
        name, _, count = (armed or "").partition(":")
        if name and name not in FAILPOINTS:
            raise ValueError(f"failpoint {name!r} is none of {', '.join(FAILPOINTS)}")
        self._armed = name
        self._left = int(count or 1)

    def passed(self, name: str) -> None:
        """End the process if this failpoint is armed and its count is reached."""
        if name != self._armed:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
