"""Pure core: when a target is tried again after a failure: jittered back-off, Retry-After, and the circuit breaker."""

import random
from collections import deque
from collections.abc import Callable
from typing import Final

FAILURES_IN_A_ROW: Final = 5
_RECENT: Final = 20
_FAILURES_OF_RECENT: Final = 10
_FIRST_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 600.0
MOST_RETRY_AFTER_SECONDS: Final = 3_600.0
_JITTER: Final = 0.2


class Circuit:
    """The failures of one target. It opens after 5 failures in a row, or if 10 of the last 20 requests failed.

    While it is open, one batch is tried after 30 s, then at doubling intervals up to 10 minutes.
    """

    def __init__(self, first_seconds: float = _FIRST_SECONDS, probe_seconds: float = PROBE_SECONDS) -> None:
        """`first_seconds`: the first wait of a closed circuit; it doubles. `probe_seconds`: that of an open one."""
        self._first_seconds = first_seconds
        self._probe_seconds = probe_seconds
        self._in_a_row = 0
        self._probes = 0
        self._recent: deque[bool] = deque(maxlen=_RECENT)
        self.is_open = False

    def succeeded(self) -> None:
        """Close the circuit: a batch was taken."""
        if self.is_open:
            self._recent.clear()
        self._in_a_row, self._probes, self.is_open = 0, 0, False
        self._recent.append(False)

    def failed(self, retry_after_seconds: float | None = None, share: Callable[[], float] = random.random) -> float:
        """Count a failure. Return the seconds until the next attempt, with up to a fifth more. A Retry-After is the least."""
        self._in_a_row += 1
        self._recent.append(True)
        if self.is_open:
            self._probes += 1
        elif self._in_a_row >= FAILURES_IN_A_ROW or sum(self._recent) >= _FAILURES_OF_RECENT:
            self.is_open = True
        exponent = self._probes if self.is_open else self._in_a_row - 1
        base = self._probe_seconds if self.is_open else self._first_seconds
        wait = min(base * 2.0**exponent, LONGEST_SECONDS)
        asked = min(retry_after_seconds or 0.0, MOST_RETRY_AFTER_SECONDS)
        return max(wait, asked) * (1 + _JITTER * share())
