"""Adapter: points at which a test kills or suspends the process. Inactive unless the settings name one."""

import os
import signal
from typing import Final

AFTER_FOLD: Final = "after_fold"
AFTER_PRODUCE: Final = "after_produce"
AFTER_COMMIT: Final = "after_commit"
AFTER_STORE: Final = "after_store"
MID_FLUSH: Final = "mid_flush"
AFTER_FLUSH: Final = "after_flush"
FAILPOINTS: Final = (AFTER_FOLD, AFTER_PRODUCE, AFTER_COMMIT, AFTER_STORE, MID_FLUSH, AFTER_FLUSH)


class Failpoints:
    """`armed` is like `after_commit:3`: the process is killed with SIGKILL at the third passage.

    With `after_commit:3:stop` it is suspended until it receives SIGCONT.
    """

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
        """Kill or suspend the process if this failpoint is armed and its count is reached."""
        if name != self._armed:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._signal)
