"""Adapter: places where a test can have the process killed or put to sleep. Off unless the settings name one."""

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
    """`armed` is like `after_commit:3`: at the third passage there, the process is killed as by kill -9.

    With `after_commit:3:stop` it is put to sleep instead, until somebody sends it SIGCONT.
    """

    def __init__(self, armed: str | None) -> None:
        """Raises: ValueError for a place that does not exist."""
        name, _, rest = (armed or "").partition(":")
        count, _, way = rest.partition(":")
        if name and name not in FAILPOINTS:
            raise ValueError(f"failpoint {name!r} is none of {', '.join(FAILPOINTS)}")
        self._armed = name
        self._left = int(count or 1)
        self._signal = signal.SIGSTOP if way == "stop" else signal.SIGKILL

    def passed(self, name: str) -> None:
        """Called wherever a worker could die; free when nothing is armed."""
        if name != self._armed:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._signal)
