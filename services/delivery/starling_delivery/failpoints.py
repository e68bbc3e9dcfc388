"""Adapter: points at which a test kills or suspends the process. Inactive unless the settings name one."""

import os
import signal
from typing import Final

from starling_common.failpoints import split

FAILPOINTS: Final = ("after_sending", "in_send", "after_send", "before_outcome")
"""After the transaction of SENDING; before the content of a mail is sent; after the server has taken it; before its outcome."""


class Ending:
    """`armed` is like `after_sending:3`: the process is killed with SIGKILL at the third passage. With `:stop` it is suspended."""

    def __init__(self, armed: str | None) -> None:
        """Raises: ValueError for an unknown failpoint."""
        name, _, rest = (split(armed)[1] or "").partition(":")
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
