"""Adapter: points at which a test kills or suspends the process. Inactive unless the settings name one."""

import os
import signal
from collections.abc import Sequence

from starling_common.failpoints.raising import split


class Ending:
    """`armed` is like `after_commit:3`: the process is killed with SIGKILL at the third passage.

    With `after_commit:3:stop` it is suspended until it receives SIGCONT.
    """

    def __init__(self, armed: str | None, points: Sequence[str]) -> None:
        """`armed`: a setting, None for none. `points`: the failpoints of the process. Raises: ValueError for another one."""
        name, _, rest = (split(armed)[1] or "").partition(":")
        count, _, way = rest.partition(":")
        if name and name not in points:
            raise ValueError(f"failpoint {name!r} is none of {', '.join(points)}")
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
